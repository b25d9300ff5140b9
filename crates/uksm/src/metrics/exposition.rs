//! A snapshot as text.
//!
//! # Approach
//! The library's collector gets the snapshot and goes through the catalogue: a family for each row,
//! a line for each group and value of the row's label. A row without known figures is left out as a
//! whole.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
    prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::catalogue::{self, MetricValue, PREFIX, Row, Sample};
use super::snapshot::Snapshot;

/// A form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's own, 0.0.4.
    Prometheus,
}

impl Format {
    /// The content type of an answer over HTTP.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The whole text.
pub(super) fn text(snapshot: &Arc<Snapshot>, format: Format) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Arc::clone(snapshot)));
    let mut out = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut out, &registry),
        Format::Prometheus => prometheus_text::encode(&mut out, &registry),
    };
    written.expect("a text takes what is written");
    out
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for row in catalogue::of_daemon() {
            let samples = (row.take)(self);
            family(&mut encoder, &row, &[(None, samples)])?;
        }
        for row in catalogue::of_groups() {
            let of = |group| (row.take)(group);
            let groups = self.groups.iter();
            let samples = groups.map(|group| (Some(&*group.name), of(group)));
            family(&mut encoder, &row, &samples.collect::<Vec<_>>())?;
        }
        for row in catalogue::status::rows() {
            let groups = self.groups.iter();
            let samples = groups.filter_map(|group| {
                let status = group.status.as_ref()?;
                Some((Some(&*group.name), (row.take)(status)))
            });
            family(&mut encoder, &row, &samples.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Writes a row: its description, and its figures by group.
fn family<T>(
    encoder: &mut DescriptorEncoder,
    row: &Row<T>,
    groups: &[(Option<&str>, Vec<Sample>)],
) -> fmt::Result {
    if groups.iter().all(|(_, samples)| samples.is_empty()) {
        return Ok(());
    }
    let unit = row.unit.map(|unit| Unit::Other(unit.to_owned()));
    let mut family = encoder.encode_descriptor(row.name, row.help, unit.as_ref(), row.kind)?;
    for (group, samples) in groups {
        for (value, figure) in samples {
            let own = row.label.map(|label| (label, value.as_str()));
            let group = group.map(|group| ("group", group));
            let labels: Vec<(&str, &str)> = group.into_iter().chain(own).collect();
            match labels.is_empty() {
                true => line(&mut family, row.kind, *figure)?,
                false => line(&mut family.encode_family(&labels)?, row.kind, *figure)?,
            }
        }
    }
    Ok(())
}

fn line(encoder: &mut MetricEncoder, kind: MetricType, figure: MetricValue) -> fmt::Result {
    fn write<V: EncodeGaugeValue>(encoder: &mut MetricEncoder, value: &V) -> fmt::Result {
        encoder.encode_gauge(value)
    }
    fn count<V: EncodeCounterValue>(encoder: &mut MetricEncoder, value: &V) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
    }
    match (kind, figure) {
        (MetricType::Counter, MetricValue::Whole(value)) => count(encoder, &value),
        (MetricType::Counter, MetricValue::Real(value)) => count(encoder, &value),
        (_, MetricValue::Whole(value)) => write(encoder, &value),
        (_, MetricValue::Real(value)) => write(encoder, &value),
        (_, MetricValue::Signed(value)) => write(encoder, &value),
    }
}

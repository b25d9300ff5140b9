//! The catalogue of all metrics, a row each.
//!
//! # Problem
//! The exported metrics, their documentation, and the names in alerts and boards must be the same.
//!
//! # Approach
//! A [`Row`] has the name, the kind, the labels, the text of HELP, and a function that takes its
//! figures from the daemon's answer. All else is made of rows: the exposition, and the table in
//! `docs/metrics.md`, which a test compares line by line. Rows are about the daemon
//! ([`of_daemon`]), about each group ([`of_groups`]), or about the status of a worker or of a
//! daemon without groups ([`status::rows`]).
//!
//! # Units
//! Base units, with which the name ends: `_bytes`, `_seconds`, `_ratio` (of one core),
//! `_byte_seconds`. All else is a count; pages are 4 KiB. Sums over a label make sense: figures
//! that cannot be added have names of their own.

use prometheus_client::metrics::MetricType;
use uksm_redistribution::guard::Phase;
use uksm_redistribution::status::GroupStatus as Redistributed;

use super::snapshot::Snapshot;
use crate::status::groups::GroupStatus;

pub(super) mod status;

/// The prefix of each name.
pub(super) const PREFIX: &str = "uksm";

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MetricValue {
    /// A count.
    Whole(u64),
    /// A number that can be negative.
    Signed(i64),
    /// Seconds, shares.
    Real(f64),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> MetricValue {
        MetricValue::Whole(value)
    }
}

impl From<i64> for MetricValue {
    fn from(value: i64) -> MetricValue {
        MetricValue::Signed(value)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> MetricValue {
        MetricValue::Real(value)
    }
}

impl From<bool> for MetricValue {
    fn from(value: bool) -> MetricValue {
        MetricValue::Whole(u64::from(value))
    }
}

/// A figure and the value of its row's label, which is empty if the row has none.
pub(super) type Sample = (String, MetricValue);

/// A metric.
pub(super) struct Row<T> {
    /// Its name, without prefix, unit and `_total`.
    pub(super) name: &'static str,
    /// Its unit, if it has one.
    pub(super) unit: Option<&'static str>,
    /// A counter or a gauge.
    pub(super) kind: MetricType,
    /// One line of help.
    pub(super) help: &'static str,
    /// The label that distinguishes its figures, besides the group.
    pub(super) label: Option<&'static str>,
    /// Its figures; none if they are not known.
    pub(super) take: fn(&T) -> Vec<Sample>,
}

impl<T> Row<T> {
    /// A row whose figure goes up and down.
    pub(super) const fn gauge(
        name: &'static str,
        help: &'static str,
        take: fn(&T) -> Vec<Sample>,
    ) -> Row<T> {
        Row {
            name,
            unit: None,
            kind: MetricType::Gauge,
            help,
            label: None,
            take,
        }
    }

    /// A row whose figure only grows, until its source is restarted.
    pub(super) const fn counter(
        name: &'static str,
        help: &'static str,
        take: fn(&T) -> Vec<Sample>,
    ) -> Row<T> {
        let mut row = Row::gauge(name, help, take);
        row.kind = MetricType::Counter;
        row
    }

    /// Sets the unit.
    #[must_use]
    pub(super) const fn unit(mut self, unit: &'static str) -> Row<T> {
        self.unit = Some(unit);
        self
    }

    /// Sets the label; the row has a figure for each of its values.
    #[must_use]
    pub(super) const fn by(mut self, label: &'static str) -> Row<T> {
        self.label = Some(label);
        self
    }

    /// The name of its lines.
    #[cfg(test)]
    pub(super) fn exported(&self) -> String {
        let unit = self
            .unit
            .map_or_else(String::new, |unit| format!("_{unit}"));
        let end = match self.kind {
            MetricType::Counter => "_total",
            _ => "",
        };
        format!("{PREFIX}_{}{unit}{end}", self.name)
    }
}

/// The only figure of a row without a label.
pub(super) fn one(figure: impl Into<MetricValue>) -> Vec<Sample> {
    vec![(String::new(), figure.into())]
}

/// The only figure, if it is known.
fn known<F: Into<MetricValue>>(figure: Option<F>) -> Vec<Sample> {
    figure.map_or_else(Vec::new, one)
}

/// A figure for each value of the label.
pub(super) fn each<const N: usize>(figures: [(&str, u64); N]) -> Vec<Sample> {
    let sample = |(value, figure): (&str, u64)| (value.to_owned(), MetricValue::Whole(figure));
    figures.map(sample).into()
}

/// Rows about the daemon as a whole.
pub(super) fn of_daemon() -> Vec<Row<Snapshot>> {
    type SnapshotRow = Row<Snapshot>;
    vec![
        SnapshotRow::gauge("up", "Whether the daemon answered: 1 or 0", |all| {
            one(all.about.is_some())
        }),
        SnapshotRow::gauge("build_info", "The daemon: always 1", |all| {
            let about = all.about.iter();
            about
                .map(|about| (about.version.clone(), MetricValue::Whole(1)))
                .collect()
        })
        .by("version"),
        SnapshotRow::gauge("uptime", "How long the daemon has run", |all| {
            known(all.about.as_ref().map(|about| about.uptime_seconds))
        })
        .unit("seconds"),
        SnapshotRow::gauge(
            "answer",
            "How long the daemon took to answer this scrape",
            |all| one(all.answer_seconds),
        )
        .unit("seconds"),
        SnapshotRow::gauge(
            "groups",
            "Groups there are; 0 of a daemon without groups",
            |all| known(all.about.as_ref().map(|about| about.groups)),
        ),
        SnapshotRow::gauge(
            "supervisor_memory",
            "Memory of the supervisor of groups",
            |all| known(all.about.as_ref().and_then(|about| about.supervisor_bytes)),
        )
        .unit("bytes"),
        SnapshotRow::counter(
            "written_pages",
            "Merged pages that processes of the whole host wrote, by the kernel's count of \
             copies less those that uksm made; absent once KSM was seen to merge too",
            |all| known(all.about.as_ref().and_then(|about| about.written_on_host)),
        ),
        SnapshotRow::gauge(
            "moves_told",
            "Whether events report moves between control groups: 1 or 0",
            |all| known(all.about.as_ref().and_then(|about| about.moves_told)),
        ),
        SnapshotRow::counter(
            "moves_lost",
            "How often events of moves were lost; each time all processes were checked",
            |all| known(all.about.as_ref().and_then(|about| about.moves_lost)),
        ),
        SnapshotRow::gauge(
            "redistribution_phase",
            "State of redistribution: 1 for the present state, 0 for the others",
            |all| {
                let phases = [Phase::Giving, Phase::Holding, Phase::TakingBack];
                let now = all.redistribution.iter();
                now.flat_map(|now| phases.map(|of| (of.to_string(), (of == now.phase).into())))
                    .collect()
            },
        )
        .by("phase"),
        SnapshotRow::gauge(
            "redistribution_freed",
            "Memory freed by merging in the groups, where it is redistributed",
            |all| of_redistributed(all, |group| group.freed_bytes),
        )
        .unit("bytes")
        .by("group"),
        SnapshotRow::gauge(
            "redistribution_given",
            "Freed memory that members of the group hold",
            |all| of_redistributed(all, |group| group.given_bytes),
        )
        .unit("bytes")
        .by("group"),
    ]
}

fn of_redistributed(all: &Snapshot, figure: fn(&Redistributed) -> u64) -> Vec<Sample> {
    let groups = all.redistribution.iter().flat_map(|now| &now.groups);
    groups
        .map(|group| (group.name.clone(), figure(group).into()))
        .collect()
}

/// Rows about each group, whether its worker answers or not; a daemon without groups counts as a
/// group that answers.
pub(super) fn of_groups() -> Vec<Row<GroupStatus>> {
    type GroupRow = Row<GroupStatus>;
    vec![
        GroupRow::gauge("group_up", "Whether the worker of the group answers: 1 or 0", |group| {
            one(group.status.is_some())
        }),
        GroupRow::counter("worker_restarts", "Workers that had died and were replaced", |group| {
            one(group.restarts)
        }),
        GroupRow::gauge("rate", "Share of one core that the group may use, where that is dynamic", |group| {
            known(group.rate.as_ref().map(|rate| rate.share))
        })
        .unit("ratio"),
        GroupRow::gauge(
            "cpu_waited",
            "Part of the time that the group's tasks wait for processors, where its rate is dynamic",
            |group| known(group.rate.as_ref().map(|rate| rate.cpu_waited)),
        )
        .unit("ratio"),
        GroupRow::gauge(
            "memory_waited",
            "Part of the time that the group's tasks wait for memory, where its rate is dynamic",
            |group| known(group.rate.as_ref().map(|rate| rate.memory_waited)),
        )
        .unit("ratio"),
    ]
}

#[cfg(test)]
mod tests;

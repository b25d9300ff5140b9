//! The figures of a report, for both its page and its JSON object.
//!
//! # Approach
//! The ledger is read twice, so that months of it are never held in memory: once for the covered
//! time, and once to put it into steps. Sums by group are those of `uksm account`. The amounts of a
//! record are spread evenly over its steps.
//!
//! # Units
//! As in [`record`](crate::account::Record).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use uksm_policy::report::counted;

use super::span::{self, Cover, Piece};
use crate::account::{Amounts, GroupBill, LedgerPart, Record, SpanSums, TimeRange, read, written};

/// Version of the form of the JSON object.
const VERSION: u32 = 2;

/// Byte-seconds of a GiB in an hour.
pub(super) const GIB_HOUR: f64 = 3600.0 * 1024.0 * 1024.0 * 1024.0;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LedgerReport {
    /// Version of this form.
    pub(super) version: u32,
    /// Beginning of the span.
    pub(super) from: String,
    /// End of the span, exclusive.
    pub(super) to: String,
    /// The folder of the ledger.
    pub(super) folder: String,
    /// The part of the span that records cover.
    pub(super) covered_seconds: f64,
    /// Stretches of a minute and more that no record covers.
    pub(super) gaps: Vec<Gap>,
    /// Places of torn records, which are left out.
    pub(super) torn: Vec<String>,
    /// Writes on the whole host. A report of one group has none: its reader may see that group
    /// only.
    #[serde(flatten)]
    pub(super) host_written: Option<HostWritten>,
    /// All groups together.
    pub(super) total: ReportSum,
    /// The groups that have records in the span, by name.
    pub(super) groups: Vec<GroupSummary>,
    /// Length of a step, except for the first and the last.
    pub(super) step_seconds: f64,
    /// The steps.
    pub(super) steps: Vec<Step>,
}

/// Merged pages that processes of the whole host wrote, by the kernel's count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HostWritten {
    /// Their number; null if that is not known.
    #[serde(rename = "host_written_pages")]
    pub(super) pages: Option<u64>,
    /// The part of the span for which that is known.
    #[serde(rename = "host_written_seconds")]
    pub(super) seconds: f64,
}

/// A time range that no record covers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Gap {
    /// Its beginning.
    pub(super) from: String,
    /// Its end.
    pub(super) to: String,
}

/// Sums of one group or of all.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct ReportSum {
    /// The sums of `uksm account`.
    #[serde(flatten)]
    pub(super) amounts: Amounts,
    /// Bytes saved at the end of the last record of each group, and net of its worker's memory.
    pub(super) saved_bytes: i64,
    pub(super) net_bytes: i64,
    /// `saved_byte_seconds` less `worker_byte_seconds`.
    pub(super) net_byte_seconds: f64,
    /// CPU time for a GiB saved for an hour; null if nothing was saved.
    pub(super) cpu_seconds_per_saved_gib_hour: Option<f64>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GroupSummary {
    /// Its name.
    pub(super) group: String,
    /// Beginning of its first record in the span, or of the span.
    pub(super) from: String,
    /// End of its last record in the span, or of the span.
    pub(super) to: String,
    /// Its sums.
    #[serde(flatten)]
    pub(super) sum: ReportSum,
}

/// Figures of one step of the span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Step {
    /// Its beginning.
    pub(super) from: String,
    /// Its end.
    pub(super) to: String,
    /// The same in seconds since 1970.
    #[serde(skip)]
    pub(super) piece: Piece,
    /// The covered part of the step. If that is 0, its figures are unknown, and all others are
    /// null.
    pub(super) covered_seconds: f64,
    /// Mean of saved bytes over the covered time.
    pub(super) saved_bytes: Option<f64>,
    /// The same, for each group that saved something.
    pub(super) saved_bytes_by_group: BTreeMap<String, f64>,
    /// Mean share of one core.
    pub(super) cpu_share: Option<f64>,
    /// Mean of freed memory that members held.
    pub(super) held_bytes: Option<f64>,
    /// Pages merged.
    pub(super) merged_pages: Option<f64>,
    /// Pages that the daemon gave their own copies, those given back included.
    pub(super) broken_pages: Option<f64>,
    /// Merged pages that processes wrote or unmapped.
    pub(super) written_pages: Option<f64>,
}

/// Merged pages written on the host, while records are read.
#[derive(Debug, Default)]
struct HostWrites {
    pages: Option<u64>,
    known: Cover,
}

impl HostWrites {
    fn add(&mut self, record: &Record, time_range: Piece) {
        if let Some(pages) = record.host_written_pages {
            self.pages = Some(self.pages.unwrap_or(0).saturating_add(pages));
            self.known.add(time_range);
        }
    }
}

/// Sums of a step, while records are read.
#[derive(Debug, Default)]
struct StepSums {
    saved: BTreeMap<String, f64>,
    cpu: f64,
    held: f64,
    merged: f64,
    broken: f64,
    written: f64,
}

/// The figures of this part of a ledger at `now`.
///
/// # Errors
/// The ledger cannot be read, or has no records there: one line.
pub(super) fn figures(part: &LedgerPart, now: Timestamp) -> Result<LedgerReport, String> {
    let is_asked = |record: &Record| {
        part.group
            .as_ref()
            .is_none_or(|group| *group == record.group)
    };
    let (since, until) = part.bounds;
    let mut cover = Cover::default();
    let torn = read(&part.folder, since, &mut |record, time_range| {
        if is_asked(&record) {
            cover.add(piece(time_range));
        }
    })?;
    for place in &torn {
        crate::log::print_line(&format!("{place}: a torn record is left out"));
    }
    let span = span_of(&cover, (since, until), now);
    let mut sums = SpanSums::new(since, until);
    let mut written = HostWrites::default();
    let mut steps = span.map_or_else(Vec::new, |span| {
        let steps = span::steps(span).into_iter();
        steps.map(|step| (step, StepSums::default())).collect()
    });
    read(&part.folder, since, &mut |record, time_range| {
        if until.is_none_or(|until| time_range.to <= until) {
            // A record of any group has the writes on the host.
            written.add(&record, piece(time_range));
        }
        if is_asked(&record) {
            spread(&mut steps, &record, piece(time_range));
        }
        sums.add(record, time_range);
    })?;
    let folder = part.folder.display().to_string();
    let bills = sums.bills(part.group.as_deref(), &folder)?;
    let Some(span) = span.filter(|_| !bills.is_empty()) else {
        return Err(format!("{folder}: no records in this span"));
    };
    let groups: Vec<GroupSummary> = bills.into_iter().map(group).collect();
    let gaps = cover.gaps(span).into_iter();
    Ok(LedgerReport {
        version: VERSION,
        from: text(span.0),
        to: text(span.1),
        folder,
        covered_seconds: cover.within(span),
        gaps: gaps
            .map(|(from, to)| Gap {
                from: text(from),
                to: text(to),
            })
            .collect(),
        torn,
        host_written: part.group.is_none().then(|| HostWritten {
            pages: written.pages,
            seconds: written.known.within(span),
        }),
        total: total(&groups),
        groups,
        step_seconds: span::step_length(span),
        steps: steps
            .into_iter()
            .map(|(piece, gathered)| step(piece, gathered, cover.within(piece)))
            .collect(),
    })
}

/// The span of the report: the requested one, as far as that has bounds; up to now, if it has only
/// a beginning.
fn span_of(
    cover: &Cover,
    (since, until): (Option<Timestamp>, Option<Timestamp>),
    now: Timestamp,
) -> Option<Piece> {
    let (first, last) = cover.ends()?;
    let from = since.map_or(first, seconds);
    let to = match (since, until) {
        (_, Some(until)) => seconds(until),
        (Some(_), None) => seconds(now).max(last),
        (None, None) => last,
    };
    (from < to).then_some((from, to))
}

/// Adds a record to its steps.
fn spread(steps: &mut [(Piece, StepSums)], record: &Record, (from, to): Piece) {
    let first = steps.partition_point(|((_, end), _)| *end <= from);
    let length = to - from;
    for ((begin, end), gathered) in &mut steps[first..] {
        if *begin > to || (*begin == to && length > 0.0) {
            break;
        }
        let part = match length > 0.0 {
            true => (to.min(*end) - from.max(*begin)).max(0.0) / length,
            // A record without duration counts at its time.
            false => 1.0,
        };
        let amounts = &record.amounts;
        *gathered.saved.entry(record.group.clone()).or_default() +=
            amounts.saved_byte_seconds * part;
        gathered.cpu += amounts.cpu_seconds * part;
        gathered.held += amounts.held_byte_seconds * part;
        gathered.merged += amounts.merged_pages as f64 * part;
        gathered.broken += amounts.broken_pages as f64 * part;
        gathered.written += amounts.written_pages as f64 * part;
    }
}

fn step(piece: Piece, mut gathered: StepSums, covered: f64) -> Step {
    let known = |value: f64| (covered > 0.0).then_some(value);
    let mean = |sum: f64| known(sum / covered);
    gathered.saved.retain(|_, saved| *saved != 0.0);
    let saved = gathered.saved.values().sum();
    for saved in gathered.saved.values_mut() {
        *saved = mean(*saved).unwrap_or(0.0);
    }
    Step {
        from: text(piece.0),
        to: text(piece.1),
        piece,
        covered_seconds: covered,
        saved_bytes: mean(saved),
        saved_bytes_by_group: gathered.saved,
        cpu_share: mean(gathered.cpu),
        held_bytes: mean(gathered.held),
        merged_pages: known(gathered.merged),
        broken_pages: known(gathered.broken),
        written_pages: known(gathered.written),
    }
}

fn group(bill: GroupBill) -> GroupSummary {
    GroupSummary {
        group: bill.group,
        from: bill.from,
        to: bill.to,
        sum: sum(bill.amounts, bill.levels.saved_bytes, bill.net_bytes),
    }
}

fn sum(amounts: Amounts, saved_bytes: i64, net_bytes: i64) -> ReportSum {
    let gib_hours = amounts.saved_byte_seconds / GIB_HOUR;
    ReportSum {
        amounts,
        saved_bytes,
        net_bytes,
        net_byte_seconds: amounts.net_byte_seconds(),
        cpu_seconds_per_saved_gib_hour: (gib_hours > 0.0).then(|| amounts.cpu_seconds / gib_hours),
    }
}

fn total(groups: &[GroupSummary]) -> ReportSum {
    let mut amounts = Amounts::default();
    let (mut saved_bytes, mut net_bytes) = (0_i64, 0_i64);
    for GroupSummary { sum, .. } in groups {
        amounts.add(&sum.amounts);
        saved_bytes = saved_bytes.saturating_add(sum.saved_bytes);
        net_bytes = net_bytes.saturating_add(sum.net_bytes);
    }
    self::sum(amounts, saved_bytes, net_bytes)
}

impl LedgerReport {
    /// The result in a line.
    pub(super) fn headline(&self) -> String {
        let total = &self.total;
        let price = match total.cpu_seconds_per_saved_gib_hour {
            Some(price) => format!(", {price:.1} s for each GiB h saved"),
            None => String::new(),
        };
        let groups = counted(self.groups.len() as u64, "group", "groups");
        format!(
            "{:.1} h covered, {groups}: {:.3} GiB h saved, {:.3} net of the workers' memory, with {:.1} s of processor time{price}",
            self.covered_seconds / 3600.0,
            total.amounts.saved_byte_seconds / GIB_HOUR,
            total.net_byte_seconds / GIB_HOUR,
            total.amounts.cpu_seconds,
        )
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

fn piece(time_range: TimeRange) -> Piece {
    (seconds(time_range.from), seconds(time_range.to))
}

fn text(seconds: f64) -> String {
    let milliseconds = (seconds * 1e3).round();
    // Times of a calendar have fewer digits.
    #[allow(clippy::cast_possible_truncation)]
    let time = Timestamp::from_millisecond(milliseconds as i64);
    time.map_or_else(|_| seconds.to_string(), written)
}

#[cfg(test)]
pub(super) mod tests;

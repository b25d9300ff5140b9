//! The bill: records of a span, summed by group.
//!
//! # Problem
//! A span begins and ends within records.
//!
//! # Approach
//! A record that is only partly in the span counts in proportion to its time there, as if all of it
//! had come evenly. Levels cannot be split: they are those at the end of a group's last record.
//!
//! # Units
//! As in [`record`](super::record). The table has GiB h: GiB saved or used, times hours.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use uksm_policy::report::{Counters as _, Field};

use super::record::{Amounts, Levels, Record, TimeRange, VERSION, written};
use crate::status::table;

uksm_policy::counters! {
    /// A group of a bill, which is an item of its `groups`.
    pub(crate) struct GroupBill {
        /// The group.
        group: String,
        /// Where its first record in the span begins, or the span does.
        from: String,
        /// Where its last record in the span ends, or the span does.
        to: String,
        /// `saved_byte_seconds` less `worker_byte_seconds`.
        net_byte_seconds: f64,
        /// `saved_bytes` less `worker_bytes`.
        net_bytes: i64,
    }
    with {
        /// The sums.
        amounts: Amounts,
        /// How things stood at the end of its last record.
        levels: Levels,
    }
}

/// The output of `uksm account`: its JSON object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bill {
    /// Version of this form.
    version: u32,
    /// Beginning of the span; null if it has no bound.
    since: Option<String>,
    /// End of the span, exclusive; null if it has no bound.
    until: Option<String>,
    /// The folder of the ledger.
    folder: String,
    /// Places of torn records, which are left out.
    torn: Vec<String>,
    /// The groups that have records in the span, by name.
    groups: Vec<GroupBill>,
}

/// Sums of a span, while records are read.
#[derive(Debug)]
pub(crate) struct SpanSums {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    groups: BTreeMap<String, GroupSum>,
}

#[derive(Debug)]
struct GroupSum {
    within: TimeRange,
    amounts: Amounts,
    levels: Levels,
    /// The end of the record that has these levels.
    levels_of: Timestamp,
}

impl SpanSums {
    /// Sums of no records yet. A record that ends at `until` is in the span, one that begins then
    /// is not.
    pub(crate) fn new(since: Option<Timestamp>, until: Option<Timestamp>) -> SpanSums {
        SpanSums {
            since,
            until,
            groups: BTreeMap::new(),
        }
    }

    /// Adds the part of a record that is in the span.
    pub(crate) fn add(&mut self, record: Record, time_range: TimeRange) {
        let within = TimeRange {
            from: self
                .since
                .map_or(time_range.from, |t| t.max(time_range.from)),
            to: self.until.map_or(time_range.to, |t| t.min(time_range.to)),
        };
        // A record without duration counts if its time is in the span.
        let is_moment = time_range.nanos() == 0 && within == time_range;
        if within.nanos() == 0 && !is_moment {
            return;
        }
        let amounts = match is_moment {
            true => record.amounts,
            false => record.amounts.share(within.nanos(), time_range.nanos()),
        };
        let sum = self.groups.entry(record.group).or_insert_with(|| GroupSum {
            within,
            amounts: Amounts::default(),
            levels: record.levels,
            levels_of: time_range.to,
        });
        sum.amounts.add(&amounts);
        sum.within.from = sum.within.from.min(within.from);
        sum.within.to = sum.within.to.max(within.to);
        if time_range.to >= sum.levels_of {
            (sum.levels, sum.levels_of) = (record.levels, time_range.to);
        }
    }

    /// The bill, of all groups or of this one.
    ///
    /// # Errors
    /// As [`SpanSums::bills`].
    pub(super) fn bill(
        self,
        group: Option<&str>,
        folder: String,
        torn: Vec<String>,
    ) -> Result<Bill, String> {
        let text = |time: Option<Timestamp>| time.map(written);
        let (since, until) = (text(self.since), text(self.until));
        Ok(Bill {
            version: VERSION,
            since,
            until,
            groups: self.bills(group, &folder)?,
            folder,
            torn,
        })
    }

    /// The entries of all groups by name, or of this one only.
    ///
    /// # Errors
    /// The group has no record in the span.
    pub(crate) fn bills(
        mut self,
        group: Option<&str>,
        folder: &str,
    ) -> Result<Vec<GroupBill>, String> {
        if let Some(name) = group {
            if !self.groups.contains_key(name) {
                let names: Vec<&str> = self.groups.keys().map(String::as_str).collect();
                let names = match names.is_empty() {
                    true => "none".to_owned(),
                    false => names.join(", "),
                };
                return Err(format!(
                    "{name}: this group has no record in this span: {folder} has records of {names}"
                ));
            }
            self.groups.retain(|group, _| group == name);
        }
        let groups = self.groups.into_iter().map(|(group, sum)| GroupBill {
            group,
            from: written(sum.within.from),
            to: written(sum.within.to),
            net_byte_seconds: sum.amounts.net_byte_seconds(),
            net_bytes: sum.levels.net_bytes(),
            amounts: sum.amounts,
            levels: sum.levels,
        });
        Ok(groups.collect())
    }
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return write!(f, "no records in {} in this span", self.folder);
        }
        let of = |time: fn(&GroupBill) -> &String| self.groups.iter().map(time);
        // Times in this one form sort in their order.
        let from = self.since.iter().chain(of(|group| &group.from).min());
        let to = self.until.iter().chain(of(|group| &group.to).max());
        if let (Some(from), Some(to)) = (from.clone().next(), to.clone().next()) {
            writeln!(f, "from {from} to {to}")?;
        }
        let head = [
            "group",
            "hours",
            "cpu s",
            "saved GiB h",
            "net GiB h",
            "net MiB",
            "merged",
            "written",
            "broken",
            "freed",
            "frames GiB h",
            "replaced",
            "held GiB h",
        ];
        let rows = self.groups.iter().map(GroupBill::row);
        let rows = std::iter::once(head.map(str::to_owned)).chain(rows);
        table::write(f, &rows.collect::<Vec<_>>())
    }
}

impl GroupBill {
    fn row(&self) -> [String; 13] {
        let amounts = &self.amounts;
        let gib_hours = |byte_seconds: f64| format!("{:.3}", byte_seconds / GIB_HOUR);
        [
            self.group.clone(),
            format!("{:.2}", amounts.seconds / 3600.0),
            format!("{:.2}", amounts.cpu_seconds),
            gib_hours(amounts.saved_byte_seconds),
            gib_hours(self.net_byte_seconds),
            format!("{:.1}", self.net_bytes as f64 / MIB),
            amounts.merged_pages.to_string(),
            amounts.written_pages.to_string(),
            amounts.broken_pages.to_string(),
            amounts.freed_frames.to_string(),
            gib_hours(amounts.frame_byte_seconds),
            amounts.restarts.to_string(),
            gib_hours(amounts.held_byte_seconds),
        ]
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// Byte-seconds of a GiB in an hour.
const GIB_HOUR: f64 = 3600.0 * 1024.0 * MIB;

/// The fields of a bill and of a record, each with its subject.
pub(crate) fn sections() -> [(String, Vec<Field>); 2] {
    [
        (GroupBill::about(), GroupBill::fields()),
        (Record::about(), Record::fields()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A record of 60 s that ends at `end`.
    fn minute(sums: &mut SpanSums, group: &str, end: i64) {
        let mut record = Record {
            group: group.to_owned(),
            ..Record::default()
        };
        record.amounts.seconds = 60.0;
        record.amounts.cpu_seconds = 6.0;
        record.amounts.merged_pages = 600;
        record.amounts.saved_byte_seconds = 60.0 * MIB;
        record.levels.saved_bytes = end;
        let time_range = TimeRange {
            from: at(end - 60),
            to: at(end),
        };
        sums.add(record, time_range);
    }

    fn bill(since: Option<i64>, until: Option<i64>, ends: &[i64]) -> Bill {
        let mut sums = SpanSums::new(since.map(at), until.map(at));
        for &end in ends {
            minute(&mut sums, "web", end);
        }
        sums.bill(None, "/x".to_owned(), vec![]).unwrap()
    }

    #[test]
    fn records_are_summed_and_those_at_the_bounds_count_in_proportion() {
        let whole = bill(None, None, &[1060, 1120, 1180]);
        let group = &whole.groups[0];
        assert_eq!(
            (group.amounts.seconds, group.amounts.cpu_seconds),
            (180.0, 18.0)
        );
        assert_eq!(group.levels.saved_bytes, 1180);
        assert_eq!(group.from, "1970-01-01T00:16:40.000Z");
        let part = bill(Some(1030), Some(1135), &[1060, 1120, 1180]);
        let group = &part.groups[0];
        assert_eq!(group.amounts.seconds, 105.0);
        assert_eq!(group.amounts.merged_pages, 300 + 600 + 150);
        assert_eq!(group.to, part.until.clone().unwrap());
        let within_one = bill(Some(1010), Some(1020), &[1060]);
        assert_eq!(within_one.groups[0].amounts.merged_pages, 100);
    }

    #[test]
    fn adjoining_spans_share_nothing_and_leave_nothing_out() {
        let ends = [1060, 1120, 1180];
        let pages = |since, until| {
            let bill = bill(since, until, &ends);
            let groups = bill.groups.iter();
            groups.map(|group| group.amounts.merged_pages).sum::<u64>()
        };
        for cut in [1000, 1040, 1060, 1120, 1180] {
            assert_eq!(
                pages(None, Some(cut)) + pages(Some(cut), None),
                1800,
                "{cut}"
            );
        }
        assert_eq!(pages(Some(1180), None), 0);
    }

    #[test]
    fn one_group_can_be_asked_for_and_must_be_there() {
        let both = || {
            let mut sums = SpanSums::new(None, None);
            minute(&mut sums, "web", 1060);
            minute(&mut sums, "all", 1060);
            sums
        };
        let bill = both().bill(Some("web"), "/x".to_owned(), vec![]).unwrap();
        assert_eq!(bill.groups.len(), 1);
        let line = both()
            .bill(Some("db"), "/x".to_owned(), vec![])
            .unwrap_err();
        assert_eq!(
            line,
            "db: this group has no record in this span: /x has records of all, web"
        );
    }

    #[test]
    fn a_table_has_hours_and_gib_hours() {
        let text = bill(None, None, &[1060, 1120]).to_string();
        for line in [
            "from 1970-01-01T00:16:40.000Z to 1970-01-01T00:18:40.000Z",
            "web     0.03  12.00        0.000      0.000      0.0    1200        0       0      0         0.000         0       0.000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let none = bill(None, None, &[]).to_string();
        assert_eq!(none, "no records in /x in this span");
        assert!((GIB_HOUR - 3600.0 * f64::from(1 << 30)).abs() < 1.0);
    }

    #[test]
    fn names_in_json_stay() {
        let json = serde_json::to_value(bill(None, None, &[1060])).unwrap();
        for name in ["version", "since", "until", "folder", "torn", "groups"] {
            assert!(json.get(name).is_some(), "{name}");
        }
        let group = json["groups"][0].as_object().unwrap();
        let names = "group from to seconds cpu_seconds merged_pages broken_pages freed_frames \
                     saved_byte_seconds index_byte_seconds frame_byte_seconds restarts saved_bytes \
                     index_bytes frame_bytes held_byte_seconds given_bytes taken_back_bytes held_bytes \
                     written_pages worker_byte_seconds worker_bytes net_byte_seconds net_bytes";
        assert!(
            names
                .split_whitespace()
                .all(|name| group.contains_key(name))
        );
        assert_eq!(json["version"], 1);
    }
}

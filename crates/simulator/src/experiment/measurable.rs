//! The interface of each deduplicator to an experiment.

use std::collections::BTreeMap;

use uksm_policy::command::Nanos;

use crate::peer::{Ksm, Reachability, Xlh};
use crate::run::Driven;
use crate::stopwatch::Steps;
use crate::world::{Deduplicator, Turn};
use crate::{Host, SharingChances, convert};

/// Time between two turns of an idle oracle.
const ORACLE_LOOKS: Nanos = 100_000_000;

/// Queries of a deduplicator beside its turns.
pub(super) trait Measurable: Deduplicator {
    /// Bytes of its own memory.
    fn bytes(&self) -> u64;
    /// Figures of its own at the end.
    fn figures(&self) -> BTreeMap<String, f64>;
    /// From now on notes the first look at a new space.
    fn watch(&mut self, _: &Host) {}
    /// The time of that look, if it is known.
    fn first_look(&self) -> Option<Nanos> {
        None
    }
    /// Pages that it has saved.
    fn saved(&self, host: &mut Host) -> u64 {
        host.saved()
    }
    /// Times of its steps on this machine, if it is no model.
    fn real_steps(&self) -> Option<Steps> {
        None
    }
}

impl Measurable for Driven {
    fn watch(&mut self, host: &Host) {
        self.watch_spaces(host.next_space());
    }

    fn first_look(&self) -> Option<Nanos> {
        Driven::first_look(self)
    }

    fn real_steps(&self) -> Option<Steps> {
        Some(Driven::real_steps(self))
    }

    fn bytes(&self) -> u64 {
        let report = self.engine.report();
        report.index.index_bytes + report.region_memory.region_bytes
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let report = self.engine.report();
        let figures = [
            ("engine_steps", self.steps() as f64),
            ("sampled_pages", report.sampling.pages as f64),
            ("strength_lines", f64::from(report.strength.lines)),
            ("discovery_seconds", report.cpu.discovery_seconds),
        ];
        let hints = report.hints;
        let of_hints = [
            ("hint_seconds", hints.used_seconds),
            ("hinted_pages", hints.sampled_pages as f64),
            ("hints_left_out_pages", hints.left_out_pages as f64),
            ("hints_overwritten", hints.aged_pages as f64),
            ("hints_useless_pages", hints.useless_pages as f64),
            ("hints_lost", hints.lost as f64),
        ];
        // Only if there were any: other experiments have none.
        let of_hints = of_hints.into_iter().filter(|_| hints.taken > 0);
        named(figures.into_iter().chain(of_hints))
    }
}

impl Measurable for Ksm {
    fn bytes(&self) -> u64 {
        Ksm::bytes(self)
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let figures = [
            ("full_scans", self.full_scans() as f64),
            ("scanned_pages", self.scanned() as f64),
        ];
        named(figures.into_iter().chain(found(self.reachability())))
    }
}

impl Measurable for Xlh {
    fn bytes(&self) -> u64 {
        Xlh::bytes(self)
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = self.ksm().figures();
        figures.extend(named([
            ("hinted_pages", self.hinted() as f64),
            ("hints_overwritten", self.overwritten() as f64),
            ("write_faults", self.faults() as f64),
        ]));
        figures
    }
}

/// Merges all equal pages at once, at no cost: its saving is the mergeable memory, not the merged.
#[derive(Debug)]
pub(super) struct Oracle;

impl Deduplicator for Oracle {
    fn turn(&mut self, _: &mut Host, now: Nanos) -> Turn {
        Turn {
            cost: 0,
            next: now + ORACLE_LOOKS,
            ends: None,
        }
    }
}

impl Measurable for Oracle {
    fn bytes(&self) -> u64 {
        0
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    fn saved(&self, host: &mut Host) -> u64 {
        mergeable_pages(host)
    }
}

/// Pages that could be saved now: counted, if the number is not known.
pub(super) fn mergeable_pages(host: &mut Host) -> u64 {
    match host.chances().map(SharingChances::mergeable) {
        Some(pages) => pages,
        None => host.mergeable(),
    }
}

/// The share of the unstable tree that could be found at the ends of scans, if it is a real one
/// (XLH Table 4).
pub(super) fn found(reachability: Reachability) -> impl Iterator<Item = (&'static str, f64)> {
    let percent = |part, whole| 100.0 * convert::ratio(part, whole);
    let Reachability {
        pages,
        found,
        unchanged,
        unchanged_found,
    } = reachability;
    let figures = [
        ("found_percent", percent(found, pages)),
        (
            "found_percent_of_unchanged",
            percent(unchanged_found, unchanged),
        ),
    ];
    figures.into_iter().filter(move |_| pages > 0)
}

pub(super) fn named(
    figures: impl IntoIterator<Item = (&'static str, f64)>,
) -> BTreeMap<String, f64> {
    let figures = figures.into_iter();
    figures
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

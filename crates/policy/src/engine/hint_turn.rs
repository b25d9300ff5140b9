//! Hints are followed: the next spurt, its comparisons at once, addresses in no region, and lost
//! hints.

use super::Engine;
use super::turn::{Action, Turn};
use crate::accounts::payer::Payer;
use crate::command::{PAGE_SIZE, SpaceId};
use crate::hints::{Spurt, Terms};
use crate::ladder::sampling::{Purpose, RegionPick, Selection, Sources, push_run};
use crate::lookup::RegionPage;
use crate::merge::candidates::Candidate;
use crate::merge::matching::PIECE_ROOM;

/// The table of expected file contents may use 1/1024 of followed memory, a quarter of the engine's
/// limit.
const EXPECTED_CONTENTS_DIVISOR: u64 = 1024;

impl Engine {
    /// The next call for hints, if one may be made and has pages to read or compare; `is_spare` if
    /// it is paid from unused time.
    pub(super) fn follow_hints(&mut self, is_spare: bool) -> Option<Action> {
        if !self.hints.is_on() {
            return None;
        }
        let now = self.clock.now();
        let all_merged = self.merge.outcomes().merged;
        self.hints.judge(all_merged, self.accounts.used(), now);
        let terms = Terms {
            is_spare,
            // A page may need a second entry for its partner, and pages that are read need room,
            // too.
            most_expected: self.merge.room().saturating_sub(PIECE_ROOM) / 2,
            bytes: self.ladder.total() * PAGE_SIZE / EXPECTED_CONTENTS_DIVISOR,
            strength: self.hash.strength(),
        };
        let mut from = Sources {
            regions: &mut self.regions,
            spaces: &mut self.spaces,
            lifetimes: &self.lifetimes,
            shortest: self.discovery.shortest(),
        };
        let Spurt {
            mut selection,
            expected,
            unknown,
            ..
        } = self.hints.select(&mut from, terms, now)?;
        for (slot, address) in unknown {
            self.discovery.list_mappings_soon(slot, now);
            self.populate_sparse(slot, address);
        }
        self.merge_expected(&expected, &mut selection);
        match selection.finish() {
            Some(selection) => Some(Turn::Sample.requests(self.read(selection))),
            None => self.merge.is_flush_wanted().then(|| self.fold()),
        }
    }

    /// Memory has appeared in these spaces: their sizes are measured at once, and decide about
    /// lists and reads.
    pub(super) fn on_grown(&mut self, spaces: &[SpaceId]) {
        self.hints.grown(spaces.len());
        for &id in spaces {
            if let Some(slot) = self.spaces.slot(id) {
                self.discovery.measure_soon(slot);
            }
        }
    }

    /// Hints of these spaces were lost: the pages written in them are not known, and are searched
    /// for.
    pub(super) fn on_lost_hints(&mut self, spaces: &[SpaceId]) {
        let now = self.clock.now();
        for &id in spaces {
            let Some(slot) = self.spaces.slot(id) else {
                continue;
            };
            if !self.spaces.get_mut(slot).loses_hints(now) {
                continue;
            }
            self.discovery.measure_soon(slot);
            for &id in self.spaces.get(slot).regions() {
                self.regions[id].expect_writes();
                self.ladder.check_soon(id, &mut self.regions, now);
            }
        }
    }

    /// Queues pages to be merged with their expected contents. Pages without a partner of these
    /// contents are to be read.
    fn merge_expected(&mut self, expected: &[Candidate], selection: &mut Selection) {
        let mut unmet: Vec<RegionPick> = vec![];
        let (mut matching, _) = self.matching();
        matching.payer = Payer::Hints;
        for candidate in expected {
            let RegionPage { region, page } = candidate.place;
            let ticket = candidate.ticket;
            if matching.merge_expected(candidate) {
                continue;
            }
            match unmet.last_mut() {
                Some(run)
                    if (run.region, run.ticket, run.page + run.count) == (region, ticket, page) =>
                {
                    run.count += 1;
                }
                _ => unmet.push(RegionPick {
                    region,
                    page,
                    count: 1,
                    purpose: Purpose::Hint,
                    ticket,
                }),
            }
        }
        if unmet.len() < expected.len() {
            self.merge.flush();
        }
        for pick in unmet {
            push_run(&mut selection.picks, &self.regions, &self.spaces, pick);
        }
    }
}

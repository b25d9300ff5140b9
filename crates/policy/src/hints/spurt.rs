//! A hint spurt: the pages of the newest hints, as one SAMPLE.
//!
//! # Problem
//! A hint names addresses, and what is there may be a region, too young to be looked at, not listed
//! yet, or nothing that may be merged.
//!
//! # Approach
//! Each hint is cut where regions and 2 MiB blocks end. What is in no region is asked for: its mappings are
//! to be listed, and the hint waits for that aside, as it does for a region to be old enough; a
//! few times, then it is dropped.

use super::Hints;
use super::stack::Entry;
use crate::accounts::payer::Payer;
use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::ids::{RegionId, SpaceSlot};
use crate::ladder::sampling::{MOST_RUNS, Purpose, RegionPick, Selection, Sources, push_run};
use crate::params::SECOND;
use crate::region::State;

/// A hint that cannot be followed yet is tried again after so long.
const TRY_AGAIN: Nanos = SECOND / 5;
/// And so often.
const MOST_TRIES: u8 = 4;
/// Hints that wait for that.
const MOST_LATER: usize = 4096;
/// Hints that one spurt looks at: some may lead nowhere.
const MOST_LOOKED_AT: usize = 4096;
/// Pages of a spurt.
const LEAST_PAGES: f64 = 64.0;
const MOST_PAGES: f64 = 4096.0;

/// What the next spurt reads.
pub(crate) struct Spurt {
    /// Its pages.
    pub(crate) selection: Selection,
    /// Addresses that are in no region.
    pub(crate) unknown: Vec<(SpaceSlot, u64)>,
}

/// Where a hint begins.
enum Begins {
    /// In this region, up to this page (numbered from address 0).
    In(RegionId, u64),
    /// In a region that cannot be sampled now, up to this page.
    Closed(State, u64),
    /// In none, up to this page.
    Nowhere(u64),
}

impl Hints {
    /// What the next spurt reads, if one may begin; `is_spare` if it is paid from what nobody else
    /// uses.
    pub(crate) fn select(
        &mut self,
        from: &mut Sources<'_>,
        is_spare: bool,
        now: Nanos,
    ) -> Option<Spurt> {
        while let Some(&(due, entry)) = self.later.front()
            && due <= now
        {
            self.later.pop_front();
            self.push(entry);
        }
        if self.stack.is_empty() || !(is_spare || self.budget.is_ready(now)) {
            return None;
        }
        self.is_spare = is_spare;
        let affordable = convert::float(self.budget.period()) * self.part / self.page_cost;
        let most = convert::count(affordable.clamp(LEAST_PAGES, MOST_PAGES));
        let mut spurt = Spurt {
            selection: Selection::new(0, Payer::Hints),
            unknown: vec![],
        };
        let mut pages = 0;
        for _ in 0..MOST_LOOKED_AT {
            if pages >= most || spurt.selection.picks.len() >= MOST_RUNS {
                break;
            }
            let Some(entry) = self.stack.pop() else {
                break;
            };
            pages += self.follow(entry, most - pages, &mut spurt, from, now);
        }
        spurt.selection.sort();
        Some(spurt)
    }

    /// Reads the first pages of a hint, at most `most`; how many.
    fn follow(
        &mut self,
        mut entry: Entry,
        most: u64,
        spurt: &mut Spurt,
        from: &mut Sources<'_>,
        now: Nanos,
    ) -> u64 {
        let Some(slot) = from.spaces.slot(entry.space) else {
            self.counts.gone_pages += entry.pages();
            return 0;
        };
        let begin = entry.from;
        let mut picked = 0;
        match begins(&entry, slot, from) {
            Begins::In(region, to) => {
                let to = to.min(begin + most);
                let page = convert::narrow(begin - from.regions[region].start() / PAGE_SIZE);
                let held = &from.regions[region];
                let mut pick = RegionPick {
                    region,
                    page,
                    count: convert::narrow(to - begin),
                    purpose: Purpose::Hint,
                    ticket: None,
                };
                if held.is_in_huge_page(page) {
                    if self.worth.was_swept_since(entry.space, begin, entry.at) {
                        entry.from = to;
                        return self.put_back(entry, 0);
                    }
                    // It is split, or not, by what all of it holds.
                    if !self.worth.may_sweep(entry.space, begin, now) {
                        self.try_later(Entry { to, ..entry }, now);
                        entry.from = to;
                        return self.put_back(entry, 0);
                    }
                    (pick.page, pick.count) = held.block_pages(held.block_of(page));
                    pick.purpose = Purpose::Block;
                }
                pick.ticket = Some(self.tickets.give(entry.at));
                push_run(&mut spurt.selection.picks, from, pick);
                picked = u64::from(pick.count);
                self.worth.tried(entry.space, begin, to - begin);
                entry.from = to;
            }
            Begins::Closed(State::Young, to) => {
                let part = Entry { to, ..entry };
                self.try_later(part, now);
                entry.from = to;
            }
            Begins::Closed(_, to) => {
                self.counts.nowhere_pages += to - begin;
                entry.from = to;
            }
            Begins::Nowhere(to) => {
                let part = Entry { to, ..entry };
                if self.try_later(part, now) {
                    spurt.unknown.push((slot, begin * PAGE_SIZE));
                }
                entry.from = to;
            }
        }
        self.put_back(entry, picked)
    }

    /// What is left of a hint goes back; gives `picked`.
    fn put_back(&mut self, entry: Entry, picked: u64) -> u64 {
        if entry.pages() > 0 {
            self.stack.put_back(entry);
        }
        picked
    }

    /// The hint is to be followed later, unless that was tried often enough; whether it is.
    fn try_later(&mut self, mut entry: Entry, now: Nanos) -> bool {
        entry.tries += 1;
        if entry.tries > MOST_TRIES || self.later.len() >= MOST_LATER {
            self.counts.nowhere_pages += entry.pages();
            return false;
        }
        self.later.push_back((now + TRY_AGAIN, entry));
        true
    }
}

/// Where a hint of the space in this slot begins, and how far that goes within its block.
fn begins(entry: &Entry, slot: SpaceSlot, from: &Sources<'_>) -> Begins {
    let address = entry.from * PAGE_SIZE;
    let ids = from.spaces.get(slot).regions();
    let at = ids.partition_point(|&id| from.regions[id].end() <= address);
    let Some((id, region)) = ids.get(at).map(|&id| (id, &from.regions[id])) else {
        return Begins::Nowhere(entry.to);
    };
    if region.start() > address {
        return Begins::Nowhere(entry.to.min(region.start() / PAGE_SIZE));
    }
    let page = convert::narrow(entry.from - region.start() / PAGE_SIZE);
    let (first, count) = region.block_pages(region.block_of(page));
    let block_end = region.address(first) / PAGE_SIZE + u64::from(count);
    let to = entry.to.min(block_end);
    match region.state() {
        State::Ranked => Begins::In(id, to),
        state => Begins::Closed(state, entry.to.min(region.end() / PAGE_SIZE)),
    }
}

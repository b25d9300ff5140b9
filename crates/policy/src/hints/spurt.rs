//! A hint spurt: the pages of the newest hints, as one SAMPLE or FOLD.
//!
//! # Problem
//! A hint names addresses. They may lie in a region, in one that is too young, in one not listed
//! yet, or in memory that may not be merged.
//!
//! # Approach
//! Each hint is cut where regions and 2 MiB blocks end. Its pages are read, or compared at once
//! with the expected contents of their place in files ([`super::expected_contents`]). For pages in
//! no region the mappings are requested, and the hint waits aside for them, as it does for a region
//! to become old enough; after a few tries it is dropped.

use super::Hints;
use super::stack::WaitingHint;
use crate::accounts::payer::Payer;
use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::ids::{RegionId, SpaceSlot};
use crate::ladder::sampling::{MAX_RUNS, Purpose, RegionPick, Selection, Sources, push_run};
use crate::lookup::RegionPage;
use crate::merge::candidates::Candidate;
use crate::params::SECOND;
use crate::region::State;

/// Time after which a hint that cannot be followed yet is tried again.
const RETRY_INTERVAL: Nanos = SECOND / 5;
/// Limit of these tries.
const MAX_TRIES: u8 = 4;
/// Limit of the hints that wait for another try.
const MAX_LATER: usize = 4096;
/// Limit of the hints that one spurt takes: some may lead to no page.
const MAX_LOOKED_AT: usize = 4096;
/// Limits of the pages of a spurt.
const MIN_PAGES: f64 = 256.0;
const MAX_PAGES: f64 = 4096.0;

/// The reads of the next spurt.
pub(crate) struct Spurt {
    /// Its pages.
    pub(crate) selection: Selection,
    /// Pages whose expected contents have a known hash.
    pub(crate) expected: Vec<Candidate>,
    /// Limit of `expected`.
    most_expected: usize,
    /// Addresses that are in no region.
    pub(crate) unknown: Vec<(SpaceSlot, u64)>,
}

/// Conditions of a spurt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// It is paid from unused time.
    pub(crate) is_spare: bool,
    /// Limit of the pages that can be compared with their expected contents.
    pub(crate) most_expected: usize,
    /// Limit of the memory for expected contents, in bytes.
    pub(crate) bytes: u64,
    /// The strength of hashes.
    pub(crate) strength: u16,
}

/// The place where a hint begins.
enum Begins {
    /// In this region.
    In(RegionId),
    /// In a region that cannot be sampled now.
    Closed(State),
    /// In no region.
    Nowhere,
}

impl Spurt {
    /// Adds a run to the pages to read, unless it is empty.
    fn read(&mut self, pick: RegionPick, from: &Sources<'_>) {
        if pick.count > 0 {
            push_run(&mut self.selection.picks, from.regions, from.spaces, pick);
        }
    }

    /// Whether there is no room for another hint.
    fn is_full(&self) -> bool {
        let most = self.most_expected;
        let is_all = most > 0 && self.expected.len() >= most;
        is_all || self.selection.picks.len() >= MAX_RUNS
    }
}

impl Hints {
    /// The reads of the next spurt, if one may begin.
    pub(crate) fn select(
        &mut self,
        from: &mut Sources<'_>,
        terms: Terms,
        now: Nanos,
    ) -> Option<Spurt> {
        while let Some(&(due, entry)) = self.later.front()
            && due <= now
        {
            self.later.pop_front();
            self.push(entry);
        }
        if self.stacks.is_empty() || !(terms.is_spare || self.budget.is_ready(now)) {
            return None;
        }
        self.is_spare = terms.is_spare;
        self.learn_cost();
        self.expected_contents.fit(terms.bytes, terms.strength);
        let period = convert::float(self.budget.period()) * self.part;
        let saved = convert::float(self.budget.saved(now));
        let affordable = period.max(saved) / self.page_cost.each();
        let most = convert::count(affordable.clamp(MIN_PAGES, MAX_PAGES));
        let mut spurt = Spurt {
            selection: Selection::new(0, Payer::Hints),
            expected: vec![],
            most_expected: terms.most_expected,
            unknown: vec![],
        };
        let mut pages = 0;
        for _ in 0..MAX_LOOKED_AT {
            if pages >= most || spurt.is_full() {
                break;
            }
            let Some(entry) = self.stacks.pop() else {
                break;
            };
            pages += self.follow(entry, most - pages, &mut spurt, from, now);
        }
        Some(spurt)
    }

    /// Reads the first pages of a hint, at most `most`; returns their number.
    fn follow(
        &mut self,
        entry: WaitingHint,
        most: u64,
        spurt: &mut Spurt,
        from: &mut Sources<'_>,
        now: Nanos,
    ) -> u64 {
        let Some(slot) = from.spaces.slot(entry.space) else {
            self.counts.gone_pages += entry.pages();
            return 0;
        };
        let (what, mut to) = begins(&entry, slot, from);
        let mut picked = 0;
        match what {
            Begins::In(region) => {
                to = to.min(entry.from + most);
                let part = WaitingHint { to, ..entry };
                if let Some(pick) = self.pick(part, region, from, now) {
                    let pages = self.divide(&part, pick, spurt, from);
                    if pick.purpose == Purpose::Hint {
                        to = part.from + u64::from(pages);
                    }
                    self.block_yields
                        .tried(part.space, part.from, to - part.from);
                    self.file_yields.tried(part.origin, to - part.from);
                    picked = u64::from(pages);
                }
            }
            Begins::Closed(State::Young) => {
                self.try_later(WaitingHint { to, ..entry }, now);
            }
            Begins::Closed(_) => self.counts.nowhere_pages += to - entry.from,
            Begins::Nowhere => {
                if self.try_later(WaitingHint { to, ..entry }, now) {
                    spurt.unknown.push((slot, entry.from * PAGE_SIZE));
                }
            }
        }
        let rest = entry.after(to - entry.from);
        if rest.pages() > 0 {
            self.stacks.put_back(rest);
        }
        picked
    }

    /// Divides pages into those with expected contents and runs to be read. Returns the number of
    /// pages divided, at least one: the others have to wait.
    fn divide(
        &mut self,
        part: &WaitingHint,
        pick: RegionPick,
        spurt: &mut Spurt,
        from: &Sources<'_>,
    ) -> u32 {
        let is_worth = spurt.most_expected > 0 && self.expected_contents.is_worth();
        let file = part
            .file
            .filter(|_| pick.purpose == Purpose::Hint && is_worth);
        let Some(file) = file else {
            spurt.read(pick, from);
            return pick.count;
        };
        let held = &from.regions[pick.region];
        let mut run = RegionPick { count: 0, ..pick };
        let mut pages = 0;
        while pages < pick.count && (pages == 0 || !spurt.is_full()) {
            let page = pick.page + pages;
            let hash = self.expected_contents.hash(file.wrapping_add(pages.into()));
            pages += 1;
            // A merged page that has been overwritten is sampled, to be counted as such.
            let Some(hash) = hash.filter(|_| !held.is_merged(page)) else {
                run.count += 1;
                continue;
            };
            spurt.read(run, from);
            run = RegionPick {
                page: page + 1,
                count: 0,
                ..pick
            };
            spurt.expected.push(Candidate {
                place: RegionPage {
                    region: pick.region,
                    page,
                },
                hash,
                huge: false,
                in_block: false,
                ticket: pick.ticket,
            });
        }
        spurt.read(run, from);
        pages
    }

    /// The read for the part of a hint in one block of a region, if it is read now. All of a block
    /// in huge pages is read, since all its contents decide whether it is split.
    fn pick(
        &mut self,
        part: WaitingHint,
        region: RegionId,
        from: &Sources<'_>,
        now: Nanos,
    ) -> Option<RegionPick> {
        let held = &from.regions[region];
        let page = convert::narrow(part.from - held.start() / PAGE_SIZE);
        let mut pick = RegionPick {
            region,
            page,
            count: convert::narrow(part.pages()),
            purpose: Purpose::Hint,
            ticket: None,
        };
        if held.is_in_huge_page(page) {
            if self
                .block_yields
                .was_swept_since(part.space, part.from, part.at)
            {
                return None;
            }
            if !self.block_yields.may_sweep(part.space, part.from, now) {
                self.try_later(part, now);
                return None;
            }
            (pick.page, pick.count) = held.block_pages(held.block_of(page));
            pick.purpose = Purpose::Block;
        }
        pick.ticket = Some(self.tickets.give(&part));
        Some(pick)
    }

    /// Queues the hint for another try, unless it had enough of them; returns whether it did.
    fn try_later(&mut self, mut entry: WaitingHint, now: Nanos) -> bool {
        entry.tries += 1;
        if entry.tries > MAX_TRIES || self.later.len() >= MAX_LATER {
            self.counts.nowhere_pages += entry.pages();
            return false;
        }
        self.later.push_back((now + RETRY_INTERVAL, entry));
        true
    }
}

/// The place where a hint of the space in this slot begins, and the page up to which the hint is
/// there (numbered from address 0): in a region that can be sampled, to the end of the block.
fn begins(entry: &WaitingHint, slot: SpaceSlot, from: &Sources<'_>) -> (Begins, u64) {
    let address = entry.from * PAGE_SIZE;
    let ids = from.spaces.get(slot).regions();
    let at = ids.partition_point(|&id| from.regions[id].end() <= address);
    let Some((id, region)) = ids.get(at).map(|&id| (id, &from.regions[id])) else {
        return (Begins::Nowhere, entry.to);
    };
    let (what, end) = if region.start() > address {
        (Begins::Nowhere, region.start())
    } else if region.state() == State::Ranked {
        let page = convert::narrow(entry.from - region.start() / PAGE_SIZE);
        let (first, count) = region.block_pages(region.block_of(page));
        (
            Begins::In(id),
            region.address(first) + u64::from(count) * PAGE_SIZE,
        )
    } else {
        (Begins::Closed(region.state()), region.end())
    };
    (what, entry.to.min(end / PAGE_SIZE))
}

//! Hints: pages just touched by I/O are read first (XLH §4).
//!
//! # Problem
//! Most equal pages of virtual machines come from their disks, and many live for minutes only: a
//! scan of all memory in turn finds them too late (XLH §2). The host sees each read and write. But
//! it sees far more of them than it has time to follow, and many fill a buffer that is filled again
//! at once.
//!
//! # Approach
//! Hints are taken at intervals ([`pull_schedule`]) and wait in bounded [`stacks`], one a space,
//! the newest on top. *Hint spurts* take from them in turn, and are paid from a part of the
//! governor's share, `hint_runs : scan_runs`, and from time that the ladder leaves unused. A spurt
//! is one SAMPLE ([`spurt`]): its pages are looked up and indexed like any others, so that of two
//! guests that read the same block the second meets the first. They do not represent the rest of
//! their region and do not count for its duplication estimate.
//!
//! A page at a place of a file that was read before is not sampled, but compared with its
//! expected contents ([`expected_contents`]).
//!
//! If there are more hints than time to follow them, the same parts of files are chosen in all
//! spaces ([`file_sampling`]).
//!
//! Each hint has a [`ticket`], which its pages carry until they are merged. So yield feeds back: in
//! a 2 MiB block whose hints do not pay only some are followed ([`block_yield`]); while there are
//! too many, those of files that do not pay give way ([`file_yield`]); and while hints as a whole
//! pay less than a least yield, or far less than scanning, their part is halved, down to a
//! sixteenth. Without that, hints that never pay could take half of the governor's share for ever.
//!
//! # Units
//! Pages unless stated otherwise. A full stack is worked off in [`FULL_STACK_TIME`].
//!
//! # Source
//! XLH §4.1 to §4.3.

mod block_yield;
mod expected_contents;
mod file_sampling;
mod file_yield;
mod pull_schedule;
mod spurt;
mod stack;
mod stacks;
mod ticket;
mod yield_count;

use std::collections::VecDeque;

use crate::accounts::budget::CpuBudget;
use crate::accounts::page_cost::PageCost;
use crate::accounts::payer::Payer;
use crate::command::{FilePlace, Hint, Nanos, PAGE_SIZE, SpaceId};
use crate::convert;
use crate::ids::Ticket;
use crate::mix::mix;
use crate::params::{MILLISECOND, Params, SECOND};
use crate::report::HintsReport;
use block_yield::BlockYields;
use expected_contents::ExpectedContents;
use file_sampling::{FileSampling, PART_PAGES};
use file_yield::{FileYields, Origin};
use pull_schedule::PullSchedule;
pub(crate) use spurt::{Spurt, Terms};
use stack::WaitingHint;
use stacks::Stacks;
use ticket::Tickets;

/// Time in which a full stack is worked off (XLH §4.2: 15 to 30 s).
const FULL_STACK_TIME: Nanos = 20 * SECOND;
/// Least room of the stack, in pages, at any governor.
const MIN_ROOM: u64 = 4096;
/// Cost of following a page, in nanoseconds, assumed until it is measured.
const FIRST_COST: f64 = 1000.0;
/// Limit of the pages of a hint, a GiB; those beyond are left out.
const MAX_PAGES: u64 = 1 << 18;
/// The part of the governor's share shrinks to this part of its maximum.
const MIN_PART: f64 = 1.0 / 16.0;
/// Pages that must have been followed for their yield to count.
const MIN_FOLLOWED: u64 = 256;
/// Least time over which these pages must have been followed.
const MIN_FOLLOWED_TIME: Nanos = SECOND;
/// One page in this many must be merged for hints to be worth their part.
const MIN_YIELD_DIVISOR: u64 = 64;
/// Weight of a page found by a hint, relative to one found by scanning. A hint's page is merged
/// seconds to minutes earlier, and scanning has a good yield only as long as hints leave that much
/// to it.
const HINT_WEIGHT: f64 = 4.0;

/// The number of a page of a file, the same in all files of this size: of the page at byte address
/// `start`. `None` if pages of the file and of memory do not begin together.
fn file_page(place: FilePlace, start: u64) -> Option<u64> {
    let first = start % PAGE_SIZE;
    (place.offset % PAGE_SIZE == first).then(|| {
        // A part begins where its number is divisible.
        let file = mix(place.file_size) / PART_PAGES * PART_PAGES;
        file.wrapping_add(place.offset / PAGE_SIZE)
    })
}

/// Waiting hints, and the results of others.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The largest part of the governor's share that hints may use; 0 if they are off.
    most: f64,
    part: f64,
    /// The governor's share: hints may also use its unused time.
    governed: f64,
    budget: CpuBudget,
    /// Whether the spurt under way is paid from unused time.
    is_spare: bool,
    pull_schedule: PullSchedule,
    stacks: Stacks,
    file_sampling: FileSampling,
    /// Hints that cannot be followed yet, and the times when they can.
    later: VecDeque<(Nanos, WaitingHint)>,
    tickets: Tickets,
    expected_contents: ExpectedContents,
    block_yields: BlockYields,
    file_yields: FileYields,
    page_cost: PageCost,
    /// Pages followed, and CPU time used, when their cost was learnt last.
    learnt: (u64, Nanos),
    judged: YieldCounts,
    used: Nanos,
    /// Pages merged at the expense of hints: hinted pages, and their partners.
    paid_for: u64,
    counts: HintsReport,
}

/// The result of comparing a page with its expected contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonResult {
    /// The page is merged.
    Equal,
    /// Its contents differ.
    Different,
    /// The page could not be compared now.
    Neither,
}

/// The counts when the yield was last judged.
#[derive(Debug, Clone, Copy, Default)]
struct YieldCounts {
    at: Nanos,
    sampled: u64,
    merged: u64,
    used: Nanos,
    all_merged: u64,
    all_used: Nanos,
}

/// The largest share of a core that hints may use; 0 if they are off.
fn most(params: &Params) -> f64 {
    params.cpu * f64::from(params.hint_runs) / f64::from(params.hint_runs + params.scan_runs)
}

/// The share of a budget, which must be above 0.
fn asked_for(share: f64, params: &Params) -> f64 {
    share.max(params.bottom_cpu / f64::from(params.hint_runs + params.scan_runs))
}

impl Hints {
    /// No hint has come yet.
    pub(crate) fn new(params: &Params) -> Hints {
        let most = most(params);
        // Scanning makes larger calls, after which all activities rest. Hints may use the unused
        // budget of half a round later, so that they get their part of the time and not of the
        // calls.
        let saving = params.global_round() / 2;
        let budget = CpuBudget::new(asked_for(most, params), params.sleep).saving(saving);
        let interval = (params.global_round() / 100).clamp(params.sleep, 200 * MILLISECOND);
        Hints {
            most,
            part: most,
            governed: params.cpu,
            budget,
            is_spare: false,
            pull_schedule: PullSchedule::new(interval),
            stacks: Stacks::new(MIN_ROOM),
            file_sampling: FileSampling::new(),
            later: VecDeque::new(),
            tickets: Tickets::new(),
            expected_contents: ExpectedContents::new(),
            block_yields: BlockYields::new(),
            file_yields: FileYields::default(),
            page_cost: PageCost::new(FIRST_COST, 50.0, 1000.0),
            learnt: (0, 0),
            judged: YieldCounts::default(),
            used: 0,
            paid_for: 0,
            counts: HintsReport::default(),
        }
    }

    /// The governor's share has changed: hints keep the same part of their maximum.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        let now = most(params);
        if self.most > 0.0 {
            self.part *= now / self.most;
            self.budget.set_share(asked_for(self.part, params));
        }
        (self.most, self.governed) = (now, params.cpu);
    }

    /// Whether hints are followed at all.
    pub(crate) fn is_on(&self) -> bool {
        self.most > 0.0
    }

    /// Whether the machine is to be asked for hints now. Taking them is paid from their share, too:
    /// a storm of hints delays nothing else.
    pub(crate) fn is_take_due(&mut self, now: Nanos) -> bool {
        let is_due = self.pull_schedule.is_due(self.stacks.is_empty(), now);
        self.is_on() && is_due && self.budget.is_ready(now)
    }

    /// The time from which hints may end a sleep.
    pub(crate) fn hints_wake_from(&self, now: Nanos) -> Nanos {
        if self.is_on() {
            self.pull_schedule.due_at().max(self.budget.ready_at(now))
        } else {
            Nanos::MAX
        }
    }

    /// A sleep until `until` begins, which hints may end from `hints_wake_from` on.
    pub(crate) fn sleeps(&mut self, until: Nanos, hints_wake_from: Nanos) {
        self.pull_schedule.sleeps(until, hints_wake_from);
    }

    /// A sleep has ended; `hinted` if the machine reported waiting hints.
    pub(crate) fn woken(&mut self, hinted: bool, now: Nanos) {
        self.pull_schedule.woken(hinted, now);
    }

    /// The time at which there is a hint to follow, if there is one.
    pub(crate) fn due_at(&self, now: Nanos) -> Option<Nanos> {
        let later = self.later.front().map(|&(due, _)| due);
        if self.stacks.is_empty() {
            later
        } else {
            Some(now)
        }
    }

    /// Hints came, of which `lost` were lost before they were taken. `followed` pages are followed.
    pub(crate) fn came(
        &mut self,
        hints: &[Hint],
        lost: u64,
        more: bool,
        followed: u64,
        now: Nanos,
    ) {
        self.pull_schedule.end(more, now);
        self.counts.lost += lost;
        let affordable = self.governed * convert::float(FULL_STACK_TIME) / self.page_cost.each();
        let room = convert::count(affordable);
        let room = room.max(MIN_ROOM);
        self.stacks.set_room(room, followed);
        let (stacks, load) = (&self.stacks, self.stacks.load());
        self.file_sampling
            .adapt(load, |load| stacks.heavy(load), now);
        for hint in hints {
            self.counts.taken += 1;
            match self.entry(hint, now) {
                Some(entry) => self.push_chosen(entry),
                None => self.counts.refused += 1,
            }
        }
    }

    /// `spaces` spaces have grown.
    pub(crate) fn grown(&mut self, spaces: usize) {
        self.counts.grown += spaces as u64;
    }

    /// The entry of a hint, if the hint is valid.
    fn entry(&mut self, hint: &Hint, now: Nanos) -> Option<WaitingHint> {
        let most = MAX_PAGES * PAGE_SIZE;
        let end = hint.start.checked_add(hint.length.min(most))?;
        if hint.length > most {
            self.counts.left_out_pages += (hint.length - most) / PAGE_SIZE;
        }
        // Whole pages, with those touched in part: the rest of them may have been filled before.
        let (from, to) = (hint.start / PAGE_SIZE, end.div_ceil(PAGE_SIZE));
        (from < to).then_some(WaitingHint {
            from,
            to,
            space: hint.space,
            at: now,
            file: hint.place.and_then(|place| file_page(place, hint.start)),
            origin: hint
                .place
                .map_or(Origin::UNKNOWN, |place| Origin::new(place, hint.source)),
            tries: 0,
        })
    }

    /// Takes in the chosen parts of a hint: all parts if it is of no file.
    fn push_chosen(&mut self, entry: WaitingHint) {
        let pays = self.file_yields.pays(entry.origin);
        let most = self.file_sampling.of(entry.space, pays);
        let Some(file) = entry.file.filter(|_| most < u64::MAX) else {
            return self.push(entry);
        };
        let mut rest = WaitingHint {
            file: Some(file),
            ..entry
        };
        while rest.pages() > 0 {
            let page = rest.file.unwrap_or(0);
            let pages = rest.pages().min(PART_PAGES - page % PART_PAGES);
            if FileSampling::is_chosen(page, most) {
                let to = rest.from + pages;
                self.push(WaitingHint { to, ..rest });
            } else {
                self.counts.left_out_pages += pages;
            }
            rest = rest.after(pages);
        }
    }

    fn push(&mut self, entry: WaitingHint) {
        if !self.block_yields.is_worth(entry.space, entry.from) {
            self.counts.useless_pages += entry.pages();
            return;
        }
        let pays = self.file_yields.pays(entry.origin);
        self.file_sampling.chose(entry.pages(), pays);
        let pushed = self.stacks.push(entry);
        self.counts.again_pages += pushed.again;
        self.counts.aged_pages += pushed.overwritten;
    }

    /// Taking or following hints has cost this much.
    pub(crate) fn charge(&mut self, now: Nanos, cost: Nanos) {
        self.pull_schedule.charge(cost);
        self.used += cost;
        if !self.is_spare {
            self.budget.charge(now, cost);
        }
    }

    /// Hints are taken now, paid from their share.
    pub(crate) fn taking(&mut self) {
        self.pull_schedule.begin();
        self.is_spare = false;
    }

    /// `pages` were read for hints.
    pub(crate) fn sampled(&mut self, pages: u64) {
        self.counts.sampled_pages += pages;
    }

    /// Pages read for hints, or compared with their expected contents.
    fn followed(&self) -> u64 {
        self.counts.sampled_pages + self.counts.expected_pages
    }

    /// Learns the cost of following and merging a page from those followed since the last time.
    fn learn_cost(&mut self) {
        let (pages, used) = (self.followed(), self.used);
        let (pages_before, used_before) = std::mem::replace(&mut self.learnt, (pages, used));
        self.page_cost
            .measured(pages - pages_before, used - used_before);
    }

    /// A page that was read for a hint has this hash.
    pub(crate) fn note(&mut self, ticket: Ticket, address: u64, hash: u64) {
        if let Some(place) = self.tickets.place(ticket, address / PAGE_SIZE) {
            self.expected_contents.note(place, hash);
        }
    }

    /// A page at this address was compared with the expected contents of its place in files. If it
    /// is not merged now it is to be sampled.
    pub(crate) fn compared(
        &mut self,
        ticket: Ticket,
        at: (SpaceId, u64),
        outcome: ComparisonResult,
    ) {
        self.counts.expected_pages += 1;
        if outcome != ComparisonResult::Neither {
            self.expected_contents
                .tried(outcome == ComparisonResult::Equal);
        }
        let (space, page) = (at.0, at.1 / PAGE_SIZE);
        let place = self.tickets.place(ticket, page);
        let Some(place) = place.filter(|_| outcome != ComparisonResult::Equal) else {
            return;
        };
        self.expected_contents.forget(place);
        self.push(WaitingHint {
            from: page,
            to: page + 1,
            space,
            at: self.tickets.taken(ticket),
            file: Some(place),
            origin: self.tickets.origin(ticket),
            tries: 0,
        });
    }

    /// A page at this address was merged: by a hint, if it has a ticket. A hint may have indexed
    /// its partner, so each merge counts for the hints of its block.
    pub(crate) fn merged(
        &mut self,
        (ticket, payer): (Option<Ticket>, Payer),
        (space, address): (SpaceId, u64),
        now: Nanos,
    ) {
        self.block_yields.paid(space, address / PAGE_SIZE);
        self.paid_for += u64::from(payer == Payer::Hints);
        let Some(ticket) = ticket else {
            return;
        };
        self.file_yields.paid(self.tickets.origin(ticket));
        self.counts.merged_pages += 1;
        let took = now.saturating_sub(self.tickets.taken(ticket));
        let row = match took {
            0..SECOND if took <= SECOND / 10 => &mut self.counts.merged_within_100_ms,
            0..=SECOND => &mut self.counts.merged_within_1_s,
            took if took <= 10 * SECOND => &mut self.counts.merged_within_10_s,
            _ => &mut self.counts.merged_after_10_s,
        };
        *row += 1;
    }

    /// A merged page at this address was overwritten before it was read for a hint: I/O fills it
    /// faster than merging pays.
    pub(crate) fn broken(&mut self, ticket: Ticket, (space, address): (SpaceId, u64)) {
        self.block_yields.broken(space, address / PAGE_SIZE);
        self.file_yields.broken(self.tickets.origin(ticket));
    }

    /// Compares the yield of hints with that of scanning: hints and scanning together have merged
    /// `all_merged` pages in `all_used`.
    pub(crate) fn judge(&mut self, all_merged: u64, all_used: Nanos, now: Nanos) {
        let before = self.judged;
        let followed = self.followed();
        let sampled = followed - before.sampled;
        if sampled < MIN_FOLLOWED || now < before.at + MIN_FOLLOWED_TIME {
            return;
        }
        let merged = self.paid_for - before.merged;
        let used = self.used - before.used;
        let by_scanning = (all_merged - before.all_merged).saturating_sub(merged);
        let scanned_for = (all_used - before.all_used).saturating_sub(used);
        self.judged = YieldCounts {
            at: now,
            sampled: followed,
            merged: self.paid_for,
            used: self.used,
            all_merged,
            all_used,
        };
        let hinted = convert::ratio(merged, used.max(1));
        let scanned = convert::ratio(by_scanning, scanned_for.max(1));
        let is_good = merged * MIN_YIELD_DIVISOR >= sampled && hinted * HINT_WEIGHT >= scanned;
        let part = self.part * if is_good { 2.0 } else { 0.5 };
        self.part = part.clamp(self.most * MIN_PART, self.most);
        self.budget.set_share(self.part);
    }

    /// Memory used by hints, in bytes: none before the first.
    fn bytes(&self) -> usize {
        let later = self.later.capacity() * size_of::<(Nanos, WaitingHint)>();
        self.stacks.bytes()
            + later
            + self.tickets.bytes()
            + self.expected_contents.bytes()
            + self.block_yields.bytes()
            + self.file_yields.bytes()
    }

    /// The counts.
    pub(crate) fn report(&self) -> HintsReport {
        HintsReport {
            waiting_pages: self.stacks.pages(),
            part_share: self.part,
            hint_bytes: self.bytes() as u64,
            used_seconds: convert::seconds(self.used),
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests;

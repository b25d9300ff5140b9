//! When to list processes, sizes and mappings.
//!
//! # Problem
//! A host has thousands of processes, most of which do not change, and the mapping list of a
//! process costs more than sampling it. New memory must be found within a second nevertheless, even
//! where thousands of processes start at once. One space may have 60,000 mappings; listing them
//! costs more than all sampling.
//!
//! # Approach
//! The machine is asked for three things, each when it is due and its budget allows it. The
//! *process list* finds spaces. *Sizes* show cheaply which spaces changed
//! ([`sizes`](super::sizes)). *Mapping lists* find the mappings of a space; they wait in three
//! queues:
//! - first lists, newest space first: a newcomer never waits for older spaces;
//! - lists of spaces that changed, in the order of their due times;
//! - lists of calm spaces. If the machine receives process events, these lists only catch changes
//!   that the sizes missed, and are rare. If it receives the sizes of spaces as well, because a
//!   supervisor watches the spaces of many groups, calm spaces are asked about only once in
//!   [`WATCHED`], from the share of repairs. If it polls, a space that changed counts as changing
//!   for twice the time since its change before, and the interval of any other doubles.
//!
//! Each kind has a guaranteed part of the governor's share; first lists, and processes that wait to
//! be examined, also get unused time ([`Discovery::next_spare`]). A space with an expensive list
//! rests for long after it, so that it does not use up the share of the others.
//!
//! # Units
//! The longest interval is 45 % of a round, and a round where calm slices are due together. An
//! event ends a sleep at most once in the shortest interval, a sixteenth of a round: a newcomer
//! need not wait for the next list, and an idle host is not woken for nothing.
//!
//! # Source
//! UKSM §5.1; design: region discovery is part of the budget.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::sizes::{SizeChange, Sizes, WATCHED};
use crate::accounts::budget::CpuBudget;
use crate::accounts::payer::{List, Payer};
use crate::command::{EventSource, Nanos, SpaceSize};
use crate::convert;
use crate::frugal_vec;
use crate::ids::SpaceSlot;
use crate::params::{MILLISECOND, Params, SECOND};

/// The longest time for which a space counts as changing after a change.
const MAX_CHANGING: Nanos = 5 * SECOND;
/// Time between two lists of a calm space, if the machine receives events. The budget makes it
/// longer.
const REPAIR_INTERVAL: Nanos = 30 * SECOND;
/// A space rests after its mapping list for this many times the cost of the list, but not longer
/// than the maximum. A list of 262,144 mappings takes an eighth of a second, and a list read while
/// the machine stands still takes as long as that.
const REST_FACTOR: Nanos = 64;
const MAX_REST: Nanos = 30 * SECOND;

/// What to ask the machine for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discover {
    /// The process list.
    Processes,
    /// The sizes of the spaces of [`Discovery::asked`].
    Sizes,
    /// The mappings of the space in a slot.
    Mappings(SpaceSlot),
}

/// The queue of the next mapping list of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// It was never listed.
    First,
    /// It changed, or changes.
    Changed,
    Calm,
}

/// The schedule of the mapping lists of one space.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    queue: Queue,
    born: Nanos,
    due: Nanos,
    interval: Nanos,
    /// Time of the last change, and its distance to the change before.
    changed: Nanos,
    gap: Nanos,
    /// Time of the last noticed change: only a list that was read later shows it.
    noticed: Nanos,
    /// Before this time it is not listed again.
    rests_until: Nanos,
}

/// The schedule of process lists.
#[derive(Debug, Clone, Copy)]
struct ProcessSchedule {
    /// When they were listed last.
    listed: Nanos,
    due: Nanos,
    interval: Nanos,
    /// Whether processes wait to be examined.
    more: bool,
    /// Whether an event or an observation is known that the list will show.
    is_awaited: bool,
}

/// The schedules and budgets of all lists.
#[derive(Debug)]
pub(crate) struct Discovery {
    shortest: Nanos,
    longest: Nanos,
    event_source: EventSource,
    processes: ProcessSchedule,
    sizes: Sizes,
    /// By slot.
    schedules: Vec<Schedule>,
    first: BTreeSet<(Reverse<Nanos>, SpaceSlot)>,
    changed: BTreeSet<(Nanos, SpaceSlot)>,
    calm: BTreeSet<(Nanos, SpaceSlot)>,
    /// By [`List`].
    budgets: [CpuBudget; List::COUNT],
    newcomers: CpuBudget,
    /// The budget of the last list that was asked for.
    asked_for: List,
}

/// Share of a core of each list, in the order of [`List`]; the use of spare time is not bounded
/// here.
fn shares(params: &Params) -> [f64; List::COUNT] {
    let calm = params.bottom_cpu / 2.0;
    let part = |part: f64| (params.cpu / part).max(calm);
    [
        // With the bottom level's share, a busy host was searched once a minute.
        part(100.0),
        part(20.0),
        part(40.0),
        part(10.0),
        part(20.0),
        calm,
        calm / 4.0,
        1.0,
    ]
}

fn newcomers_share(params: &Params) -> f64 {
    (params.cpu / 20.0).max(params.bottom_cpu / 2.0)
}

impl Discovery {
    /// The governor's share has changed.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        for (budget, share) in self.budgets.iter_mut().zip(shares(params)) {
            budget.set_share(share);
        }
        self.newcomers.set_share(newcomers_share(params));
    }

    /// No spaces; the process list is due.
    pub(crate) fn new(params: &Params) -> Discovery {
        let round = params.global_round();
        let longest =
            (convert::nanos(convert::float(round) * 0.45)).clamp(20 * MILLISECOND, 10 * SECOND);
        let shortest = (round / 16).clamp(10 * MILLISECOND, longest);
        // Lists are few and expensive: each is repaid at once, not after a sleep's worth of debt.
        let budget = |share: f64| CpuBudget::new(share, MILLISECOND);
        Discovery {
            shortest,
            longest,
            event_source: EventSource::Nothing,
            processes: ProcessSchedule {
                listed: 0,
                due: 0,
                interval: shortest,
                more: false,
                is_awaited: false,
            },
            sizes: Sizes::new(shortest, longest),
            schedules: vec![],
            first: BTreeSet::new(),
            changed: BTreeSet::new(),
            calm: BTreeSet::new(),
            budgets: shares(params).map(budget),
            newcomers: budget(newcomers_share(params)),
            asked_for: List::Search,
        }
    }

    /// Bytes that the times and sizes of spaces take.
    pub(crate) fn bytes(&self) -> usize {
        self.schedules.capacity() * size_of::<Schedule>() + self.sizes.bytes()
    }

    /// The shortest interval between two lists of one space.
    pub(crate) fn shortest(&self) -> Nanos {
        self.shortest
    }

    /// Adds the space of a process born at this time, in this slot: its mappings are due.
    pub(crate) fn add(&mut self, slot: SpaceSlot, born: Nanos, now: Nanos) {
        let schedule = Schedule {
            queue: Queue::First,
            born,
            due: now,
            interval: self.shortest,
            changed: now,
            gap: 0,
            noticed: 0,
            rests_until: 0,
        };
        if slot.index() == self.schedules.len() {
            frugal_vec::push(&mut self.schedules, schedule);
        } else {
            self.schedules[slot.index()] = schedule;
        }
        self.first.insert((Reverse(born), slot));
        self.sizes.add(slot, now);
    }

    /// The space in this slot is gone.
    pub(crate) fn remove(&mut self, slot: SpaceSlot) {
        self.take_out(slot);
        self.sizes.remove(slot);
    }

    /// What to ask for now, if anything is due and within its budget.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Discover> {
        let by = self.processes_payer();
        if now >= self.processes.due && self.may(by, now) {
            return self.ask(by, Discover::Processes);
        }
        let by = self.sizes_payer();
        if self.sizes.due_at() <= now && self.may(by, now) {
            self.sizes.choose(now);
            return self.ask(by, Discover::Sizes);
        }
        if let Some(&(_, slot)) = self.first.first()
            && self.may(List::First, now)
        {
            return self.ask(List::First, Discover::Mappings(slot));
        }
        let is_due = |&&(due, _): &&(Nanos, SpaceSlot)| due <= now;
        if let Some(&(_, slot)) = self.changed.first().filter(is_due)
            && self.may(List::Changed, now)
        {
            return self.ask(List::Changed, Discover::Mappings(slot));
        }
        let by = self.calm_payer();
        if let Some(&(_, slot)) = self.calm.first().filter(is_due)
            && self.may(by, now)
        {
            return self.ask(by, Discover::Mappings(slot));
        }
        None
    }

    /// What to ask for in spare time: processes that wait to be examined, and first lists. Only the
    /// governor's share bounds them then, not their own.
    pub(crate) fn next_spare(&mut self) -> Option<Discover> {
        if self.processes.more {
            return self.ask(List::Spare, Discover::Processes);
        }
        let &(_, slot) = self.first.first()?;
        self.ask(List::Spare, Discover::Mappings(slot))
    }

    /// The payer of the last result of [`Discovery::next`] or [`Discovery::next_spare`].
    pub(crate) fn payer(&self) -> Payer {
        Payer::List(self.asked_for)
    }

    /// The earliest time at which [`Discovery::next`] or [`Discovery::next_spare`] may have a
    /// result.
    pub(crate) fn due_at(&self, now: Nanos) -> Nanos {
        if self.processes.more || !self.first.is_empty() {
            return now;
        }
        let at = |list: List, due: Nanos| due.max(self.budgets[list as usize].ready_at(now));
        let head = |queue: &BTreeSet<(Nanos, SpaceSlot)>, list: List| {
            queue.first().map(|&(due, _)| at(list, due))
        };
        let processes = at(self.processes_payer(), self.processes.due);
        let lists = [
            head(&self.changed, List::Changed),
            head(&self.calm, self.calm_payer()),
        ];
        lists
            .into_iter()
            .flatten()
            .fold(processes, Nanos::min)
            .min(at(self.sizes_payer(), self.sizes.due_at()))
            .max(now)
    }

    /// Books the cost of a list.
    pub(crate) fn charge(&mut self, list: List, now: Nanos, cost: Nanos) {
        self.budgets[list as usize].charge(now, cost);
    }

    /// Books the cost of first samples of new regions, which have their own budget, so that lists
    /// cannot delay them.
    pub(crate) fn charge_newcomers(&mut self, now: Nanos, cost: Nanos) {
        self.newcomers.charge(now, cost);
    }

    /// Whether new regions may be sampled.
    pub(crate) fn may_sample_newcomers(&mut self, now: Nanos) -> bool {
        self.newcomers.is_ready(now)
    }

    /// The time from which new regions may be sampled.
    pub(crate) fn newcomers_at(&self, now: Nanos) -> Nanos {
        self.newcomers.ready_at(now)
    }

    /// Processor time used for all lists and first samples.
    pub(crate) fn used(&self) -> Nanos {
        let lists: Nanos = self.budgets.iter().map(CpuBudget::used).sum();
        lists + self.newcomers.used()
    }

    /// The process list came back; `changed` if spaces came or went, `more` if some processes still
    /// wait to be examined.
    pub(crate) fn processes_listed(
        &mut self,
        changed: bool,
        more: bool,
        event_source: EventSource,
        now: Nanos,
    ) {
        self.event_source = event_source;
        self.sizes.are_watched(event_source == EventSource::Spaces);
        let interval = self.after(self.processes.interval, changed);
        let due = match (more, event_source) {
            (true, _) => now,
            (false, EventSource::Spaces) => self.sizes.watched_after(now),
            (false, EventSource::Processes) => self.sizes.due_after(now, interval),
            (false, EventSource::Nothing) => now + interval,
        };
        self.processes = ProcessSchedule {
            listed: now,
            due,
            interval,
            more,
            is_awaited: false,
        };
    }

    /// The time from which an event is worth a process list.
    pub(crate) fn events_wake_from(&self, now: Nanos) -> Nanos {
        let ready = self.budgets[List::Events as usize].ready_at(now);
        ready.max(self.processes.listed + self.shortest)
    }

    /// The machine received an event.
    pub(crate) fn events_arrived(&mut self, now: Nanos) {
        let soon = now.max(self.processes.listed + self.shortest);
        self.processes.due = self.processes.due.min(soon);
        self.processes.is_awaited = true;
    }

    /// The slots of the spaces that are being measured.
    pub(crate) fn asked(&self) -> &[SpaceSlot] {
        self.sizes.asked()
    }

    /// Memory appears in the space: it is measured at once.
    pub(crate) fn measure_soon(&mut self, slot: SpaceSlot) {
        self.sizes.ask_soon(slot);
    }

    /// Of the spaces whose sizes came back, this one has clearly more or fewer pages than before:
    /// it is measured soon again, because the change may go on.
    pub(crate) fn resized(&mut self, slot: SpaceSlot) {
        self.sizes.resized(slot);
    }

    /// The sizes came back, in the order of [`Discovery::asked`]: spaces of another size than
    /// before are listed soon.
    pub(crate) fn measured(&mut self, sizes: &[SpaceSize], now: Nanos) {
        for (at, size) in sizes.iter().enumerate() {
            let slot = self.sizes.asked()[at];
            if size.gone {
                self.list_processes_soon(now);
            }
            let is_listed = self.schedules[slot.index()].queue != Queue::First;
            match self.sizes.measured(slot, size) {
                // What changed between its first list and now is unknown.
                SizeChange::Unknown if is_listed => self.list_mappings_soon(slot, now),
                SizeChange::Changed => self.list_mappings_soon(slot, now),
                SizeChange::Unknown | SizeChange::Same => {}
            }
        }
        self.sizes.finish(now);
    }

    /// The mapping list of a space came back, as it was at `read_at`; `changed` if it differs from
    /// the one before. It took `cost`.
    pub(crate) fn mappings_listed(
        &mut self,
        slot: SpaceSlot,
        changed: bool,
        (read_at, cost): (Nanos, Nanos),
        now: Nanos,
    ) {
        let interval = self.after(self.schedules[slot.index()].interval, changed);
        let space = &mut self.schedules[slot.index()];
        space.interval = interval;
        if changed {
            space.gap = now - std::mem::replace(&mut space.changed, now);
        }
        space.rests_until = now + (cost * REST_FACTOR).min(MAX_REST);
        let is_changing = now - space.changed <= (2 * space.gap).min(MAX_CHANGING);
        let (queue, due) = if read_at < space.noticed {
            // A list that the machine had cached does not show the noticed change.
            (Queue::Changed, now + interval)
        } else if self.event_source == EventSource::Spaces {
            (Queue::Calm, now + WATCHED)
        } else if self.event_source == EventSource::Processes {
            (Queue::Calm, now + REPAIR_INTERVAL)
        } else if is_changing {
            (Queue::Changed, now + interval)
        } else {
            (Queue::Calm, now + interval)
        };
        self.put(slot, queue, due);
    }

    /// The mapping list of a space could not be read: it is tried again after twice the time.
    pub(crate) fn mappings_unread(&mut self, slot: SpaceSlot, now: Nanos) {
        let interval = self.after(self.schedules[slot.index()].interval, false);
        let space = &mut self.schedules[slot.index()];
        space.interval = interval;
        let queue = match space.queue {
            Queue::First => Queue::Changed,
            queue => queue,
        };
        self.put(slot, queue, now + interval);
    }

    /// The space differs from its last mapping list.
    pub(crate) fn list_mappings_soon(&mut self, slot: SpaceSlot, now: Nanos) {
        let space = &mut self.schedules[slot.index()];
        space.noticed = now;
        space.interval = space.interval.min(SECOND);
        match space.queue {
            Queue::First => {}
            Queue::Changed if space.due <= now => {}
            Queue::Changed | Queue::Calm => self.put(slot, Queue::Changed, now),
        }
    }

    /// A process seems to be gone.
    pub(crate) fn list_processes_soon(&mut self, now: Nanos) {
        self.processes.due = self.processes.due.min(now + self.shortest);
        self.processes.is_awaited = true;
    }

    /// The budget that pays for a process list.
    fn processes_payer(&self) -> List {
        let is_repair = self.event_source == EventSource::Spaces && !self.processes.is_awaited;
        if is_repair && !self.processes.more {
            List::Repair
        } else if self.event_source != EventSource::Nothing || self.processes.more {
            List::Events
        } else {
            List::Search
        }
    }

    /// The budget that pays for sizes.
    fn sizes_payer(&self) -> List {
        if self.event_source == EventSource::Spaces && self.sizes.is_calm() {
            List::Repair
        } else {
            List::Sizes
        }
    }

    /// The budget that pays for the list of a calm space.
    fn calm_payer(&self) -> List {
        if self.event_source == EventSource::Nothing {
            List::Calm
        } else {
            List::Repair
        }
    }

    fn may(&mut self, list: List, now: Nanos) -> bool {
        self.budgets[list as usize].is_ready(now)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the answer of those who call it")]
    fn ask(&mut self, list: List, what: Discover) -> Option<Discover> {
        self.asked_for = list;
        Some(what)
    }

    /// Puts the next list of a space into a queue, in which it is due at this time, unless the
    /// space rests.
    fn put(&mut self, slot: SpaceSlot, queue: Queue, due: Nanos) {
        self.take_out(slot);
        let space = &mut self.schedules[slot.index()];
        space.queue = queue;
        space.due = due.max(space.rests_until);
        let entry = (space.due, slot);
        match queue {
            Queue::First => self.first.insert((Reverse(space.born), slot)),
            Queue::Changed => self.changed.insert(entry),
            Queue::Calm => self.calm.insert(entry),
        };
    }

    fn take_out(&mut self, slot: SpaceSlot) {
        let space = &self.schedules[slot.index()];
        let entry = (space.due, slot);
        match space.queue {
            Queue::First => self.first.remove(&(Reverse(space.born), slot)),
            Queue::Changed => self.changed.remove(&entry),
            Queue::Calm => self.calm.remove(&entry),
        };
    }

    fn after(&self, interval: Nanos, changed: bool) -> Nanos {
        if changed {
            self.shortest
        } else {
            (interval * 2).min(self.longest)
        }
    }
}

#[cfg(test)]
mod tests;

//! When to list processes and mappings again.
//!
//! # Problem
//! Processes and mappings come without notice. Listing often costs time when nothing changes;
//! listing seldom misses what should be merged. One space may have 60,000 mappings, whose list
//! costs more than all sampling.
//!
//! # Approach
//! The process list finds spaces, a mapping list finds the mappings of one. Each has an interval
//! that doubles while nothing changes and falls back when something does. Lists of what is calm are
//! paid from half the bottom level's share each; lists of what changes from a twentieth of the
//! governor's, and the first samples of new regions from another twentieth. A space that changed
//! counts as changing for twice the time since its change before, so that what comes and goes is
//! not missed. A list that costs much is thereby repeated seldom, however short its interval.
//!
//! # Units
//! The longest interval is 45 % of a round: under governor full a new region is seen within 0.9 s
//! if the budget allows.
//!
//! # Source
//! UKSM §5.1; design: region discovery is part of the budget.

use std::collections::BTreeSet;

use crate::accounts::budget::CpuBudget;
use crate::accounts::payer::Payer;
use crate::command::Nanos;
use crate::convert;
use crate::ids::SpaceSlot;
use crate::params::{MILLISECOND, Params, SECOND};

/// For so long at most a space counts as changing after a change.
const LONGEST_CHANGING: Nanos = 5 * SECOND;
/// Spaces looked at to find one that is due and may be paid for.
const LOOKAHEAD: usize = 64;

/// What is to be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discover {
    /// Which processes there are.
    Processes,
    /// The mappings of the space in a slot.
    Mappings(SpaceSlot),
}

/// When the mappings of one space are listed.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    due: Nanos,
    interval: Nanos,
    changing: bool,
    /// When it last changed, and how long after the time before.
    changed: Nanos,
    gap: Nanos,
}

/// The times of all lists, and what they may cost.
#[derive(Debug)]
pub(crate) struct Discovery {
    schedules: Vec<Schedule>,
    queue: BTreeSet<(Nanos, SpaceSlot)>,
    shortest: Nanos,
    longest: Nanos,
    processes_due: Nanos,
    processes_interval: Nanos,
    processes: CpuBudget,
    calm: CpuBudget,
    changing: CpuBudget,
    newcomers: CpuBudget,
    /// Whether the last mapping list that was asked for is of a space that changes.
    is_changing_listed: bool,
}

impl Discovery {
    /// No space is known, and the process list is due.
    pub(crate) fn new(params: &Params) -> Discovery {
        let round = params.global_round();
        let longest =
            (convert::nanos(convert::float(round) * 0.45)).clamp(20 * MILLISECOND, 10 * SECOND);
        let shortest = (round / 16).clamp(10 * MILLISECOND, longest);
        let calm = params.bottom_cpu / 2.0;
        // Lists are few and dear: each is repaid at once, not after a sleep's worth of debt.
        let budget = |share| CpuBudget::new(share, MILLISECOND);
        let changing = (params.cpu / 20.0).max(calm);
        Discovery {
            schedules: vec![],
            queue: BTreeSet::new(),
            shortest,
            longest,
            processes_due: 0,
            processes_interval: shortest,
            processes: budget(calm),
            calm: budget(calm),
            changing: budget(changing),
            newcomers: budget(changing),
            is_changing_listed: false,
        }
    }

    /// The shortest interval between two lists of one space.
    pub(crate) fn shortest(&self) -> Nanos {
        self.shortest
    }

    /// A space came into this slot: its mappings are due.
    pub(crate) fn add(&mut self, slot: SpaceSlot, now: Nanos) {
        let schedule = Schedule {
            due: now,
            interval: self.shortest,
            changing: true,
            changed: now,
            gap: 0,
        };
        if slot.index() == self.schedules.len() {
            self.schedules.push(schedule);
        } else {
            self.schedules[slot.index()] = schedule;
        }
        self.queue.insert((now, slot));
    }

    /// The space in this slot went.
    pub(crate) fn remove(&mut self, slot: SpaceSlot) {
        let due = self.schedules[slot.index()].due;
        self.queue.remove(&(due, slot));
    }

    /// What to list now, if anything is due and may be paid for.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Discover> {
        if now >= self.processes_due && self.processes.is_ready(now) {
            return Some(Discover::Processes);
        }
        // What changes is due first, and the queue is short then; calm spaces wait their turn.
        let changing_ready = self.changing.is_ready(now);
        let calm_ready = self.calm.is_ready(now);
        if !changing_ready && !calm_ready {
            return None;
        }
        let slot = self
            .queue
            .range(..(now + 1, SpaceSlot(0)))
            .take(LOOKAHEAD)
            .map(|&(_, slot)| slot)
            .find(|slot| {
                if self.schedules[slot.index()].changing {
                    changing_ready
                } else {
                    calm_ready
                }
            })?;
        self.is_changing_listed = self.schedules[slot.index()].changing;
        Some(Discover::Mappings(slot))
    }

    /// Who pays for a list that [`Discovery::next`] gave last.
    pub(crate) fn payer_of(&self, list: Discover) -> Payer {
        match list {
            Discover::Processes => Payer::Processes,
            Discover::Mappings(_) if self.is_changing_listed => Payer::Changing,
            Discover::Mappings(_) => Payer::Calm,
        }
    }

    /// When [`Discovery::next`] may have something.
    pub(crate) fn due_at(&self, now: Nanos) -> Nanos {
        let processes = self.processes_due.max(self.processes.ready_at(now));
        let mappings = self.queue.iter().take(LOOKAHEAD).map(|&(due, slot)| {
            let budget = if self.schedules[slot.index()].changing {
                &self.changing
            } else {
                &self.calm
            };
            due.max(budget.ready_at(now))
        });
        mappings
            .min()
            .map_or(processes, |mappings| mappings.min(processes))
            .max(now)
    }

    /// Books the cost of a list, or of the first samples of new regions: lists must not keep them
    /// from those.
    ///
    /// # Panics
    /// If another share pays.
    pub(crate) fn charge(&mut self, payer: Payer, now: Nanos, cost: Nanos) {
        let budget = match payer {
            Payer::Processes => &mut self.processes,
            Payer::Changing => &mut self.changing,
            Payer::Calm => &mut self.calm,
            Payer::Newcomers => &mut self.newcomers,
            other => unreachable!("{other:?} is not paid for here"),
        };
        budget.charge(now, cost);
    }

    /// Whether new regions may be sampled.
    pub(crate) fn may_sample_newcomers(&mut self, now: Nanos) -> bool {
        self.newcomers.is_ready(now)
    }

    /// From when on new regions may be sampled.
    pub(crate) fn newcomers_at(&self, now: Nanos) -> Nanos {
        self.newcomers.ready_at(now)
    }

    /// Processor time used for all lists and first samples.
    pub(crate) fn used(&self) -> Nanos {
        self.processes.used() + self.changing.used() + self.calm.used() + self.newcomers.used()
    }

    /// The process list came back; `changed` if spaces came or went.
    pub(crate) fn processes_listed(&mut self, changed: bool, now: Nanos) {
        self.processes_interval = self.after(self.processes_interval, changed);
        self.processes_due = now + self.processes_interval;
    }

    /// The mapping list of a space came back; `changed` if it is another one than before.
    pub(crate) fn mappings_listed(&mut self, slot: SpaceSlot, changed: bool, now: Nanos) {
        let interval = self.after(self.schedules[slot.index()].interval, changed);
        let space = &mut self.schedules[slot.index()];
        space.interval = interval;
        if changed {
            space.gap = now - std::mem::replace(&mut space.changed, now);
        }
        space.changing = now - space.changed <= (2 * space.gap).min(LONGEST_CHANGING);
        self.schedule(slot, now + interval);
    }

    /// The mapping list of a space could not be read: it is tried again after twice the time.
    pub(crate) fn mappings_unread(&mut self, slot: SpaceSlot, now: Nanos) {
        let interval = self.after(self.schedules[slot.index()].interval, false);
        self.schedules[slot.index()].interval = interval;
        self.schedule(slot, now + interval);
    }

    /// Something in the space is not as its last mapping list said.
    pub(crate) fn list_mappings_soon(&mut self, slot: SpaceSlot, now: Nanos) {
        let space = &mut self.schedules[slot.index()];
        space.changing = true;
        space.interval = space.interval.min(SECOND);
        if space.due > now {
            self.schedule(slot, now);
        }
    }

    /// A process seems to be gone.
    pub(crate) fn list_processes_soon(&mut self, now: Nanos) {
        self.processes_due = self.processes_due.min(now + self.shortest);
    }

    fn schedule(&mut self, slot: SpaceSlot, due: Nanos) {
        let old = std::mem::replace(&mut self.schedules[slot.index()].due, due);
        self.queue.remove(&(old, slot));
        self.queue.insert((due, slot));
    }

    fn after(&self, interval: Nanos, changed: bool) -> Nanos {
        if changed {
            self.shortest
        } else {
            (interval * 2).min(self.longest)
        }
    }
}

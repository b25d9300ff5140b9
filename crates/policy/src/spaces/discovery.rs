//! Which spaces there are and when to look at them again.
//!
//! # Problem
//! Processes and mappings come without notice. Looking often costs time when nothing changes;
//! looking seldom misses what should be merged. One space may have 60,000 mappings, whose listing
//! costs more than all sampling.
//!
//! # Approach
//! A census finds spaces, a survey lists one's mappings. Each has an interval that doubles while
//! nothing changes and falls back when something does. Looks at what is calm are paid from half
//! the bottom level's share each; at what changes, from a twentieth of the governor's, and from
//! another one the first samples of new regions. A space that changed counts as changing for twice
//! the time since its change before, so that what comes and goes is not missed. A look that costs
//! much is thereby repeated seldom, however short its interval.
//!
//! # Units
//! Nanoseconds. The longest interval is 45 % of a round: under governor full a new region is seen
//! within 0.9 s if the budget allows.
//!
//! # Source
//! UKSM §5.1; design: region discovery is part of the budget.

pub(crate) mod changes;
pub(crate) mod lifetime;
pub(crate) mod sparse;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::accounts::budget::CpuBudget;
use crate::accounts::payer::Payer;
use crate::command::{Nanos, SpaceId};
use crate::convert;
use crate::params::{MILLISECOND, Params, SECOND};
use crate::spaces::sparse::SparseMapping;

/// For so long at most a space counts as changing after a change.
const LONGEST_HEAT: Nanos = 5 * SECOND;

/// A followed space.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) kind: u64,
    /// When its process was born, as far as known.
    pub(crate) born: Nanos,
    /// Its regions by address.
    pub(crate) regions: Vec<u32>,
    /// Its expanses by address, and whose turn it is to be looked into.
    pub(crate) sparse_mappings: Vec<SparseMapping>,
    pub(crate) sparse_turn: usize,
    /// Pages of its mappings that nobody follows, because there are as many regions as may be.
    pub(crate) left_out: u64,
    /// Whether anything was left out since its last survey, as far as known.
    pub(crate) crowded: bool,
    pub(crate) surveyed: bool,
    pub(crate) stopped: bool,
    /// What the last survey looked like.
    pub(crate) fingerprint: u64,
    /// Pages it had in memory when its holes were last looked into, or fewer.
    pub(crate) resident: u64,
    due: Nanos,
    interval: Nanos,
    changing: bool,
    /// When it last changed, and how long after the time before.
    changed: Nanos,
    gap: Nanos,
}

/// All spaces and the clocks of looking at them.
#[derive(Debug)]
pub(crate) struct Discovery {
    slots: Vec<Option<Space>>,
    free: Vec<u32>,
    by_id: BTreeMap<SpaceId, u32>,
    queue: BTreeSet<(Nanos, u32)>,
    shortest: Nanos,
    longest: Nanos,
    processes_due: Nanos,
    processes_interval: Nanos,
    processes_budget: CpuBudget,
    calm: CpuBudget,
    changing: CpuBudget,
    newcomers: CpuBudget,
    /// What the pending look is paid from.
    changing_listed: bool,
}

impl Discovery {
    pub(crate) fn new(params: &Params) -> Discovery {
        let round = params.global_round();
        let longest =
            (convert::nanos(convert::float(round) * 0.45)).clamp(20 * MILLISECOND, 10 * SECOND);
        let shortest = (round / 16).clamp(10 * MILLISECOND, longest);
        let calm = params.bottom_cpu / 2.0;
        // Looks are few and dear: each is repaid at once, not after a sleep's worth of debt.
        let budget = |share| CpuBudget::new(share, MILLISECOND);
        let changing = (params.cpu / 20.0).max(calm);
        Discovery {
            slots: vec![],
            free: vec![],
            by_id: BTreeMap::new(),
            queue: BTreeSet::new(),
            shortest,
            longest,
            processes_due: 0,
            processes_interval: shortest,
            processes_budget: budget(calm),
            calm: budget(calm),
            changing: budget(changing),
            newcomers: budget(changing),
            changing_listed: false,
        }
    }

    /// The shortest interval between two looks at a space.
    pub(crate) fn shortest(&self) -> Nanos {
        self.shortest
    }

    /// The number of spaces.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The space in a slot that is in use.
    pub(crate) fn space(&self, slot: u32) -> &Space {
        self.slots[convert::index(slot)]
            .as_ref()
            .expect("a region's space is there")
    }

    /// As [`Discovery::space`].
    pub(crate) fn space_mut(&mut self, slot: u32) -> &mut Space {
        self.slots[convert::index(slot)]
            .as_mut()
            .expect("a region's space is there")
    }

    /// Whether a slot is in use.
    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.slots
            .get(convert::index(slot))
            .is_some_and(Option::is_some)
    }

    /// The slot of a space.
    pub(crate) fn slot(&self, id: SpaceId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// All slots in use with the numbers of their spaces, ascending, those after `last` first.
    pub(crate) fn all_after(&self, last: SpaceId) -> impl Iterator<Item = (SpaceId, u32)> + '_ {
        let behind = self.by_id.range((Bound::Excluded(last), Bound::Unbounded));
        behind
            .chain(self.by_id.range(..=last))
            .map(|(&id, &slot)| (id, slot))
    }

    /// All slots in use, by the spaces' numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_id.values().copied()
    }

    /// A space came; none if it is known.
    pub(crate) fn arrive(
        &mut self,
        id: SpaceId,
        kind: u64,
        born: Nanos,
        now: Nanos,
    ) -> Option<u32> {
        if self.by_id.contains_key(&id) {
            return None;
        }
        let space = Space {
            id,
            kind,
            born,
            regions: vec![],
            sparse_mappings: vec![],
            sparse_turn: 0,
            left_out: 0,
            crowded: false,
            surveyed: false,
            stopped: false,
            fingerprint: 0,
            resident: 0,
            due: now,
            interval: self.shortest,
            changing: true,
            changed: now,
            gap: 0,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            convert::narrow(self.slots.len() as u64 - 1)
        });
        self.slots[convert::index(slot)] = Some(space);
        self.by_id.insert(id, slot);
        self.queue.insert((now, slot));
        Some(slot)
    }

    /// A space went.
    pub(crate) fn leave(&mut self, slot: u32) -> Space {
        let space = self.slots[convert::index(slot)]
            .take()
            .expect("it was there");
        self.by_id.remove(&space.id);
        self.queue.remove(&(space.due, slot));
        self.free.push(slot);
        space
    }

    /// What to look at now, if anything may be looked at.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Discover> {
        if now >= self.processes_due && self.processes_budget.is_ready(now) {
            return Some(Discover::Processes);
        }
        // What changes is due first, and the queue is short then; calm ones wait their turn.
        let hot_ready = self.changing.is_ready(now);
        let calm_ready = self.calm.is_ready(now);
        if !hot_ready && !calm_ready {
            return None;
        }
        let slot = self
            .queue
            .range(..(now + 1, 0))
            .take(64)
            .map(|&(_, slot)| slot)
            .find(|&slot| {
                if self.space(slot).changing {
                    hot_ready
                } else {
                    calm_ready
                }
            })?;
        self.changing_listed = self.space(slot).changing;
        Some(Discover::Mappings(slot))
    }

    /// When [`Discovery::next`] may have something.
    pub(crate) fn due_at(&self, now: Nanos) -> Nanos {
        let processes = self.processes_due.max(self.processes_budget.ready_at(now));
        let survey = self.queue.iter().take(64).map(|&(due, slot)| {
            let budget = if self.space(slot).changing {
                &self.changing
            } else {
                &self.calm
            };
            due.max(budget.ready_at(now))
        });
        survey
            .min()
            .map_or(processes, |survey| survey.min(processes))
            .max(now)
    }

    /// Books what a look cost, or the first samples of new regions: surveys must not keep them
    /// from those.
    pub(crate) fn charge(&mut self, payer: Payer, now: Nanos, cost: Nanos) {
        let budget = match payer {
            Payer::Processes => &mut self.processes_budget,
            Payer::Changing => &mut self.changing,
            Payer::Calm => &mut self.calm,
            Payer::Newcomers => &mut self.newcomers,
            other => unreachable!("{other:?} is not paid for here"),
        };
        budget.charge(now, cost);
    }

    /// Whether the last survey that was asked for is of a space that changes.
    pub(crate) fn is_changing_listed(&self) -> bool {
        self.changing_listed
    }

    /// Whether new regions may be sampled.
    pub(crate) fn may_sample_newcomers(&mut self, now: Nanos) -> bool {
        self.newcomers.is_ready(now)
    }

    /// From when on new regions may be sampled.
    pub(crate) fn newcomers_at(&self, now: Nanos) -> Nanos {
        self.newcomers.ready_at(now)
    }

    /// Processor time all looks have used.
    pub(crate) fn used(&self) -> Nanos {
        self.processes_budget.used()
            + self.changing.used()
            + self.calm.used()
            + self.newcomers.used()
    }

    /// A census came back; `changed` if spaces came or went.
    pub(crate) fn counted(&mut self, changed: bool, now: Nanos) {
        self.processes_interval = self.after(self.processes_interval, changed);
        self.processes_due = now + self.processes_interval;
    }

    /// A survey of a space came back.
    pub(crate) fn surveyed(&mut self, slot: u32, changed: bool, now: Nanos) {
        let interval = self.after(self.space(slot).interval, changed);
        let space = self.space_mut(slot);
        space.interval = interval;
        if changed {
            space.gap = now - std::mem::replace(&mut space.changed, now);
        }
        space.changing = now - space.changed <= (2 * space.gap).min(LONGEST_HEAT);
        space.surveyed = true;
        self.schedule(slot, now + interval);
    }

    /// A survey of a space failed: it is tried again after twice the time.
    pub(crate) fn unread(&mut self, slot: u32, now: Nanos) {
        let interval = self.after(self.space(slot).interval, false);
        self.space_mut(slot).interval = interval;
        self.schedule(slot, now + interval);
    }

    /// Something in the space is not as the last survey said: look again soon.
    pub(crate) fn list_mappings_soon(&mut self, slot: u32, now: Nanos) {
        let space = self.space_mut(slot);
        space.changing = true;
        space.interval = space.interval.min(SECOND);
        if space.due > now {
            self.schedule(slot, now);
        }
    }

    /// A process seems to be gone: count again soon.
    pub(crate) fn list_processes_soon(&mut self, now: Nanos) {
        self.processes_due = self.processes_due.min(now + self.shortest);
    }

    fn schedule(&mut self, slot: u32, due: Nanos) {
        let old = std::mem::replace(&mut self.space_mut(slot).due, due);
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

/// A look at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discover {
    /// Which processes there are.
    Processes,
    /// For the mappings of the space in a slot.
    Mappings(u32),
}

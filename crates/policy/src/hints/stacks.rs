//! The waiting hints of all spaces: bounded, with turns for the spaces.
//!
//! # Problem
//! One process may do more I/O than all others together, and far more than there is time to follow.
//! With one stack for all, its newest hints would be on top for ever. And a buffer that is filled
//! again and again would fill a stack with itself.
//!
//! # Approach
//! Each space has a [`Stack`] of its own, and they take turns of some pages, so that the hints of a
//! space wait for as many turns as there are spaces with hints. When pages or entries are too many,
//! the fullest stack loses its oldest (McKenney, Stochastic fairness queueing, 1990). A hint that
//! comes again while it waits moves to the top of its stack: a small table finds the entry that
//! begins at the same page, and empties it.
//!
//! # Units
//! Pages.

use std::collections::{BTreeMap, VecDeque};

use super::stack::{Stack, WaitingHint};
use crate::command::SpaceId;
use crate::convert;
use crate::mix::mix;

/// Limits of the number of entries, 3.5 MiB and 56 MiB of memory; between them, one entry for
/// `PAGES_PER_ENTRY` pages that the engine follows: most hints are of one file, or of a few.
const MIN_ENTRIES: u64 = 1 << 16;
const MAX_ENTRIES: u64 = 1 << 20;
const PAGES_PER_ENTRY: u64 = 64;
/// Slots of the table of waiting entries.
const SLOTS: usize = 1 << 12;
/// Length of a space's turn, in pages.
const TURN_PAGES: u64 = 64;
/// When the stacks are full, entries are dropped until one part in this number of pages and of
/// entries is free.
const EVICTED_SHARE_DIVISOR: u64 = 64;

/// Effect of a push on other entries, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PushEffect {
    /// Pages that waited already.
    pub(super) again: u64,
    /// Pages that were dropped as the oldest.
    pub(super) overwritten: u64,
}

/// The stacks.
#[derive(Debug)]
pub(super) struct Stacks {
    /// No stack in it is empty.
    stacks: BTreeMap<SpaceId, Stack>,
    /// All spaces with a stack; the first one has its turn.
    turns: VecDeque<SpaceId>,
    /// Pages that the first space has had since its turn began.
    served: u64,
    pages: u64,
    entries: u64,
    room: u64,
    most_entries: u64,
    /// For each slot, the number of the last entry pushed.
    pushed: Box<[u64]>,
}

impl Stacks {
    /// Empty stacks for `room` pages.
    pub(super) fn new(room: u64) -> Stacks {
        Stacks {
            stacks: BTreeMap::new(),
            turns: VecDeque::new(),
            served: 0,
            pages: 0,
            entries: 0,
            room,
            most_entries: MIN_ENTRIES,
            pushed: Box::default(),
        }
    }

    /// Sets the room to `pages`, in an engine that follows `followed` pages.
    pub(super) fn set_room(&mut self, pages: u64, followed: u64) {
        self.room = pages;
        self.most_entries = (followed / PAGES_PER_ENTRY).clamp(MIN_ENTRIES, MAX_ENTRIES);
    }

    /// How full the stacks are: by pages, limited by the time to follow them, or by a quarter of
    /// the share of entries, limited by memory.
    pub(super) fn load(&self) -> f64 {
        let by_entries = convert::ratio(self.entries, self.most_entries) / 4.0;
        convert::ratio(self.pages, self.room).max(by_entries)
    }

    /// Spaces with more than their fair part of the waiting hints at this load: the part that
    /// remains for each of them after all spaces with less have theirs (max-min fairness).
    pub(super) fn heavy(&self, load: f64) -> Vec<SpaceId> {
        let by_pages = convert::ratio(self.pages, self.room) >= self.load();
        let fullness = |stack: &Stack| stack.fullness(by_pages);
        let all = if by_pages { self.pages } else { self.entries };
        let mut left = convert::float(all) * load / self.load().max(f64::MIN_POSITIVE);
        let mut waiting: Vec<(u64, SpaceId)> = self
            .stacks
            .iter()
            .map(|(&space, stack)| (fullness(stack), space))
            .collect();
        waiting.sort_unstable();
        let fair = (0..waiting.len()).find(|&at| {
            let each = left / convert::float((waiting.len() - at) as u64);
            let waits = convert::float(waiting[at].0);
            left -= waits;
            waits > each
        });
        let fair = fair.unwrap_or(waiting.len());
        waiting[fair..].iter().map(|&(_, space)| space).collect()
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Pushes a hint on top of its stack.
    pub(super) fn push(&mut self, entry: WaitingHint) -> PushEffect {
        if self.pushed.is_empty() {
            self.pushed = vec![u64::MAX; SLOTS].into();
        }
        let stack = stack_of(&mut self.stacks, &mut self.turns, entry.space);
        let before = stack.pages();
        let mut pushed = PushEffect::default();
        if let Some(again) = stack.join(&entry) {
            pushed.again = again;
        } else {
            let waiting = &mut self.pushed[slot(&entry)];
            pushed.again = stack.empty(*waiting, entry.from).min(entry.pages());
            *waiting = stack.push(entry);
            self.entries += 1;
        }
        self.pages = self.pages + stack.pages() - before;
        if self.pages > self.room || self.entries > self.most_entries {
            pushed.overwritten = self.make_room();
        }
        pushed
    }

    /// Drops the oldest entries of the fullest stacks; returns their pages.
    fn make_room(&mut self) -> u64 {
        let before = self.pages;
        let room = self.room - self.room / EVICTED_SHARE_DIVISOR;
        let entries = self.most_entries - self.most_entries / EVICTED_SHARE_DIVISOR;
        while self.pages > room || self.entries > entries {
            let by_pages = self.pages > room;
            let fullness = |stack: &Stack| stack.fullness(by_pages);
            let fullest = self
                .stacks
                .iter_mut()
                .max_by_key(|(_, stack)| fullness(stack));
            let Some((&space, stack)) = fullest else {
                break;
            };
            // The next stack may be as full.
            let enough = fullness(stack) - fullness(stack).div_ceil(EVICTED_SHARE_DIVISOR);
            while fullness(stack) > enough
                && (self.pages > room || self.entries > entries)
                && let Some(pages) = stack.drop_oldest()
            {
                self.pages -= pages;
                self.entries -= 1;
            }
            if stack.len() == 0 {
                self.remove(space);
            }
        }
        before - self.pages
    }

    /// Removes a space, whose stack is empty.
    fn remove(&mut self, space: SpaceId) {
        self.stacks.remove(&space);
        if self.turns.front() == Some(&space) {
            self.turns.pop_front();
            self.served = 0;
        } else {
            self.turns.retain(|&other| other != space);
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let stacks: usize = self.stacks.values().map(Stack::bytes).sum();
        stacks + size_of_val(&*self.pushed)
    }

    /// The newest hint of the space whose turn it is.
    pub(super) fn pop(&mut self) -> Option<WaitingHint> {
        loop {
            if self.served >= TURN_PAGES {
                self.turns.rotate_left(1);
                self.served = 0;
            }
            let &space = self.turns.front()?;
            let stack = self.stacks.get_mut(&space)?;
            let entry = stack.pop();
            if stack.len() == 0 {
                self.remove(space);
            }
            let Some(entry) = entry else {
                continue;
            };
            self.entries -= 1;
            self.pages -= entry.pages();
            if entry.pages() > 0 {
                if self.turns.front() == Some(&space) {
                    self.served += entry.pages();
                }
                return Some(entry);
            }
        }
    }

    /// Puts the rest of the hint that was popped last back on top.
    pub(super) fn put_back(&mut self, entry: WaitingHint) {
        stack_of(&mut self.stacks, &mut self.turns, entry.space).push(entry);
        self.pages += entry.pages();
        self.entries += 1;
    }
}

/// The stack of a space; a new one has its turn after all others.
fn stack_of<'a>(
    stacks: &'a mut BTreeMap<SpaceId, Stack>,
    turns: &mut VecDeque<SpaceId>,
    space: SpaceId,
) -> &'a mut Stack {
    stacks.entry(space).or_insert_with(|| {
        turns.push_back(space);
        Stack::default()
    })
}

/// The slot of an entry in the table of waiting entries.
fn slot(entry: &WaitingHint) -> usize {
    let key = mix(entry.from ^ u64::from(entry.space.0) << 40);
    convert::index(convert::narrow(key >> 32)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::file_yield::Origin;

    fn entry(from: u64, pages: u64) -> WaitingHint {
        entry_of(1, from, pages)
    }

    fn entry_of(space: u32, from: u64, pages: u64) -> WaitingHint {
        WaitingHint {
            from,
            to: from + pages,
            space: SpaceId(space),
            at: 0,
            file: None,
            origin: Origin::UNKNOWN,
            tries: 0,
        }
    }

    fn all(stack: &mut Stacks) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| stack.pop())
            .map(|entry| (entry.from, entry.pages()))
            .collect()
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_are_overwritten() {
        let mut stack = Stacks::new(30);
        let pushed: Vec<PushEffect> = (1..=4).map(|n| stack.push(entry(n * 100, 10))).collect();
        assert_eq!(pushed[2], PushEffect::default());
        assert_eq!(pushed[3].overwritten, 10);
        assert_eq!(all(&mut stack), [(400, 10), (300, 10), (200, 10)]);
        assert!(stack.is_empty());
    }

    #[test]
    fn a_sequential_read_is_one_hint_up_to_two_mebibytes() {
        let mut stack = Stacks::new(10_000);
        for n in 0..40 {
            stack.push(entry(1000 + n * 32, 32));
        }
        assert_eq!(stack.pages(), 1280);
        let entries = all(&mut stack);
        assert_eq!(entries, [(2024, 256), (1512, 512), (1000, 512)]);
    }

    #[test]
    fn what_is_hinted_again_waits_once_and_on_top() {
        let mut stack = Stacks::new(1000);
        stack.push(entry(100, 8));
        stack.push(entry(500, 8));
        assert_eq!(stack.push(entry(100, 8)).again, 8);
        assert_eq!(stack.pages(), 16);
        assert_eq!(all(&mut stack), [(100, 8), (500, 8)]);
    }

    #[test]
    fn a_bounce_buffer_does_not_swamp_the_stack() {
        let mut stack = Stacks::new(1 << 20);
        for n in 0..100_000 {
            stack.push(entry(100, 8));
            stack.push(entry(1000 + n, 1));
        }
        assert!(stack.entries <= MIN_ENTRIES);
        let buffers = all(&mut stack)
            .iter()
            .filter(|&&(from, _)| from == 100)
            .count();
        assert!((1..100).contains(&buffers), "{buffers}: slots are shared");
    }

    #[test]
    fn it_is_as_full_as_pages_or_entries_say() {
        let mut stack = Stacks::new(0);
        stack.set_room(20_000, 0);
        for n in 0..1000 {
            stack.push(entry(n * 100, 10));
        }
        assert_eq!(stack.load(), 0.5, "little time");
        stack.set_room(1 << 30, 0);
        let short = 1000.0 / convert::float(MIN_ENTRIES) / 4.0;
        assert_eq!(stack.load(), short, "many short hints");
        stack.set_room(1 << 20, 1 << 40);
        assert_eq!(stack.most_entries, MAX_ENTRIES, "much memory");
    }

    #[test]
    fn a_space_with_many_hints_does_not_keep_those_of_others_waiting() {
        let mut stacks = Stacks::new(1 << 20);
        for n in 0..10_000 {
            stacks.push(entry_of(1, n * 100, 1));
        }
        for n in 0..10 {
            stacks.push(entry_of(2, n * 100, 32));
        }
        for n in 0..10_000 {
            stacks.push(entry_of(1, 10_000_000 + n * 100, 1));
        }
        assert_eq!(stacks.heavy(0.001), [SpaceId(1)]);
        let mut passed = 0;
        let mut of_others = 0;
        while of_others < 10 {
            let entry = stacks.pop().unwrap();
            of_others += u32::from(entry.space == SpaceId(2));
            passed += u64::from(entry.space == SpaceId(1));
        }
        assert!(passed <= 6 * TURN_PAGES, "{passed}");
        assert_eq!(all(&mut stacks).len() as u64, 20_000 - passed);
        assert!(stacks.turns.is_empty() && stacks.entries == 0);
    }

    #[test]
    fn the_fullest_stack_loses_its_oldest() {
        let mut stacks = Stacks::new(1000);
        for n in 0..10 {
            stacks.push(entry_of(2, n * 100, 10));
        }
        let mut overwritten = 0;
        for n in 0..2000 {
            overwritten += stacks.push(entry_of(1, n * 100, 1)).overwritten;
        }
        assert_eq!(stacks.pages() + overwritten, 2100);
        let left: u64 = stacks.stacks[&SpaceId(2)].pages();
        assert_eq!(left, 100);
        assert_eq!(stacks.pop().unwrap().space, SpaceId(2), "it came first");
    }

    #[test]
    fn a_number_that_was_given_again_empties_no_other_entry() {
        let mut stack = Stacks::new(1000);
        stack.push(entry(100, 8));
        stack.pop();
        stack.push(entry(500, 8));
        stack.push(entry(100, 8));
        assert_eq!(all(&mut stack), [(100, 8), (500, 8)]);
    }
}

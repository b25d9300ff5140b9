//! Processes that wait to be checked, because they are new or became another program.
//!
//! # Problem
//! Most processes are forked before they exec the program that they are meant to run, and many live
//! for a moment only. Checking, holding and attaching a process costs a hundred times as much as an
//! event.
//!
//! # Approach
//! A process waits until it is old enough: [`SHORT_WAIT`] after its event, or [`LONG_WAIT`] while
//! many die young, according to the events of forks and exits. A process that exits meanwhile costs
//! nothing. Of those old enough, the newest is checked first, so that a crowd of waiting processes
//! does not delay new ones. The queue and the remembered births are bounded.
//!
//! Times are of the monotonic clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uksm_policy::command::Nanos;

/// Age of a process when it is checked: by then most have done their exec. This is V_life's default
/// (UKSM §5.2).
pub(super) const SHORT_WAIT: Nanos = 100_000_000;
/// Its age while many die young. A process that dies before that is never checked.
pub(super) const LONG_WAIT: Nanos = 500_000_000;
/// Processes a second that may die younger than [`LONG_WAIT`] before all wait that long.
const MAX_YOUNG_DEATHS: u32 = 16;
const SECOND: Nanos = 1_000_000_000;
/// Maximum number of waiting processes, and of remembered births: more than a host has processes.
const MAX_REMEMBERED: usize = 1 << 17;

/// The waiting processes.
#[derive(Debug, Default)]
pub(super) struct CheckQueue {
    /// The time since when each waits.
    since: BTreeMap<u32, Nanos>,
    by_time: BTreeSet<(Nanos, u32)>,
    /// Births of the last [`LONG_WAIT`].
    births: BTreeMap<u32, Nanos>,
    by_birth: VecDeque<(Nanos, u32)>,
    /// Processes that died young since this second began, and whether they were many in the last
    /// second.
    second: Nanos,
    died_young: u32,
    were_many: bool,
}

impl CheckQueue {
    /// A process was born.
    pub(super) fn born(&mut self, pid: u32, at: Nanos) {
        if self.by_birth.len() < MAX_REMEMBERED {
            self.births.insert(pid, at);
            self.by_birth.push_back((at, pid));
        }
    }

    /// A process must be checked because of an event at this time; at once if that is 0. If it
    /// already waits, its wait is unchanged. Returns whether there is room.
    pub(super) fn put(&mut self, pid: u32, at: Nanos) -> bool {
        if self.since.len() >= MAX_REMEMBERED {
            return self.since.contains_key(&pid);
        }
        let before = self.since.get(&pid).copied();
        let since = before.map_or(at, |before| if at == 0 { 0 } else { before });
        if let Some(before) = before {
            self.by_time.remove(&(before, pid));
        }
        self.since.insert(pid, since);
        self.by_time.insert((since, pid));
        true
    }

    /// A process exited: it waits no longer.
    pub(super) fn exited(&mut self, pid: u32, at: Nanos) {
        if let Some(since) = self.since.remove(&pid) {
            self.by_time.remove(&(since, pid));
        }
        if let Some(birth) = self.births.remove(&pid)
            && at.saturating_sub(birth) < LONG_WAIT
        {
            self.died_young += 1;
        }
    }

    /// Whether a process waits.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.since.contains_key(&pid)
    }

    /// Advances the time.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(&(birth, pid)) = self.by_birth.front()
            && birth.saturating_add(LONG_WAIT) < now
        {
            self.by_birth.pop_front();
            if self.births.get(&pid) == Some(&birth) {
                self.births.remove(&pid);
            }
        }
        if now >= self.second.saturating_add(SECOND) {
            self.were_many = self.died_young > MAX_YOUNG_DEATHS;
            self.died_young = 0;
            self.second = now;
        }
    }

    /// Removes and returns the newest process that is old enough.
    pub(super) fn next(&mut self, now: Nanos) -> Option<u32> {
        let newest = self.newest(now)?;
        self.by_time.remove(&newest);
        self.since.remove(&newest.1);
        Some(newest.1)
    }

    /// Whether a process is old enough.
    pub(super) fn is_waiting(&self, now: Nanos) -> bool {
        self.newest(now).is_some()
    }

    /// Time at which the first process is old enough, if one waits.
    pub(super) fn ready_at(&self) -> Option<Nanos> {
        let &(since, _) = self.by_time.first()?;
        Some(since.saturating_add(self.wait()))
    }

    fn newest(&self, now: Nanos) -> Option<(Nanos, u32)> {
        let before = now.saturating_sub(self.wait());
        self.by_time
            .range(..=(before, u32::MAX))
            .next_back()
            .copied()
    }

    /// Age at which a process is checked.
    fn wait(&self) -> Nanos {
        if self.were_many || self.died_young > MAX_YOUNG_DEATHS {
            LONG_WAIT
        } else {
            SHORT_WAIT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn the_newest_that_is_old_enough_comes_first() {
        let mut queue = CheckQueue::default();
        for (pid, at) in [(1, 0), (2, 10 * MS), (3, 30 * MS), (4, 90 * MS)] {
            assert!(queue.put(pid, at));
        }
        let now = 130 * MS;
        let order: Vec<u32> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(order, [3, 2, 1]);
        assert!(queue.has(4) && !queue.is_waiting(189 * MS));
        assert!(queue.is_waiting(190 * MS));
    }

    #[test]
    fn what_exits_while_it_waits_is_never_looked_at() {
        let mut queue = CheckQueue::default();
        queue.put(1, 10 * MS);
        queue.exited(1, 20 * MS);
        queue.exited(2, 20 * MS);
        assert_eq!(queue.next(SECOND), None);
    }

    #[test]
    fn an_exec_does_not_make_a_process_wait_anew_and_one_at_once_does_not_wait() {
        let mut queue = CheckQueue::default();
        queue.put(1, 10 * MS);
        queue.put(1, 100 * MS);
        assert!(queue.is_waiting(110 * MS));
        queue.put(2, 110 * MS);
        queue.put(2, 0);
        assert_eq!(queue.next(110 * MS), Some(1));
        assert_eq!(queue.next(110 * MS), Some(2));
        assert_eq!(queue.next(SECOND), None, "each once");
    }

    /// Creates 200 a second that live for 0.2 s, in this period; returns the number of checks.
    fn storm(queue: &mut CheckQueue, from: Nanos, to: Nanos) -> usize {
        let mut looked_at = 0;
        let mut dying = VecDeque::new();
        for (pid, at) in (1_000_000..).zip((from..to).step_by(5_000_000)) {
            queue.born(pid, at);
            queue.put(pid, at);
            dying.push_back((at + 200 * MS, pid));
            while let Some(&(dies, pid)) = dying.front()
                && dies <= at
            {
                queue.exited(pid, dies);
                dying.pop_front();
            }
            queue.advance(at);
            looked_at += std::iter::from_fn(|| queue.next(at)).count();
        }
        for (dies, pid) in dying {
            queue.exited(pid, dies);
        }
        looked_at
    }

    #[test]
    fn in_a_storm_of_short_lived_processes_only_what_stays_is_looked_at() {
        let mut queue = CheckQueue::default();
        let first = storm(&mut queue, SECOND, 2 * SECOND);
        assert!(first < 80, "{first} before it is known to be a storm");
        assert_eq!(storm(&mut queue, 2 * SECOND, 10 * SECOND), 0);
        // One that stays is delayed by no more than the long wait.
        queue.put(7, 10 * SECOND);
        queue.advance(10 * SECOND + LONG_WAIT);
        assert_eq!(queue.next(10 * SECOND + LONG_WAIT), Some(7));
        // After the storm no process waits for long.
        queue.advance(12 * SECOND);
        queue.advance(13 * SECOND);
        queue.put(8, 13 * SECOND);
        assert_eq!(queue.next(13 * SECOND + SHORT_WAIT), Some(8));
        queue.advance(20 * SECOND);
        assert!(queue.births.is_empty() && queue.by_birth.is_empty());
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut queue = CheckQueue::default();
        let most = u32::try_from(MAX_REMEMBERED).unwrap();
        for pid in 0..most {
            queue.born(pid, 5);
            assert!(queue.put(pid, 5));
        }
        queue.born(most, 5);
        assert!(!queue.put(most, 5) && queue.put(7, 5));
        assert_eq!(queue.since.len(), MAX_REMEMBERED);
        assert_eq!(queue.by_birth.len(), MAX_REMEMBERED);
    }
}

//! Targets whose locks are held.
//!
//! # Problem
//! A process decides how long its own locks are held, and can hold them for ever. The module gives
//! up on such a target after a tenth of a second (`EAGAIN`). A caller that tried again at once
//! would do nothing else, and the cause would stay unknown.
//!
//! # Approach
//! Each locked target is left alone for a second, and for twice as long each time that it is still
//! locked, up to `MAX_PAUSE_NS`: so one target takes 1/600 of its caller's time. If its locks
//! were held at every try for `MIN_REPORTED_NS`, it is reported: a shorter time is normal for a
//! process that maps much.
//!
//! # Units
//! [`Nanos`] of the monotonic clock.

use std::collections::BTreeMap;

use uksm_policy::command::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// Pause after the first try that failed.
const MIN_PAUSE_NS: Nanos = SECOND;
const MAX_PAUSE_NS: Nanos = 64 * SECOND;
/// Locks held for this time are reported.
const MIN_REPORTED_NS: Nanos = 5 * SECOND;

/// A target whose locks were held at every try since `first`.
#[derive(Debug, Clone, Copy)]
struct LockWait {
    first: Nanos,
    last: Nanos,
    pause: Nanos,
    /// The earliest time of the next try.
    due: Nanos,
}

/// Targets by their key, a space or a process id.
#[derive(Debug)]
pub struct LockWaits<K> {
    targets: BTreeMap<K, LockWait>,
    given_up: u64,
}

impl<K> Default for LockWaits<K> {
    fn default() -> LockWaits<K> {
        LockWaits {
            targets: BTreeMap::new(),
            given_up: 0,
        }
    }
}

impl<K: Ord + Copy> LockWaits<K> {
    /// A call gave up on this target. Returns the time of the next try.
    pub fn gave_up(&mut self, target: K, now: Nanos) -> Nanos {
        self.given_up += 1;
        let held = self.seen(target, now);
        held.pause = (held.pause * 2).clamp(MIN_PAUSE_NS, MAX_PAUSE_NS);
        held.due = now.saturating_add(held.pause);
        held.due
    }

    /// A call that does not wait found the locks held.
    pub fn met(&mut self, target: K, now: Nanos) {
        self.seen(target, now);
    }

    fn seen(&mut self, target: K, now: Nanos) -> &mut LockWait {
        let held = self.targets.entry(target).or_insert(LockWait {
            first: now,
            last: now,
            pause: 0,
            due: 0,
        });
        held.last = now;
        held
    }

    /// Its locks were free, or it is gone.
    pub fn clear(&mut self, target: K) {
        self.targets.remove(&target);
    }

    /// Forgets the targets for which `is_there` is false.
    pub fn retain(&mut self, is_there: impl Fn(K) -> bool) {
        self.targets.retain(|&target, _| is_there(target));
    }

    /// Whether a call that waits may try it now.
    #[must_use]
    pub fn is_due(&self, target: K, now: Nanos) -> bool {
        self.due(target, now).is_none()
    }

    /// Whether no target is known to hold its locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Time for which its locks were held at every try, if that is long.
    #[must_use]
    pub fn held(&self, target: K) -> Option<Nanos> {
        let held = self.targets.get(&target)?;
        let time = held.last.saturating_sub(held.first);
        (time >= MIN_REPORTED_NS).then_some(time)
    }

    /// The targets whose locks were held for long, with that time.
    pub fn long(&self) -> impl Iterator<Item = (K, Nanos)> + '_ {
        let targets = self.targets.keys();
        targets.filter_map(|&target| Some((target, self.held(target)?)))
    }

    /// Time of the next try of a call that waits, if it is in the future.
    #[must_use]
    pub fn due(&self, target: K, now: Nanos) -> Option<Nanos> {
        let held = self.targets.get(&target)?;
        (held.due > now).then_some(held.due)
    }

    /// Calls that gave up.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_left_alone_for_longer_each_time_and_for_a_minute_at_most() {
        let mut locked = LockWaits::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let due = locked.gave_up('a', now);
            assert!(!locked.is_due('a', due - 1) && locked.is_due('a', due));
            pauses.push((due - now) / SECOND);
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(locked.is_due('b', 0));
        assert_eq!(locked.given_up(), 9);
        locked.clear('a');
        assert!(locked.is_due('a', now) && locked.is_empty());
        assert_eq!(locked.gave_up('a', now) - now, SECOND, "it begins anew");
    }

    #[test]
    fn only_what_is_held_for_long_is_named() {
        let mut locked = LockWaits::default();
        locked.gave_up(1, 0);
        locked.met(2, 0);
        locked.met(1, MIN_REPORTED_NS - 1);
        assert_eq!(locked.long().count(), 0);
        locked.met(1, MIN_REPORTED_NS + 7);
        assert_eq!(
            locked.long().collect::<Vec<_>>(),
            [(1, MIN_REPORTED_NS + 7)]
        );
        locked.met(2, MIN_REPORTED_NS);
        locked.retain(|target| target != 1);
        assert_eq!(locked.long().collect::<Vec<_>>(), [(2, MIN_REPORTED_NS)]);
        locked.clear(2);
        locked.met(2, 2 * MIN_REPORTED_NS);
        assert_eq!(locked.held(2), None, "it was to be had in between");
    }
}

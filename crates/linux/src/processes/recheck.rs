//! The known processes that are checked again for a process list.
//!
//! # Problem
//! A process can become another program at any time without notice; checking each of thousands
//! every time would cost too much.
//!
//! # Approach
//! All known processes take turns by id. With events of execs, few are checked at a time, only for
//! changes without an event. Without events, young processes are checked every time: most processes
//! are forked before they exec the program that they are meant to run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use uksm_policy::command::Nanos;

use crate::clock;
use crate::proc::Stat;

/// Maximum number of known processes checked again for one process list. At some 10 µs each, that
/// takes well under a millisecond.
pub const CHECKS_PER_LIST: usize = 64;

/// [`CHECKS_PER_LIST`] if events report execs and names: for lost events, and for control groups,
/// whose changes have no event.
pub(super) const CHECKS_WITH_EVENTS: usize = 1;
pub(super) const CHECKS_OF_CGROUPS: usize = 8;

/// A process that is not chosen and is younger than this may exec a program that is.
const YOUNG_AGE: Nanos = 5_000_000_000;

/// An unfollowed process that cannot change has a turn in one of this many laps.
const LAPS: u32 = 16;

/// Maximum number of young processes checked again for one process list.
const MAX_YOUNG: usize = 256;

/// The turns of known processes.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    young: BTreeSet<u32>,
    /// The last id that had its turn; 0 starts from the beginning.
    checked_to: u32,
    /// Number of laps through all processes.
    laps: u32,
}

impl Recheck {
    /// A process that is not chosen was read.
    pub(super) fn note_unchosen(&mut self, pid: u32, stat: &Stat) {
        if self.young.len() < MAX_YOUNG && stat.age(clock::since_boot()) < YOUNG_AGE {
            self.young.insert(pid);
        }
    }

    /// The processes to check for the next list: the young ones, and the next `most` of the others.
    /// Unfollowed processes take part if they `can_change`; of the rest one in [`LAPS`] does,
    /// because an id may have been reused.
    pub(super) fn next<F, U, C: Fn(&U) -> bool>(
        &mut self,
        most: usize,
        followed: &BTreeMap<u32, F>,
        unfollowed: &BTreeMap<u32, U>,
        can_change: C,
    ) -> impl Iterator<Item = u32> + use<F, U, C> {
        let behind = (Bound::Excluded(self.checked_to), Bound::Unbounded);
        let followed = followed.range(behind).map(|(&pid, _)| pid);
        let unfollowed = unfollowed.range(behind);
        let unfollowed = unfollowed
            .filter(|&(pid, why)| can_change(why) || pid % LAPS == self.laps % LAPS)
            .map(|(&pid, _)| pid);
        let mut pids: Vec<u32> = followed.take(most).collect();
        pids.extend(unfollowed.take(most));
        pids.sort_unstable();
        pids.truncate(most);
        if pids.len() < most {
            self.checked_to = 0;
            self.laps = self.laps.wrapping_add(1);
        } else {
            self.checked_to = pids[most - 1];
        }
        std::mem::take(&mut self.young).into_iter().chain(pids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_change_has_one_turn_in_many() {
        let unfollowed: BTreeMap<u32, bool> = (1..=100).map(|pid| (pid, pid > 98)).collect();
        let mut recheck = Recheck::default();
        let nobody = BTreeMap::<u32, ()>::new();
        let mut counts = [0; 101];
        for _ in 0..LAPS {
            for pid in recheck.next(10, &nobody, &unfollowed, |&can_change| can_change) {
                counts[pid as usize] += 1;
            }
        }
        assert_eq!((counts[99], counts[100]), (LAPS, LAPS));
        assert!(counts[1..99].iter().all(|&count| count == 1), "{counts:?}");
    }

    #[test]
    fn every_known_process_has_its_turn_and_then_it_starts_anew() {
        let known = |pids: std::ops::RangeInclusive<u32>| pids.map(|pid| (pid, 'x')).collect();
        let followed: BTreeMap<u32, char> = known(1..=100);
        let unfollowed: BTreeMap<u32, char> = known(101..=150);
        let mut recheck = Recheck::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.extend(recheck.next(CHECKS_PER_LIST, &followed, &unfollowed, |_| true));
        }
        assert_eq!(seen, (1..=150).collect::<Vec<u32>>());
        let mut again = recheck.next(CHECKS_PER_LIST, &followed, &unfollowed, |_| true);
        assert_eq!(again.next(), Some(1));
    }
}

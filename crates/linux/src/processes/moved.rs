//! Processes that were moved to another control group.
//!
//! # Problem
//! Who was moved is of another group, and must share nothing with the one it left; most who are
//! moved are new, and are looked at soon anyway.
//!
//! # Approach
//! Who is known is looked at at once; who waits to be looked at goes on waiting, and who is unknown
//! waits as if it were born now: services are moved between their fork and their exec. After a
//! loss, all that are known are looked at.

use std::os::fd::BorrowedFd;

use uksm_policy::command::Nanos;

use super::{Processes, Unfollowed};

impl Processes {
    /// Is told of moves from now on, if they change anything and it can be had.
    pub fn want_moves(&mut self) {
        if self.is_moved_between() {
            self.moves.want();
        }
    }

    /// What is readable when processes have moved, if that is told; the next list takes it in.
    #[must_use]
    pub fn move_events(&self) -> Option<BorrowedFd<'_>> {
        self.moves.events()
    }

    /// Whether moves between control groups are told.
    #[must_use]
    pub fn are_moves_told(&self) -> bool {
        self.moves.are_told()
    }

    /// Whether a move to another control group can make a process one of another group.
    #[must_use]
    pub fn is_moved_between(&self) -> bool {
        self.grouping.depends_on_cgroups()
    }

    /// How often moves were lost; each time all known processes were looked at.
    #[must_use]
    pub fn moves_lost(&self) -> u64 {
        self.moves_lost
    }

    /// Takes in who has moved; answers whether more wait.
    pub(super) fn take_moves(&mut self, now: Nanos) -> bool {
        let were_told = self.moves.are_told();
        let (followed, unfollowed) = (&self.followed, &self.unfollowed);
        let arrivals = &mut self.arrivals;
        let mut is_room = true;
        let taken = self.moves.take(|pid| {
            let is_known = followed.contains_key(&pid) || unfollowed.contains_key(&pid);
            if is_known || !arrivals.has(pid) {
                is_room &= arrivals.moved(pid, if is_known { 0 } else { now });
            }
        });
        if taken.lost || !is_room {
            let can_move = |(&pid, why): (&u32, &Unfollowed)| {
                (*why != Unfollowed::KernelThread).then_some(pid)
            };
            let unfollowed = unfollowed.iter().filter_map(can_move);
            for pid in followed.keys().copied().chain(unfollowed) {
                self.arrivals.put(pid);
            }
            // Until it runs the program tells of nothing.
            if were_told {
                self.moves_lost += 1;
                tracing::debug!(
                    "moves between control groups were lost: all processes are looked at"
                );
            }
        }
        taken.more
    }
}

//! Processes that were moved to another control group.
//!
//! # Problem
//! A moved process belongs to another group and must stop sharing with the old one. Most moved
//! processes are new and will be checked soon anyway.
//!
//! # Approach
//! A moved process that is known is checked at once. One that already waits for its check goes on
//! waiting. An unknown one waits as if it were born now: services are moved between their fork and
//! their exec. After a loss of events, all known processes are checked.

use std::os::fd::BorrowedFd;

use uksm_policy::command::Nanos;

use super::{Processes, UnfollowedReason};

impl Processes {
    /// Asks for events of moves, if moves can change anything.
    pub fn want_moves(&mut self) {
        if self.is_moved_between() {
            self.moves.want();
        }
    }

    /// Readable when processes have moved, if there are such events; the next list reads them.
    #[must_use]
    pub fn move_events(&self) -> Option<BorrowedFd<'_>> {
        self.moves.events()
    }

    /// Whether moves between control groups are reported.
    #[must_use]
    pub fn has_move_events(&self) -> bool {
        self.moves.is_running()
    }

    /// Whether a move to another control group can change a process's group.
    #[must_use]
    pub fn is_moved_between(&self) -> bool {
        self.grouping.depends_on_cgroups()
    }

    /// Number of losses of moves; after each, all known processes were checked.
    #[must_use]
    pub fn moves_lost(&self) -> u64 {
        self.moves_lost
    }

    /// Reads the events of moves; returns whether more wait.
    pub(super) fn take_moves(&mut self, now: Nanos) -> bool {
        let was_running = self.moves.is_running();
        let (followed, unfollowed) = (&self.followed, &self.unfollowed);
        let process_events = &mut self.process_events;
        let mut is_room = true;
        let taken = self.moves.take(|pid| {
            let is_known = followed.contains_key(&pid) || unfollowed.contains_key(&pid);
            if is_known || !process_events.has(pid) {
                is_room &= process_events.moved(pid, if is_known { 0 } else { now });
            }
        });
        if taken.lost || !is_room {
            let can_move = |(&pid, why): (&u32, &UnfollowedReason)| {
                (*why != UnfollowedReason::KernelThread).then_some(pid)
            };
            let unfollowed = unfollowed.iter().filter_map(can_move);
            for pid in followed.keys().copied().chain(unfollowed) {
                self.process_events.put(pid);
            }
            // While the program does not run yet, it reports nothing.
            if was_running {
                self.moves_lost += 1;
                tracing::debug!(
                    "events of moves between control groups were lost: all processes are checked"
                );
            }
        }
        taken.more
    }
}

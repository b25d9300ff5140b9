//! The process list: changes since the previous one.
//!
//! # Problem
//! Thousands of processes may have come at once, and the caller has other duties.
//!
//! # Approach
//! A list first reads what is known at once (exits, events, now and then a search). Then it checks
//! one process after another, newcomers first, for some milliseconds. The rest waits for the next
//! list.

use uksm_policy::command::Nanos;

use super::process_events::Interest;
use super::recheck::{self, CHECKS_PER_LIST};
use super::{Attach, Processes, SpaceChanges, UnfollowedReason};
use crate::clock;
use crate::module;

/// Processor time of a list before the rest waits for the next one; at most one more process is
/// checked after that. A daemon that merges as well must return sooner than a supervisor, which
/// hundreds of workers wait for.
const MAX_CPU_NS: Nanos = 4_000_000;
const MAX_SUPERVISOR_CPU_NS: Nanos = 50_000_000;
/// A list takes at most this multiple of its processor time in real time: processes may make their
/// readers wait, and on a busy machine most of the elapsed time is not its own.
const MAX_REAL_TIME_FACTOR: Nanos = 10;

impl Processes {
    /// Changes since the last process list, within some milliseconds.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    pub fn discover(&mut self, to: &mut impl Attach) -> module::Result<SpaceChanges> {
        self.started = true;
        let begun = clock::now();
        for pid in self.exits.take() {
            self.unfollow(pid, false);
        }
        for pid in self.spaces.take_dead() {
            self.unfollow(pid, false);
            self.process_events.put(pid);
        }
        self.take_events(begun);
        let are_moves_waiting = self.take_moves(begun);
        self.search(begun);
        // Measured after the search: a search of many processes can exceed the limit, and must not
        // prevent all checks.
        let (searched, used) = (clock::now(), clock::thread_cpu());
        let most = match self.is_supervisor {
            true => MAX_SUPERVISOR_CPU_NS,
            false => MAX_CPU_NS,
        };
        let has_time = || {
            clock::thread_cpu().saturating_sub(used) < most
                && clock::now().saturating_sub(searched) < MAX_REAL_TIME_FACTOR * most
        };
        while has_time()
            && let Some(pid) = self.process_events.next(begun)
        {
            self.check(pid, to)?;
        }
        let most = match (self.has_events(), self.grouping.depends_on_cgroups()) {
            (false, _) => CHECKS_PER_LIST,
            (true, true) => recheck::CHECKS_OF_CGROUPS,
            (true, false) => recheck::CHECKS_WITH_EVENTS,
        };
        if has_time() {
            let can_change = |why: &UnfollowedReason| *why != UnfollowedReason::KernelThread;
            let (followed, unfollowed) = (&self.followed, &self.unfollowed);
            for pid in self.recheck.next(most, followed, unfollowed, can_change) {
                self.check(pid, to)?;
            }
        }
        let mut changes = self.spaces.take_changes();
        changes.more = are_moves_waiting || self.process_events.is_more(begun);
        Ok(changes)
    }

    fn take_events(&mut self, now: Nanos) {
        let (followed, unfollowed) = (&self.followed, &self.unfollowed);
        let interest = Interest {
            known: &|pid| followed.contains_key(&pid) || unfollowed.contains_key(&pid),
            unknown: self.grouping.need_search(),
            names: self.grouping.depends_on_names(),
        };
        for pid in self.process_events.take_events(now, &interest) {
            self.unfollowed.remove(&pid);
            self.locked.clear(pid);
            self.proc.forget(pid);
        }
    }

    /// Finds processes that no event reported.
    fn search(&mut self, now: Nanos) {
        let mut pids = std::mem::take(&mut self.pids);
        if !self.grouping.need_search() {
            pids.clear();
            pids.extend(self.grouping.named().map(|name| name.pid));
        } else if self.process_events.is_search_due(now) {
            match self.process_events.search(&self.proc, &mut pids) {
                Ok(()) => {
                    let is_there = |pid: u32| pids.binary_search(&pid).is_ok();
                    self.unfollowed.retain(|&pid, _| is_there(pid));
                    self.locked.retain(is_there);
                    self.proc.retain(is_there);
                }
                Err(error) => {
                    tracing::warn!("cannot list processes: {error}");
                    self.unread += 1;
                    // The listing may have stopped anywhere.
                    pids.clear();
                }
            }
        } else {
            pids.clear();
        }
        for &pid in &pids {
            let is_known = self.followed.contains_key(&pid) || self.unfollowed.contains_key(&pid);
            if !is_known && !self.process_events.has(pid) {
                self.process_events.put(pid);
            }
        }
        self.pids = pids;
    }
}

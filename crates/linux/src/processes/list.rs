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

use super::arrivals::Interest;
use super::turns::{self, CHECKS_PER_LIST};
use super::{Attach, News, Processes, Unfollowed};
use crate::clock;
use crate::module;

/// Processor time of a list before the rest waits for the next one; at most one more process is
/// checked after that. A daemon that merges as well must return sooner than a supervisor, which
/// hundreds of workers wait for.
const MAX_CPU: Nanos = 4_000_000;
const MAX_CPU_FOR_OTHERS: Nanos = 50_000_000;
/// A list takes at most this multiple of its processor time in real time: processes may make their
/// readers wait, and on a busy machine most of the elapsed time is not its own.
const MAX_WAITING: Nanos = 10;

impl Processes {
    /// Changes since the last process list, within some milliseconds.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    pub fn look(&mut self, to: &mut impl Attach) -> module::Result<News> {
        self.started = true;
        let begun = clock::now();
        for pid in self.exits.take() {
            self.unfollow(pid, false);
        }
        for pid in self.spaces.take_dead() {
            self.unfollow(pid, false);
            self.arrivals.put(pid);
        }
        self.take_events(begun);
        let are_moves_waiting = self.take_moves(begun);
        self.search(begun);
        // Measured after the search: a search of many processes can exceed the limit, and must not
        // prevent all checks.
        let (searched, used) = (clock::now(), clock::thread_cpu());
        let most = match self.is_supervisor {
            true => MAX_CPU_FOR_OTHERS,
            false => MAX_CPU,
        };
        let has_time = || {
            clock::thread_cpu().saturating_sub(used) < most
                && clock::now().saturating_sub(searched) < MAX_WAITING * most
        };
        while has_time()
            && let Some(pid) = self.arrivals.next(begun)
        {
            self.check(pid, to)?;
        }
        let most = match (self.is_told(), self.grouping.depends_on_cgroups()) {
            (false, _) => CHECKS_PER_LIST,
            (true, true) => turns::CHECKS_OF_GROUPS,
            (true, false) => turns::CHECKS_IF_TOLD,
        };
        if has_time() {
            let can_change = |why: &Unfollowed| *why != Unfollowed::KernelThread;
            let (followed, unfollowed) = (&self.followed, &self.unfollowed);
            for pid in self.turns.next(most, followed, unfollowed, can_change) {
                self.check(pid, to)?;
            }
        }
        let mut news = self.spaces.take_news();
        news.more = are_moves_waiting || self.arrivals.is_more(begun);
        Ok(news)
    }

    fn take_events(&mut self, now: Nanos) {
        let (followed, unfollowed) = (&self.followed, &self.unfollowed);
        let interest = Interest {
            known: &|pid| followed.contains_key(&pid) || unfollowed.contains_key(&pid),
            newcomers: self.grouping.need_search(),
            names: self.grouping.depends_on_names(),
        };
        for pid in self.arrivals.take_events(now, &interest) {
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
        } else if self.arrivals.is_search_due(now) {
            match self.arrivals.search(&self.proc, &mut pids) {
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
            if !is_known && !self.arrivals.has(pid) {
                self.arrivals.put(pid);
            }
        }
        self.pids = pids;
    }
}

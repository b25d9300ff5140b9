//! The process list: what changed since the one before.
//!
//! # Problem
//! Thousands of processes may have come at once, and the caller has other things to do.
//!
//! # Approach
//! A list takes in what is known at once (exits, events, now and then a search), and then looks at
//! one process after the other, newcomers first, until it has worked for some milliseconds. The
//! rest waits for the next list.

use uksm_policy::command::Nanos;

use super::arrivals::Interest;
use super::turns::{self, CHECKS_PER_LIST};
use super::{Attach, News, Processes, Unfollowed};
use crate::clock;
use crate::module;

/// The processor time that a list may take before the rest waits for the next one; one process
/// more, at the most, is looked at after that. Who merges as well has other things to do sooner
/// than a supervisor, which hundreds of workers wait for.
const MAX_CPU: Nanos = 4_000_000;
const MAX_CPU_FOR_OTHERS: Nanos = 50_000_000;
/// And no more than so many times that passes: processes may keep who reads them waiting. On a busy
/// machine most of what passes is not its own.
const MAX_WAITING: Nanos = 10;

impl Processes {
    /// What changed since the last process list, as far as some milliseconds go.
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
        // A search of many processes takes longer than that, and is no reason to look at none.
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

    /// Finds processes that nobody told of.
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
                    tracing::warn!("cannot look for processes: {error}");
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

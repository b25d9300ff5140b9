//! Which processes are to be looked at: what events tell, and what a search finds.
//!
//! # Problem
//! Events can be lost, and without the right to them there are none. A search lists every process
//! of the host.
//!
//! # Approach
//! With a [`Connector`], events tell what is new, and a search only repairs: it is made at the
//! start, after a loss, and then every [`SEARCH_INTERVAL`], or seldomer if it costs more than its
//! share. Without a connector each process list searches.

use std::os::fd::{AsFd as _, BorrowedFd};

use uksm_policy::command::Nanos;

use super::newcomers::Newcomers;
use crate::clock;
use crate::connector::{Connector, What};
use crate::proc::{self, Proc};

/// Between two searches, if there are events.
const SEARCH_INTERVAL: Nanos = 30_000_000_000;

/// At most one part in this many of one core goes into these searches.
const SEARCH_SHARE: Nanos = 2000;

/// What events are about, for who decides whether a process is looked at.
pub(super) struct Interest<'a> {
    /// Whether a process was looked at before.
    pub(super) known: &'a dyn Fn(u32) -> bool,
    /// Whether unknown ones may be chosen.
    pub(super) newcomers: bool,
    /// Whether a name can change what is chosen.
    pub(super) names: bool,
}

/// Who is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    connector: Option<Connector>,
    newcomers: Newcomers,
    search_due: Nanos,
    /// More events are there.
    more: bool,
    /// How often events were lost.
    lost: u64,
}

impl Arrivals {
    /// Events come from here.
    pub(super) fn set_connector(&mut self, connector: Connector) {
        self.connector = Some(connector);
    }

    /// Whether there are events.
    pub(super) fn is_told(&self) -> bool {
        self.connector.is_some()
    }

    /// How often events were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// What is readable when events have come, if there are any.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connector.as_ref()?.as_fd())
    }

    /// When somebody who waits is to be looked at.
    pub(super) fn ready_at(&self) -> Option<Nanos> {
        if self.more {
            return Some(0);
        }
        self.newcomers.ready_at()
    }

    /// Takes in the events that have come; gives the processes that exited.
    pub(super) fn take_events(&mut self, now: Nanos, interest: &Interest<'_>) -> Vec<u32> {
        let mut exited = Vec::new();
        let Some(connector) = &self.connector else {
            return exited;
        };
        let newcomers = &mut self.newcomers;
        let mut overflow = false;
        let taken = connector.take(|event| {
            let is_waiting = newcomers.has(event.pid);
            let is_looked_at = match event.what {
                What::Forked => {
                    newcomers.born(event.pid, event.at);
                    interest.newcomers
                }
                What::Execed => interest.newcomers || is_waiting || (interest.known)(event.pid),
                What::Renamed => interest.names && (interest.known)(event.pid),
                What::Exited => {
                    newcomers.exited(event.pid, event.at);
                    exited.push(event.pid);
                    false
                }
            };
            if is_looked_at {
                overflow |= !newcomers.put(event.pid, event.at);
            }
        });
        self.more = taken.more;
        if taken.lost || overflow {
            self.lost += 1;
            self.search_due = 0;
            if self.lost.is_power_of_two() {
                tracing::info!("events of processes were lost: all processes are searched");
            }
        }
        self.newcomers.advance(now);
        exited
    }

    /// Whether all processes are to be listed.
    pub(super) fn is_search_due(&self, now: Nanos) -> bool {
        // After a loss, all events that are there come first: they would be lost as well.
        self.connector.is_none() || now >= self.search_due && !self.more
    }

    /// All processes are searched for the next list.
    pub(super) fn search_now(&mut self) {
        self.search_due = 0;
    }

    /// Lists all processes into `pids`, ascending.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(super) fn search(&mut self, proc: &Proc, pids: &mut Vec<u32>) -> proc::Result<()> {
        let begun = clock::thread_cpu();
        let listed = proc.list(pids);
        let cost = clock::thread_cpu().saturating_sub(begun);
        self.search_due = clock::now() + SEARCH_INTERVAL.max(cost * SEARCH_SHARE);
        listed
    }

    /// A process is to be looked at, at once.
    pub(super) fn put(&mut self, pid: u32) {
        self.newcomers.put(pid, 0);
    }

    /// A process is to be looked at soon after this time.
    pub(super) fn put_at(&mut self, pid: u32, at: Nanos) {
        self.newcomers.put(pid, at);
    }

    /// A process was moved at this time, or is to be looked at at once if that is 0. Answers
    /// whether there is room.
    pub(super) fn moved(&mut self, pid: u32, at: Nanos) -> bool {
        self.newcomers.put(pid, at)
    }

    /// Whether a process is to be looked at.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.newcomers.has(pid)
    }

    /// Who is looked at next.
    pub(super) fn next(&mut self, now: Nanos) -> Option<u32> {
        self.newcomers.next(now)
    }

    /// Whether events or processes wait.
    pub(super) fn is_more(&self, now: Nanos) -> bool {
        self.more || self.newcomers.is_waiting(now)
    }
}

//! Processes that must be checked, from events and from searches.
//!
//! # Problem
//! Events can be lost, and without the right to receive them there are none. A search lists every
//! process of the host.
//!
//! # Approach
//! With a [`Connector`], events report new processes, and a search only repairs: there is one at
//! the start, after a loss, and then every [`SEARCH_INTERVAL_NS`], or less often if it costs more
//! than its share. Without a connector, each process list searches.

use std::os::fd::{AsFd as _, BorrowedFd};

use uksm_policy::command::Nanos;

use super::check_queue::CheckQueue;
use crate::clock;
use crate::connector::{Connector, EventKind};
use crate::proc::{self, Proc};

/// Time between two searches if there are events.
const SEARCH_INTERVAL_NS: Nanos = 30_000_000_000;

/// Searches use at most 1/`SEARCH_SHARE_DIVISOR` of one core.
const SEARCH_SHARE_DIVISOR: Nanos = 2000;

/// Selects the events that lead to a check.
pub(super) struct Interest<'a> {
    /// Whether a process was checked before.
    pub(super) known: &'a dyn Fn(u32) -> bool,
    /// Whether unknown processes may be chosen.
    pub(super) unknown: bool,
    /// Whether a name can change the choice.
    pub(super) names: bool,
}

/// Processes that must be checked.
#[derive(Debug, Default)]
pub(super) struct ProcessEvents {
    connector: Option<Connector>,
    queue: CheckQueue,
    search_due: Nanos,
    /// More events wait.
    more: bool,
    /// Number of losses of events.
    lost: u64,
}

impl ProcessEvents {
    /// Uses the events of this connector.
    pub(super) fn set_connector(&mut self, connector: Connector) {
        self.connector = Some(connector);
    }

    /// Whether there are events.
    pub(super) fn has_events(&self) -> bool {
        self.connector.is_some()
    }

    /// Number of losses of events.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Readable when events have come, if there are any.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connector.as_ref()?.as_fd())
    }

    /// Time at which a waiting process must be checked.
    pub(super) fn ready_at(&self) -> Option<Nanos> {
        if self.more {
            return Some(0);
        }
        self.queue.ready_at()
    }

    /// Reads the events that have come; returns the processes that exited.
    pub(super) fn take_events(&mut self, now: Nanos, interest: &Interest<'_>) -> Vec<u32> {
        let mut exited = Vec::new();
        let Some(connector) = &self.connector else {
            return exited;
        };
        let queue = &mut self.queue;
        let mut overflow = false;
        let taken = connector.take(|event| {
            let is_waiting = queue.has(event.pid);
            let is_looked_at = match event.kind {
                EventKind::Forked => {
                    queue.born(event.pid, event.at);
                    interest.unknown
                }
                EventKind::Execed => interest.unknown || is_waiting || (interest.known)(event.pid),
                EventKind::Renamed => interest.names && (interest.known)(event.pid),
                EventKind::Exited => {
                    queue.exited(event.pid, event.at);
                    exited.push(event.pid);
                    false
                }
            };
            if is_looked_at {
                overflow |= !queue.put(event.pid, event.at);
            }
        });
        self.more = taken.more;
        if taken.lost || overflow {
            self.lost += 1;
            self.search_due = 0;
            if self.lost.is_power_of_two() {
                tracing::info!("process events were lost: all processes are searched");
            }
        }
        self.queue.advance(now);
        exited
    }

    /// Whether all processes must be listed.
    pub(super) fn is_search_due(&self, now: Nanos) -> bool {
        // After a loss, the waiting events are read first: otherwise they would be lost as well.
        self.connector.is_none() || now >= self.search_due && !self.more
    }

    /// Makes the next list search all processes.
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
        self.search_due = clock::now() + SEARCH_INTERVAL_NS.max(cost * SEARCH_SHARE_DIVISOR);
        listed
    }

    /// A process must be checked at once.
    pub(super) fn put(&mut self, pid: u32) {
        self.queue.put(pid, 0);
    }

    /// A process must be checked soon after this time.
    pub(super) fn put_at(&mut self, pid: u32, at: Nanos) {
        self.queue.put(pid, at);
    }

    /// A process was moved at this time, or must be checked at once if that is 0. Returns whether
    /// there is room.
    pub(super) fn moved(&mut self, pid: u32, at: Nanos) -> bool {
        self.queue.put(pid, at)
    }

    /// Whether a process waits to be checked.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.queue.has(pid)
    }

    /// The process to check next.
    pub(super) fn next(&mut self, now: Nanos) -> Option<u32> {
        self.queue.next(now)
    }

    /// Whether events or processes wait.
    pub(super) fn is_more(&self, now: Nanos) -> bool {
        self.more || self.queue.is_waiting(now)
    }
}

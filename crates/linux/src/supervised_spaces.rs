//! Spaces that a supervisor attaches and hands over to a worker.
//!
//! # Problem
//! The worker of a group has no right to search for processes. Its supervisor finds its spaces and
//! attaches them in the worker's domain. A space that leaves the group must not share anything with
//! it once it belongs to another group.
//!
//! # Approach
//! The supervisor reports each space that arrived, left or changed its size, so that a worker of
//! calm processes can sleep. A space can hold frames of another group if its process was forked
//! there, or moved while there was no supervisor. Such a space waits until these frames are broken,
//! before anything in it is merged here. Only the worker detaches, so that none of its calls is
//! refused for a space that it still works on: at once if the process has ended, else when the
//! space shares nothing any more (`pending_unmerge`). Then the worker reports it, and the process
//! can be attached elsewhere.
//!
//! Reports that the supervisor does not accept yet are sent with the next list.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use uksm_policy::command::{EventSource, Nanos, SpaceArrival, SpaceId};

use crate::clock;
use crate::discovery::{Changes, Discovery, DiscoveryCounts, detach};
use crate::domain::Domain;
use crate::module;

mod pending_unmerge;

use pending_unmerge::{PendingUnmerges, UnmergeEnd};

/// Once a list has taken this time, the remaining breaking waits for the next list; at least one
/// stretch is broken in each.
const MAX_LIST_NS: Nanos = 4_000_000;

/// A report of the supervisor about one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceNotice {
    /// A space was attached.
    Arrived {
        /// A process that has it, for messages and hints.
        pid: u32,
        /// The arrival as the policy receives it.
        arrival: SpaceArrival,
        /// It can have frames of another domain.
        is_mixed: bool,
    },
    /// No process of the group has this space any more.
    Left {
        /// The space.
        space: SpaceId,
        /// A process still has it.
        lives: bool,
    },
    /// The size of this space has changed.
    Resized(SpaceId),
}

/// A report of the worker about one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceReport {
    /// A space that had left is detached and shares nothing with the group.
    Detached(SpaceId),
    /// According to the module, no process uses this space any more.
    Dead(SpaceId),
}

impl SpaceReport {
    /// The space that the report is about.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        match *self {
            SpaceReport::Detached(space) | SpaceReport::Dead(space) => space,
        }
    }
}

/// The supervisor as its worker uses it.
pub trait Supervisor {
    /// The next report, if there is one.
    fn receive(&mut self) -> Option<SpaceNotice>;

    /// Sends these reports; returns false if that was not possible.
    fn send(&mut self, reports: &[SpaceReport]) -> bool;

    /// Readable when there are reports.
    fn events(&self) -> BorrowedFd<'_>;
}

/// The spaces that were handed over.
#[derive(Debug)]
pub struct SupervisedSpaces<S> {
    supervisor: S,
    /// Each space with one of its processes.
    spaces: BTreeMap<SpaceId, u32>,
    /// Spaces that the policy learns of once they hold no frames of another domain.
    waiting: BTreeMap<SpaceId, (u32, SpaceArrival)>,
    /// Spaces that are attached but not merged, until they leave.
    aside: BTreeSet<SpaceId>,
    /// Spaces of `aside` whose removal the policy has not received yet.
    set_aside: Vec<SpaceId>,
    unmerges: PendingUnmerges,
    /// Reports that the supervisor has not received yet.
    unsent: Vec<SpaceReport>,
}

impl<S: Supervisor> SupervisedSpaces<S> {
    /// No spaces yet.
    pub fn new(supervisor: S) -> SupervisedSpaces<S> {
        SupervisedSpaces {
            supervisor,
            spaces: BTreeMap::new(),
            waiting: BTreeMap::new(),
            aside: BTreeSet::new(),
            set_aside: Vec::new(),
            unmerges: PendingUnmerges::default(),
            unsent: Vec::new(),
        }
    }

    /// Excludes these spaces from merging until they leave, including spaces not yet reported.
    pub(crate) fn set_aside(&mut self, spaces: &[SpaceId]) {
        for &space in spaces {
            self.aside.insert(space);
            if self.waiting.remove(&space).is_some() {
                self.unmerges.forget(space);
            }
            if self.spaces.remove(&space).is_some() {
                self.set_aside.push(space);
            }
        }
    }

    fn receive_notices<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let mut changes = Changes {
            left: std::mem::take(&mut self.set_aside),
            ..Changes::default()
        };
        while let Some(notice) = self.supervisor.receive() {
            match notice {
                SpaceNotice::Arrived { arrival, .. } if self.aside.contains(&arrival.space) => {}
                SpaceNotice::Arrived {
                    pid,
                    arrival,
                    is_mixed: true,
                } => {
                    self.waiting.insert(arrival.space, (pid, arrival));
                    self.unmerges.has_foreign(arrival.space, pid);
                }
                SpaceNotice::Arrived { pid, arrival, .. } => {
                    self.spaces.insert(arrival.space, pid);
                    changes.arrived.push(arrival);
                }
                SpaceNotice::Resized(space) => {
                    if self.has(space) {
                        changes.resized.push(space);
                    }
                }
                SpaceNotice::Left { space, lives } => {
                    let waited = self.waiting.remove(&space).map(|(pid, _)| pid);
                    let known = self.spaces.remove(&space);
                    let before = changes.arrived.len();
                    changes.arrived.retain(|arrival| arrival.space != space);
                    if changes.arrived.len() == before && known.is_some() {
                        changes.left.push(space);
                    }
                    let pid = known.or(waited);
                    self.aside.remove(&space);
                    if lives {
                        self.unmerges.leave(space, pid.unwrap_or(0));
                    } else {
                        self.unmerges.forget(space);
                        self.detach(space, domain)?;
                    }
                }
            }
        }
        Ok(changes)
    }

    fn detach<D: Domain>(&mut self, space: SpaceId, domain: &mut D) -> module::Result<()> {
        detach(space, domain)?;
        self.unsent.push(SpaceReport::Detached(space));
        Ok(())
    }

    /// Breaks pages that must not be shared: at least one stretch, and more while there is time.
    /// Detaches the spaces that have left.
    fn break_due<D: Domain>(
        &mut self,
        domain: &mut D,
        changes: &mut Changes,
    ) -> module::Result<()> {
        let begun = clock::now();
        while self.unmerges.due().is_some_and(|due| due <= clock::now()) {
            match self.unmerges.break_next(domain)? {
                Some(UnmergeEnd::Left(space)) => self.detach(space, domain)?,
                Some(UnmergeEnd::Clean(space)) => {
                    if let Some((pid, arrival)) = self.waiting.remove(&space) {
                        self.spaces.insert(space, pid);
                        changes.arrived.push(arrival);
                    }
                }
                None => {}
            }
            if clock::now().saturating_sub(begun) >= MAX_LIST_NS {
                break;
            }
        }
        Ok(())
    }

    fn send_reports(&mut self) {
        if !self.unsent.is_empty() && self.supervisor.send(&self.unsent) {
            self.unsent.clear();
        }
    }
}

impl<S: Supervisor> Discovery for SupervisedSpaces<S> {
    fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let mut changes = self.receive_notices(domain)?;
        self.break_due(domain, &mut changes)?;
        self.send_reports();
        changes.more = self.unmerges.due().is_some_and(|due| due <= clock::now());
        Ok(changes)
    }

    fn has(&self, space: SpaceId) -> bool {
        self.spaces.contains_key(&space)
    }

    fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.spaces.get(&space).copied()
    }

    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.keys().copied().collect()
    }

    fn note_dead(&mut self, space: SpaceId) {
        let report = SpaceReport::Dead(space);
        if self.has(space) && !self.unsent.contains(&report) {
            self.unsent.push(report);
            self.send_reports();
        }
    }

    fn note_foreign(&mut self, space: SpaceId) {
        if let Some(&pid) = self.spaces.get(&space) {
            self.unmerges.has_foreign(space, pid);
        }
    }

    fn told(&self) -> EventSource {
        EventSource::Spaces
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.supervisor.events())
    }

    fn ready_at(&self) -> Option<Nanos> {
        let unsent = (!self.unsent.is_empty()).then_some(0);
        unsent.or(self.unmerges.due())
    }

    fn counts(&self) -> DiscoveryCounts {
        DiscoveryCounts {
            processes: (self.spaces.len() + self.waiting.len()) as u64,
            parted: self.unmerges.pages(),
            locked: self.unmerges.locked().collect(),
            given_up: self.unmerges.given_up(),
            has_events: true,
            ..DiscoveryCounts::default()
        }
    }
}

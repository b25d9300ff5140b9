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
//! space shares nothing any more ([`pending_unmerge`]). Then the worker reports it, and the process can be
//! attached elsewhere.
//!
//! Reports that the supervisor does not accept yet are sent with the next list.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use uksm_policy::command::{Nanos, SpaceArrival, SpaceId, Told};

use crate::clock;
use crate::discovery::{Changes, Discovery, Found, detach};
use crate::domain::Domain;
use crate::module;

mod pending_unmerge;

use pending_unmerge::{Breaks, Ended};

/// Once a list has taken this time, the remaining breaking waits for the next list; at least one
/// stretch is broken in each.
const MAX_LIST: Nanos = 4_000_000;

/// A report of the supervisor about one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceNews {
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
pub enum SpaceWord {
    /// A space that had left is detached and shares nothing with the group.
    Detached(SpaceId),
    /// According to the module, no process uses this space any more.
    Dead(SpaceId),
}

impl SpaceWord {
    /// The space that the report is about.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        match *self {
            SpaceWord::Detached(space) | SpaceWord::Dead(space) => space,
        }
    }
}

/// The supervisor as its worker uses it.
pub trait Supervisor {
    /// The next report, if there is one.
    fn take(&mut self) -> Option<SpaceNews>;

    /// Sends these reports; returns false if that was not possible.
    fn tell(&mut self, words: &[SpaceWord]) -> bool;

    /// Readable when there are reports.
    fn events(&self) -> BorrowedFd<'_>;
}

/// The spaces that were handed over.
#[derive(Debug)]
pub struct HandedOver<S> {
    supervisor: S,
    /// Each space with one of its processes.
    spaces: BTreeMap<SpaceId, u32>,
    /// Spaces that the policy learns of once they hold no frames of another domain.
    waiting: BTreeMap<SpaceId, (u32, SpaceArrival)>,
    /// Spaces that are attached but not merged, until they leave.
    aside: BTreeSet<SpaceId>,
    /// Spaces of `aside` whose removal the policy has not received yet.
    set_aside: Vec<SpaceId>,
    breaks: Breaks,
    /// Reports that the supervisor has not received yet.
    untold: Vec<SpaceWord>,
}

impl<S: Supervisor> HandedOver<S> {
    /// No spaces yet.
    pub fn new(supervisor: S) -> HandedOver<S> {
        HandedOver {
            supervisor,
            spaces: BTreeMap::new(),
            waiting: BTreeMap::new(),
            aside: BTreeSet::new(),
            set_aside: Vec::new(),
            breaks: Breaks::default(),
            untold: Vec::new(),
        }
    }

    /// Excludes these spaces from merging until they leave, including spaces not yet reported.
    pub(crate) fn set_aside(&mut self, spaces: &[SpaceId]) {
        for &space in spaces {
            self.aside.insert(space);
            if self.waiting.remove(&space).is_some() {
                self.breaks.forget(space);
            }
            if self.spaces.remove(&space).is_some() {
                self.set_aside.push(space);
            }
        }
    }

    fn take_news<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let mut changes = Changes {
            left: std::mem::take(&mut self.set_aside),
            ..Changes::default()
        };
        while let Some(news) = self.supervisor.take() {
            match news {
                SpaceNews::Arrived { arrival, .. } if self.aside.contains(&arrival.space) => {}
                SpaceNews::Arrived {
                    pid,
                    arrival,
                    is_mixed: true,
                } => {
                    self.waiting.insert(arrival.space, (pid, arrival));
                    self.breaks.has_foreign(arrival.space, pid);
                }
                SpaceNews::Arrived { pid, arrival, .. } => {
                    self.spaces.insert(arrival.space, pid);
                    changes.arrived.push(arrival);
                }
                SpaceNews::Resized(space) => {
                    if self.has(space) {
                        changes.resized.push(space);
                    }
                }
                SpaceNews::Left { space, lives } => {
                    let waited = self.waiting.remove(&space).map(|(pid, _)| pid);
                    let known = self.spaces.remove(&space);
                    let told = changes.arrived.len();
                    changes.arrived.retain(|arrival| arrival.space != space);
                    if changes.arrived.len() == told && known.is_some() {
                        changes.left.push(space);
                    }
                    let pid = known.or(waited);
                    self.aside.remove(&space);
                    if lives {
                        self.breaks.leave(space, pid.unwrap_or(0));
                    } else {
                        self.breaks.forget(space);
                        self.detach(space, domain)?;
                    }
                }
            }
        }
        Ok(changes)
    }

    fn detach<D: Domain>(&mut self, space: SpaceId, domain: &mut D) -> module::Result<()> {
        detach(space, domain)?;
        self.untold.push(SpaceWord::Detached(space));
        Ok(())
    }

    /// Breaks pages that must not be shared: at least one stretch, and more while there is time.
    /// Detaches the spaces that have left.
    fn go_on_breaking<D: Domain>(
        &mut self,
        domain: &mut D,
        changes: &mut Changes,
    ) -> module::Result<()> {
        let begun = clock::now();
        while self.breaks.due().is_some_and(|due| due <= clock::now()) {
            match self.breaks.go_on(domain)? {
                Some(Ended::Left(space)) => self.detach(space, domain)?,
                Some(Ended::Clean(space)) => {
                    if let Some((pid, arrival)) = self.waiting.remove(&space) {
                        self.spaces.insert(space, pid);
                        changes.arrived.push(arrival);
                    }
                }
                None => {}
            }
            if clock::now().saturating_sub(begun) >= MAX_LIST {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self) {
        if !self.untold.is_empty() && self.supervisor.tell(&self.untold) {
            self.untold.clear();
        }
    }
}

impl<S: Supervisor> Discovery for HandedOver<S> {
    fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let mut changes = self.take_news(domain)?;
        self.go_on_breaking(domain, &mut changes)?;
        self.tell();
        changes.more = self.breaks.due().is_some_and(|due| due <= clock::now());
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
        let word = SpaceWord::Dead(space);
        if self.has(space) && !self.untold.contains(&word) {
            self.untold.push(word);
            self.tell();
        }
    }

    fn note_foreign(&mut self, space: SpaceId) {
        if let Some(&pid) = self.spaces.get(&space) {
            self.breaks.has_foreign(space, pid);
        }
    }

    fn told(&self) -> Told {
        Told::Spaces
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.supervisor.events())
    }

    fn ready_at(&self) -> Option<Nanos> {
        let words = (!self.untold.is_empty()).then_some(0);
        words.or(self.breaks.due())
    }

    fn found(&self) -> Found {
        Found {
            processes: (self.spaces.len() + self.waiting.len()) as u64,
            parted: self.breaks.pages(),
            locked: self.breaks.locked().collect(),
            given_up: self.breaks.given_up(),
            told: true,
            ..Found::default()
        }
    }
}

//! Spaces that a supervisor has attached and hands over.
//!
//! # Problem
//! The worker of a group has no right to look for processes. It learns of its spaces from its
//! supervisor, which attaches them in the worker's domain; and a space that leaves may not share
//! anything when it is another group's.
//!
//! # Approach
//! The supervisor tells of each space that came, of each that went, and of each whose size has
//! changed, so that a worker of calm processes can sleep. A space that can have frames of another
//! group, because its process was forked there or moved while there was no supervisor, waits until
//! those are broken, before anything of it is merged here. Only the worker detaches, so that no
//! call of its own is refused for a space that it still works on: at once if the process has ended,
//! else when nothing of it is shared any more ([`breaks`]). Then it says so, and the process may be
//! attached elsewhere.
//!
//! What cannot be said at once, because the supervisor is slow to listen, is said with the next
//! list.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use uksm_policy::command::{Nanos, SpaceArrival, SpaceId, Told};

use crate::clock;
use crate::discovery::{Changes, Discovery, Found, detach};
use crate::domain::Domain;
use crate::module;

mod breaks;

use breaks::{Breaks, Ended};

/// How long a list may take before what is to be broken waits for the next one; one stretch is
/// always broken.
const MAX_LIST: Nanos = 4_000_000;

/// What a supervisor tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceNews {
    /// A space was attached.
    Arrived {
        /// A process that has it, for messages and hints.
        pid: u32,
        /// What the policy is told.
        arrival: SpaceArrival,
        /// It can have frames of another domain.
        is_mixed: bool,
    },
    /// No process of the group has this space any more.
    Left {
        /// Which.
        space: SpaceId,
        /// A process has it still.
        lives: bool,
    },
    /// This space is of another size than before.
    Resized(SpaceId),
}

/// What a supervisor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceWord {
    /// A space that had left is detached, and shares nothing with the group.
    Detached(SpaceId),
    /// The module says that nobody uses this space any more.
    Dead(SpaceId),
}

impl SpaceWord {
    /// The space that it is about.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        match *self {
            SpaceWord::Detached(space) | SpaceWord::Dead(space) => space,
        }
    }
}

/// The supervisor, as its worker sees it.
pub trait Supervisor {
    /// The next news, if there is some.
    fn take(&mut self) -> Option<SpaceNews>;

    /// Says this, and answers whether that was possible.
    fn tell(&mut self, words: &[SpaceWord]) -> bool;

    /// What is readable when there is news.
    fn events(&self) -> BorrowedFd<'_>;
}

/// The spaces that were handed over.
#[derive(Debug)]
pub struct HandedOver<S> {
    supervisor: S,
    /// A process of each.
    spaces: BTreeMap<SpaceId, u32>,
    /// Those that the policy is told of when nothing of another domain is left in them.
    waiting: BTreeMap<SpaceId, (u32, SpaceArrival)>,
    /// Attached, and left alone until they leave.
    aside: BTreeSet<SpaceId>,
    /// Of those, which the policy has still to be told of.
    set_aside: Vec<SpaceId>,
    breaks: Breaks,
    /// What the supervisor was not told yet.
    untold: Vec<SpaceWord>,
}

impl<S: Supervisor> HandedOver<S> {
    /// None yet.
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

    /// Leaves these alone from now on, whether it has heard of them yet or not, until they leave.
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

    /// Breaks what may not be shared, one stretch at least, and as long as there is time; detaches
    /// those that have left.
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

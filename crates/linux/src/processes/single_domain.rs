//! Processes for one machine, which searches for them itself, and attaches all to its one domain.

use std::os::fd::BorrowedFd;

use uksm_policy::command::{Nanos, SpaceId, Told};

use super::{Place, Processes};
use crate::discovery::{self, Changes, Discovery, Found};
use crate::domain::Domain;
use crate::module;
use crate::selection::GroupId;

/// The only group.
fn place(space: SpaceId) -> Place {
    (GroupId::default(), space)
}

impl Processes {
    /// Changes since the last process list, within some milliseconds. Spaces that left are
    /// detached.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    pub fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let news = self.look(domain)?;
        for left in &news.left {
            discovery::detach(left.space, domain)?;
        }
        let told = news.left.iter().filter(|left| left.was_told);
        Ok(Changes {
            arrived: news.arrived.iter().map(|new| new.arrival).collect(),
            left: told.map(|left| left.space).collect(),
            resized: vec![],
            more: news.more,
        })
    }
}

impl Discovery for Processes {
    fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        self.list(domain)
    }

    fn has(&self, space: SpaceId) -> bool {
        self.spaces.has(place(space))
    }

    fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.spaces.process_of(place(space))
    }

    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.all().map(|(_, space)| space).collect()
    }

    fn note_dead(&mut self, space: SpaceId) {
        self.note_dead_in(place(space));
    }

    fn note_foreign(&mut self, _: SpaceId) {}

    fn told(&self) -> Told {
        match self.is_told() {
            true => Told::Processes,
            false => Told::Nothing,
        }
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events()
    }

    fn ready_at(&self) -> Option<Nanos> {
        self.ready_at()
    }

    fn found(&self) -> Found {
        let failures = self.failures();
        Found {
            processes: self.followed.len() as u64,
            failed: failures.map(|(pid, _, errno)| (pid, errno)).collect(),
            unread: self.unread(),
            shortages: self.shortages(),
            parted: 0,
            locked: self.locked().collect(),
            given_up: self.given_up(),
            told: self.is_told(),
            events_lost: self.events_lost(),
        }
    }
}

//! Processes for one machine, which searches for them itself, and attaches all to its one domain.

use std::os::fd::BorrowedFd;

use uksm_policy::command::{EventSource, Nanos, SpaceId};

use super::{GroupSpace, Processes};
use crate::discovery::{self, Changes, Discovery, DiscoveryCounts};
use crate::domain::Domain;
use crate::module;
use crate::selection::GroupId;

/// The only group.
fn place(space: SpaceId) -> GroupSpace {
    (GroupId::default(), space)
}

impl Processes {
    /// Changes since the last process list, within some milliseconds. Spaces that left are
    /// detached.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    pub fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes> {
        let changes = self.discover(domain)?;
        for left in &changes.left {
            discovery::detach(left.space, domain)?;
        }
        let reported = changes.left.iter().filter(|left| left.was_reported);
        Ok(Changes {
            arrived: changes.arrived.iter().map(|new| new.arrival).collect(),
            left: reported.map(|left| left.space).collect(),
            resized: vec![],
            more: changes.more,
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

    fn told(&self) -> EventSource {
        match self.has_events() {
            true => EventSource::Processes,
            false => EventSource::Nothing,
        }
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events()
    }

    fn ready_at(&self) -> Option<Nanos> {
        self.ready_at()
    }

    fn counts(&self) -> DiscoveryCounts {
        let failures = self.failures();
        DiscoveryCounts {
            processes: self.followed.len() as u64,
            failed: failures.map(|(pid, _, errno)| (pid, errno)).collect(),
            unread: self.unread(),
            shortages: self.shortages(),
            parted: 0,
            locked: self.locked().collect(),
            given_up: self.given_up(),
            has_events: self.has_events(),
            events_lost: self.events_lost(),
        }
    }
}

//! The source of a machine's spaces.
//!
//! # Problem
//! A daemon searches for processes itself. A worker has no right to search for them: its supervisor
//! sends it spaces that are attached already.
//!
//! # Approach
//! A machine uses a [`Discovery`]: [`Processes`](crate::processes::Processes) searches for
//! processes; [`SupervisedSpaces`](crate::supervised_spaces::SupervisedSpaces) has the spaces that
//! a supervisor sent.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use uksm_policy::command::{EventSource, Nanos, SpaceArrival, SpaceId};

use crate::domain::Domain;
use crate::module;

/// Changes since the previous process list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Spaces that came.
    pub arrived: Vec<SpaceArrival>,
    /// Spaces that went.
    pub left: Vec<SpaceId>,
    /// Spaces whose size has changed, if that is watched.
    pub resized: Vec<SpaceId>,
    /// Whether processes still wait for their check.
    pub more: bool,
}

/// Counts, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryCounts {
    /// Processes followed.
    pub processes: u64,
    /// Processes that were chosen and could not be attached.
    pub failed: Vec<(u32, Errno)>,
    /// Failed reads of processes, after which the known state was kept.
    pub unread: u64,
    /// Processes that could not be attached for lack of memory, repetitions included.
    pub shortages: u64,
    /// Processes that hold their own locks, so that they cannot be attached or broken, with the
    /// duration.
    pub locked: Vec<(u32, Nanos)>,
    /// Calls that gave up on such processes.
    pub given_up: u64,
    /// Pages that were broken because their sharers must not share.
    pub parted: u64,
    /// Whether events report processes. Otherwise only searches find them.
    pub has_events: bool,
    /// Number of losses of events; after each, all processes were searched.
    pub events_lost: u64,
}

/// Provides the spaces.
pub trait Discovery {
    /// Changes since the last call, within some milliseconds.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    fn list<D: Domain>(&mut self, domain: &mut D) -> module::Result<Changes>;

    /// Whether a space is attached, and may be worked on.
    fn has(&self, space: SpaceId) -> bool;

    /// A process whose address space this is.
    fn process_of(&self, space: SpaceId) -> Option<u32>;

    /// All spaces.
    fn spaces(&self) -> Vec<SpaceId>;

    /// Notes that the module calls a space dead.
    fn note_dead(&mut self, space: SpaceId);

    /// Notes that SAMPLE found a frame of another domain in a space.
    fn note_foreign(&mut self, space: SpaceId);

    /// The kind of its events, so that the policy need not poll.
    fn told(&self) -> EventSource;

    /// Readable when there are changes, if events report them; the next list reads them.
    fn events(&self) -> Option<BorrowedFd<'_>>;

    /// Time at which the next list will have something to do, if that is known.
    fn ready_at(&self) -> Option<Nanos>;

    /// Counts.
    fn counts(&self) -> DiscoveryCounts;
}

/// Detaches a space, if the module still knows it.
///
/// # Errors
/// The module fails.
pub fn detach<D: Domain>(space: SpaceId, domain: &mut D) -> module::Result<()> {
    match domain.detach(space) {
        Err(error) if error.errno() != Some(Errno::NOENT) => Err(error),
        _ => Ok(()),
    }
}

//! Where a machine learns of spaces.
//!
//! # Problem
//! A daemon looks for processes itself. A worker has no right to look for them: its supervisor
//! sends it spaces that are attached already.
//!
//! # Approach
//! A machine asks its [`Discovery`]: [`Processes`](crate::processes::Processes) looks for
//! processes; [`HandedOver`](crate::handed_over::HandedOver) has the spaces that a supervisor sent.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use uksm_policy::command::{Nanos, SpaceArrival, SpaceId, Told};

use crate::domain::Domain;
use crate::module;

/// What changed since the process list before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Spaces that came.
    pub arrived: Vec<SpaceArrival>,
    /// Spaces that went.
    pub left: Vec<SpaceId>,
    /// Spaces of another size than before, if somebody watches that.
    pub resized: Vec<SpaceId>,
    /// Whether processes are still to be looked at.
    pub more: bool,
}

/// Counts, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Processes followed.
    pub processes: u64,
    /// Those that were chosen and could not be attached.
    pub failed: Vec<(u32, Errno)>,
    /// Reads of processes that failed and left everything as it was.
    pub unread: u64,
    /// Processes that could not be attached for lack of memory, repetitions included.
    pub shortages: u64,
    /// Processes that hold their own locks, so that they cannot be attached or broken, and for how
    /// long.
    pub locked: Vec<(u32, Nanos)>,
    /// Calls that gave up on such.
    pub given_up: u64,
    /// Pages that were broken because those who shared them may not.
    pub parted: u64,
    /// Whether events tell of processes. Else they are only looked for.
    pub told: bool,
    /// How often events were lost; each time all processes were searched.
    pub events_lost: u64,
}

/// Knows which spaces there are.
pub trait Discovery {
    /// What changed since the last time, as far as some milliseconds go.
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

    /// What it is told, so that the policy need not ask.
    fn told(&self) -> Told;

    /// What is readable when there is news, if events tell of it; the next list takes it in.
    fn events(&self) -> Option<BorrowedFd<'_>>;

    /// When the next list will have something to do, if that is known.
    fn ready_at(&self) -> Option<Nanos>;

    /// Counts.
    fn found(&self) -> Found;
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

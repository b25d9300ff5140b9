//! The accesses of machines to their files.
//!
//! Disks of all machines are equal: the system's files, a tree of sources with the objects made
//! from it, and files that are served. Each has a range of blocks of its own.

mod build;
mod files;
mod web;

pub(super) use files::Access;
use std::time::Duration;

use super::{Load, Machine, SYSTEM_REQUESTS};
use crate::rng::Rng;
use files::{Files, SYSTEM_FILES, every};

/// All accesses of a machine, in the order of time.
pub(super) fn of(machine: &Machine) -> Vec<Access> {
    let mut accesses = match machine.load {
        Load::Build => build::accesses(machine),
        Load::Web => web::accesses(machine),
    };
    accesses.extend(system(machine));
    accesses.retain(|access| access.at < machine.length);
    accesses.sort_by_key(|access| access.at);
    accesses
}

/// Files of the system that any machine reads now and then: programs, libraries, programs of
/// timers.
const FILES_OF_SYSTEM: usize = 300;
/// Interval of their reads.
const SYSTEM_EVERY: Duration = Duration::from_millis(500);

fn system(machine: &Machine) -> Vec<Access> {
    let files = Files::new(machine.seed, 0, SYSTEM_FILES, FILES_OF_SYSTEM);
    let mut draws = Rng::new(machine.seed, SYSTEM_REQUESTS + machine.number);
    every(SYSTEM_EVERY * machine.slowness, machine.length)
        .map(|at| files.read(draws.below(FILES_OF_SYSTEM), at))
        .collect()
}

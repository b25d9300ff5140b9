//! Hints of I/O (XLH §4.1) and of growing processes, from BPF programs in the kernel.
//!
//! # Problem
//! The daemon needs to know which memory of followed processes the I/O of a host touched, and which
//! of these processes grow, at a cost that is not noticeable.
//!
//! # Approach
//! The programs of `bpf/` run at the end of the kernel functions through which file data passes,
//! and at the beginning of the function that adds a page table to a process. They look the process
//! up in a table that is kept here, and write the touched range into a ring that both sides have
//! mapped; reading from it is no system call. A process may fill only a part of the ring, so that
//! its heavy I/O does not cause the loss of hints of others. The kernel counts the hints that it
//! drops, by space. It learns in batches of `TURN_HINTS` that hints were read. If a kernel lacks
//! one of the functions, the others are used, and [`Hints::missing`] names it.
//!
//! Loading the programs takes a tenth of a second of one core, mostly for reading the kernel's BTF.
//! A separate thread does that, some time after the daemon's start, when it is less busy
//! ([`Loading`]).
//!
//! # Units
//! The ring has room for some 21,000 hints, two thirds of them for one process. A call of a process
//! that is not followed costs one lookup.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use uksm_bpf::{
    GROWTH_PROGRAM, IO_PROGRAMS, UKSM_HINT_COUNT_CALLS, UKSM_HINT_COUNT_LOST,
    UKSM_HINT_COUNT_NANOSECONDS, UKSM_HINT_COUNT_OTHER, UKSM_HINT_GROWTH, uksm_follower, uksm_hint,
};
use uksm_policy::command::SpaceId;

use crate::trim_heap;

mod batch;
mod feed;
mod socket;

pub use batch::HintBatch;
use batch::MAX_BATCH_HINTS;
pub use feed::Feed;
pub use socket::{HintReceiver, HintSender, pair};

/// A process's hints count as waiting until this number of hints, of all processes, has been read.
const TURN_HINTS: u64 = 512;

/// The reason why there are no hints.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not publish the layout of its structures.
    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux): {0}")]
    Btf(#[source] aya::BtfError),
    /// The programs cannot be loaded.
    #[error("the programs cannot be loaded: {0}")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// None of the functions to which the programs attach is available.
    #[error("no kernel function can be watched: {0}")]
    Attach(String),
}

/// The error of a step of loading.
pub(crate) fn load_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Load(Box::new(error))
}

/// Gives the kernel an object file of `bpf/`: its maps exist afterwards, its programs are not
/// loaded yet.
pub(crate) fn load_object(object: &[u8]) -> Result<(Ebpf, Btf), Error> {
    let btf = Btf::from_sys_fs().map_err(Error::Btf)?;
    let programs = EbpfLoader::new().btf(Some(&btf)).load(object);
    Ok((programs.map_err(load_error)?, btf))
}

/// Takes the map of this name out of an object.
pub(crate) fn take_map<M: TryFrom<Map, Error = MapError>>(
    programs: &mut Ebpf,
    name: &str,
) -> Result<M, Error> {
    let absent = || load_error(std::io::Error::other(format!("no map {name}")));
    let map = programs.take_map(name).ok_or_else(absent)?;
    map.try_into().map_err(load_error)
}

/// Counts of the programs, summed over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls of followed processes that touched memory.
    pub calls: u64,
    /// Hints that were dropped because the ring was full.
    pub lost: u64,
    /// Calls whose memory is described by pages, not by addresses.
    pub other: u64,
    /// CPU time of the programs, for calls of all processes, estimated from one run in 64. Without
    /// the kernel's time to enter and leave a program.
    pub taken: Duration,
}

/// The loaded programs. Dropping this unloads them.
pub struct Hints {
    followed: HashMap<MapData, u32, [u8; size_of::<uksm_follower>()]>,
    ring: RingBuf<MapData>,
    turn: Array<MapData, u32>,
    turns: u32,
    taken_in_turn: u64,
    lost_of: HashMap<MapData, u32, u32>,
    counts: PerCpuArray<MapData, u64>,
    missing: Vec<String>,
    lost: u64,
    /// Holds the programs.
    _programs: Ebpf,
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hints")
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

/// Readable when hints wait.
impl AsFd for Hints {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Hints {
    /// Loads and attaches the programs.
    ///
    /// # Errors
    /// No BTF, no right (`CAP_BPF` and `CAP_PERFMON`), or a kernel without any of the functions.
    pub fn open() -> Result<Hints, Error> {
        let opened = Hints::load();
        trim_heap::trim();
        opened
    }

    fn load() -> Result<Hints, Error> {
        let (mut programs, btf) = load_object(uksm_bpf::HINTS)?;
        let mut missing = vec![];
        for &(name, function) in IO_PROGRAMS.iter().chain([&GROWTH_PROGRAM]) {
            if let Err(error) = attach(&mut programs, name, function, &btf) {
                missing.push(format!("{function}: {error}"));
            }
        }
        if missing.len() > IO_PROGRAMS.len() {
            return Err(Error::Attach(missing.swap_remove(0)));
        }
        Ok(Hints {
            followed: take_map(&mut programs, "followed")?,
            ring: take_map(&mut programs, "hints")?,
            turn: take_map(&mut programs, "turn")?,
            turns: 0,
            taken_in_turn: 0,
            lost_of: take_map(&mut programs, "lost")?,
            counts: take_map(&mut programs, "counts")?,
            missing,
            lost: 0,
            _programs: programs,
        })
    }

    /// Functions that cannot be watched here, and why.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Starts hints of this process, which has this space.
    pub fn follow(&mut self, pid: u32, space: SpaceId) {
        let follower = uksm_follower::new(space.0, self.turns);
        if let Err(error) = self.followed.insert(pid, follower.bytes(), 0) {
            tracing::debug!("no hints of process {pid}: {error}");
        }
    }

    /// Ends hints of this process.
    pub fn forget(&mut self, pid: u32) {
        // It may be missing: the table is bounded.
        let _unknown = self.followed.remove(&pid);
    }

    /// Reads the hints that wait, a bounded number.
    pub fn take(&mut self) -> HintBatch {
        let (mut hints, mut grown) = (vec![], vec![]);
        while hints.len() < MAX_BATCH_HINTS {
            let Some(record) = self.ring.next() else {
                break;
            };
            let Some(hint) = uksm_hint::read(&record) else {
                continue;
            };
            let space = SpaceId(hint.space);
            if hint.source == UKSM_HINT_GROWTH {
                grown.push(space);
                continue;
            }
            hints.push(socket::hint_of(&hint));
        }
        let mut taken = HintBatch {
            more: hints.len() == MAX_BATCH_HINTS,
            hints,
            grown,
            ..HintBatch::default()
        };
        self.taken_in_turn += (taken.hints.len() + taken.grown.len()) as u64;
        // At a low rate of hints none is lost.
        if self.taken_in_turn >= TURN_HINTS {
            self.end_turn(&mut taken);
        }
        taken
    }

    /// Reports to the programs that the hints were read, and collects the losses.
    fn end_turn(&mut self, taken: &mut HintBatch) {
        self.taken_in_turn = 0;
        self.turns = self.turns.wrapping_add(1);
        if let Err(error) = self.turn.set(0, self.turns, 0) {
            tracing::debug!("cannot begin a turn of the hint programs: {error}");
        }
        let lost = self.count(UKSM_HINT_COUNT_LOST);
        taken.lost = growth(&mut self.lost, lost);
        if taken.lost == 0 {
            return;
        }
        let spaces: Vec<u32> = self.lost_of.keys().filter_map(Result::ok).collect();
        for space in spaces {
            // A further loss adds it again.
            let _gone = self.lost_of.remove(&space);
            taken.lost_of.push(SpaceId(space));
        }
    }

    /// The counts of the programs.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            calls: self.count(UKSM_HINT_COUNT_CALLS),
            lost: self.count(UKSM_HINT_COUNT_LOST),
            other: self.count(UKSM_HINT_COUNT_OTHER),
            taken: Duration::from_nanos(self.count(UKSM_HINT_COUNT_NANOSECONDS)),
        }
    }

    fn count(&self, which: u32) -> u64 {
        let counts = self.counts.get(&which, 0);
        counts.map_or(0, |processors| processors.iter().sum())
    }
}

/// The increase of a counter over its highest value seen. A map that cannot be read counts as 0,
/// which is no increase.
fn growth(highest: &mut u64, now: u64) -> u64 {
    let grown = now.saturating_sub(*highest);
    *highest = now.max(*highest);
    grown
}

/// Programs that are loaded in a separate thread.
#[derive(Debug)]
pub struct Loading(Option<JoinHandle<Result<Hints, Error>>>);

impl Loading {
    /// Loads the programs after this time.
    #[must_use]
    pub fn after(wait: Duration) -> Loading {
        Loading(Some(std::thread::spawn(move || {
            std::thread::sleep(wait);
            Hints::open()
        })))
    }

    /// The result, once, as soon as there is one.
    pub fn take(&mut self) -> Option<Result<Hints, Error>> {
        let thread = self.0.take_if(|thread| thread.is_finished())?;
        let failed = |_| Err(load_error(std::io::Error::other("the loader failed")));
        Some(thread.join().unwrap_or_else(failed))
    }
}

/// Loads one program and attaches it to the beginning or the end of this function, as the program
/// is written for.
fn attach(programs: &mut Ebpf, name: &str, function: &str, btf: &Btf) -> Result<(), ProgramError> {
    match programs.program_mut(name).expect("bpf/ has it") {
        Program::FEntry(program) => {
            program.load(function, btf)?;
            program.attach()?;
        }
        Program::FExit(program) => {
            program.load(function, btf)?;
            program.attach()?;
        }
        _ => return Err(ProgramError::UnexpectedProgramType),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_cannot_be_read_is_no_loss() {
        let mut highest = 0;
        let counts = [5, 5, 0, 7, 0, 8];
        let grown = counts.map(|now| growth(&mut highest, now));
        assert_eq!(grown, [5, 0, 0, 2, 0, 1]);
    }
}

//! Events of moves between control groups, from a BPF program in the kernel.
//!
//! # Problem
//! Where control groups decide which processes may share memory, a moved process must be checked
//! soon. No event of the [`connector`](crate::connector) reports a move, and checking all processes
//! in turn takes minutes where there are thousands.
//!
//! # Approach
//! The program of `bpf/cgroup_moves.bpf.c` writes the ids of moved processes into a ring. A process
//! is in the ring once, however often it is moved. Ids that find the ring full are counted, and the
//! caller then checks all processes. A sleeping caller can poll the ring.
//!
//! A separate thread loads the program when events of moves are first wanted
//! ([`CgroupMoveEvents`]). Without the program, processes are checked in turn.
//!
//! # Units
//! Process ids. The ring holds 8,192; one take returns at most 1,024, with a call of a microsecond
//! for each.
//!
//! # Source
//! The tracepoint `cgroup:cgroup_attach_task`; decision 38.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::RawTracePoint;
use rustix::event::{EventfdFlags, eventfd};
use uksm_bpf::{CGROUP_MOVES, CGROUP_MOVES_PROGRAM, UKSM_MOVE_COUNT_LOST, UKSM_MOVE_COUNT_MOVES};

use crate::connector::ReadSummary;
use crate::hints::{Error, load_error, load_object, take_map};
use crate::trim_heap;

/// Maximum number of processes of one [`CgroupMoves::take`].
const MAX_MOVES_PER_READ: usize = 1024;

/// The loaded program. Dropping this unloads it.
pub struct CgroupMoves {
    ring: RingBuf<MapData>,
    waiting: HashMap<MapData, u32, u8>,
    counts: Array<MapData, u64>,
    lost: u64,
    /// Keeps the program loaded.
    _program: Ebpf,
}

impl std::fmt::Debug for CgroupMoves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CgroupMoves").finish_non_exhaustive()
    }
}

/// Readable when processes have moved.
impl AsFd for CgroupMoves {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl CgroupMoves {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// No BTF, no right (`CAP_BPF` and `CAP_PERFMON`), or a kernel without the tracepoint.
    pub fn open() -> Result<CgroupMoves, Error> {
        let opened = CgroupMoves::load();
        trim_heap::trim();
        opened
    }

    fn load() -> Result<CgroupMoves, Error> {
        let (mut programs, _btf) = load_object(CGROUP_MOVES)?;
        let (name, tracepoint) = CGROUP_MOVES_PROGRAM;
        let program = programs.program_mut(name);
        let program: &mut RawTracePoint = program
            .expect("bpf/ has it")
            .try_into()
            .map_err(load_error)?;
        program.load().map_err(load_error)?;
        program
            .attach(tracepoint)
            .map_err(|error| Error::Attach(format!("{tracepoint}: {error}")))?;
        Ok(CgroupMoves {
            ring: take_map(&mut programs, "moved")?,
            waiting: take_map(&mut programs, "waiting")?,
            counts: take_map(&mut programs, "move_counts")?,
            lost: 0,
            _program: programs,
        })
    }

    /// Calls `each` for each process that has moved, a bounded number.
    pub fn take(&mut self, mut each: impl FnMut(u32)) -> ReadSummary {
        let mut taken = ReadSummary::default();
        for _ in 0..MAX_MOVES_PER_READ {
            let Some(record) = self.ring.next() else {
                // Without a loss, the ring was never full.
                let lost = self.count(UKSM_MOVE_COUNT_LOST);
                taken.lost = lost > std::mem::replace(&mut self.lost, lost);
                return taken;
            };
            let Some(&pid) = record.first_chunk() else {
                continue;
            };
            drop(record);
            let pid = u32::from_ne_bytes(pid);
            // Removed before the check, so that later moves of the process are reported again. The
            // process may be missing if the table was full.
            let _missing = self.waiting.remove(&pid);
            each(pid);
        }
        taken.more = true;
        taken
    }

    /// Moves that the program has seen, of threads and in any hierarchy.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.count(UKSM_MOVE_COUNT_MOVES)
    }

    fn count(&self, which: u32) -> u64 {
        self.counts.get(&which, 0).unwrap_or(0)
    }
}

/// The program, from the first demand on.
#[derive(Debug, Default)]
pub enum CgroupMoveEvents {
    /// Events of moves are not wanted.
    #[default]
    Unwanted,
    /// A thread loads the program, and makes this descriptor readable when it is done.
    Loading(JoinHandle<Result<CgroupMoves, Error>>, Arc<OwnedFd>),
    /// The program runs.
    Running(Box<CgroupMoves>),
    /// The program cannot be used, for this reason.
    Unavailable(String),
}

impl CgroupMoveEvents {
    /// Asks for events of moves.
    pub fn want(&mut self) {
        if !matches!(self, CgroupMoveEvents::Unwanted) {
            return;
        }
        *self = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(done) => {
                let done = Arc::new(done);
                let ours = Arc::clone(&done);
                let thread = std::thread::spawn(move || {
                    let loaded = CgroupMoves::open();
                    // A full counter is readable.
                    let _full = rustix::io::write(&ours, &1u64.to_ne_bytes());
                    loaded
                });
                CgroupMoveEvents::Loading(thread, done)
            }
            Err(errno) => CgroupMoveEvents::Unavailable(errno.to_string()),
        };
    }

    /// Readable when moves wait, or the program has been loaded.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        match self {
            CgroupMoveEvents::Loading(_, done) => Some(done.as_fd()),
            CgroupMoveEvents::Running(moves) => Some(moves.as_fd()),
            CgroupMoveEvents::Unwanted | CgroupMoveEvents::Unavailable(_) => None,
        }
    }

    /// Whether moves are reported.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, CgroupMoveEvents::Running(_))
    }

    /// Reads moves as [`CgroupMoves::take`] does. Moves before the program ran were not reported,
    /// so loading it counts as a loss.
    pub fn take(&mut self, each: impl FnMut(u32)) -> ReadSummary {
        if let CgroupMoveEvents::Running(moves) = self {
            return moves.take(each);
        }
        if !matches!(self, CgroupMoveEvents::Loading(thread, _) if thread.is_finished()) {
            return ReadSummary::default();
        }
        let CgroupMoveEvents::Loading(thread, _) = std::mem::take(self) else {
            return ReadSummary::default();
        };
        let failed = |_| Err(load_error(std::io::Error::other("the loader failed")));
        match thread.join().unwrap_or_else(failed) {
            Ok(moves) => {
                *self = CgroupMoveEvents::Running(Box::new(moves));
                ReadSummary {
                    lost: true,
                    more: false,
                }
            }
            Err(error) => {
                tracing::info!("no events report moves between control groups: {error}");
                *self = CgroupMoveEvents::Unavailable(error.to_string());
                ReadSummary::default()
            }
        }
    }
}

//! Events of moves between control groups, from a BPF program in the kernel.
//!
//! # Problem
//! Where control groups decide which processes may share memory, a moved process must be checked
//! soon. No event of the [`connector`](crate::connector) reports a move, and checking all processes
//! in turn takes minutes where there are thousands.
//!
//! # Approach
//! The program of `bpf/moves.bpf.c` writes the ids of moved processes into a ring. A process is in
//! the ring once, however often it is moved. Ids that find the ring full are counted, and the
//! caller then checks all processes. A sleeping caller can poll the ring.
//!
//! A separate thread loads the program when events of moves are first wanted ([`MoveEvents`]).
//! Without the program, processes are checked in turn.
//!
//! # Units
//! Process ids. The ring holds 8,192; one take returns at most 1,024, with a call of a microsecond
//! for each.
//!
//! # Source
//! The tracepoint `cgroup:cgroup_attach_task`; decision 38.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use rustix::event::{EventfdFlags, eventfd};
use uksm_bpf::{MOVES_PROGRAM, UKSM_MOVE_COUNT_LOST, UKSM_MOVE_COUNT_MOVES};

use crate::heap;
use crate::hints::Error;

/// Maximum number of processes of one [`Moves::take`].
const MAX_TAKEN: usize = 1024;

/// The result of [`Moves::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Some moves were not reported.
    pub lost: bool,
    /// More moves wait.
    pub more: bool,
}

/// The loaded program. Dropping this unloads it.
pub struct Moves {
    ring: RingBuf<MapData>,
    waiting: HashMap<MapData, u32, u8>,
    counts: Array<MapData, u64>,
    lost: u64,
    /// Keeps the program loaded.
    _program: Ebpf,
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moves").finish_non_exhaustive()
    }
}

/// Readable when processes have moved.
impl AsFd for Moves {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.ring.as_raw_fd();
        // SAFETY: the ring owns the descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

fn load(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Load(Box::new(error))
}

impl Moves {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// No BTF, no right (`CAP_BPF` and `CAP_PERFMON`), or a kernel without the tracepoint.
    pub fn open() -> Result<Moves, Error> {
        let opened = Moves::load();
        heap::trim();
        opened
    }

    fn load() -> Result<Moves, Error> {
        let btf = Btf::from_sys_fs().map_err(Error::Btf)?;
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .load(uksm_bpf::MOVES)
            .map_err(load)?;
        let (name, tracepoint) = MOVES_PROGRAM;
        let program = programs.program_mut(name);
        let program: &mut RawTracePoint = program.expect("bpf/ has it").try_into().map_err(load)?;
        program.load().map_err(load)?;
        program
            .attach(tracepoint)
            .map_err(|error| Error::Attach(format!("{tracepoint}: {error}")))?;
        let mut map = |name: &str| {
            programs.take_map(name).ok_or_else(|| {
                let what = format!("no map {name}");
                load(std::io::Error::other(what))
            })
        };
        Ok(Moves {
            ring: map("moved")?.try_into().map_err(load)?,
            waiting: map("waiting")?.try_into().map_err(load)?,
            counts: map("move_counts")?.try_into().map_err(load)?,
            lost: 0,
            _program: programs,
        })
    }

    /// Calls `tell` for each process that has moved, a bounded number.
    pub fn take(&mut self, mut tell: impl FnMut(u32)) -> Taken {
        let mut taken = Taken::default();
        for _ in 0..MAX_TAKEN {
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
            tell(pid);
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
pub enum MoveEvents {
    /// Events of moves are not wanted.
    #[default]
    Unwanted,
    /// A thread loads the program, and makes this descriptor readable when it is done.
    Loading(JoinHandle<Result<Moves, Error>>, Arc<OwnedFd>),
    /// The program runs.
    Told(Box<Moves>),
    /// The program cannot be used, for this reason.
    Untold(String),
}

impl MoveEvents {
    /// Asks for events of moves.
    pub fn want(&mut self) {
        if !matches!(self, MoveEvents::Unwanted) {
            return;
        }
        *self = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(done) => {
                let done = Arc::new(done);
                let ours = Arc::clone(&done);
                let thread = std::thread::spawn(move || {
                    let loaded = Moves::open();
                    // A full counter is readable.
                    let _full = rustix::io::write(&ours, &1u64.to_ne_bytes());
                    loaded
                });
                MoveEvents::Loading(thread, done)
            }
            Err(errno) => MoveEvents::Untold(errno.to_string()),
        };
    }

    /// Readable when moves wait, or the program has been loaded.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        match self {
            MoveEvents::Loading(_, done) => Some(done.as_fd()),
            MoveEvents::Told(moves) => Some(moves.as_fd()),
            MoveEvents::Unwanted | MoveEvents::Untold(_) => None,
        }
    }

    /// Whether moves are reported.
    #[must_use]
    pub fn are_told(&self) -> bool {
        matches!(self, MoveEvents::Told(_))
    }

    /// Reads moves as [`Moves::take`] does. Moves before the program ran were not reported, so
    /// loading it counts as a loss.
    pub fn take(&mut self, tell: impl FnMut(u32)) -> Taken {
        if let MoveEvents::Told(moves) = self {
            return moves.take(tell);
        }
        let is_done = |events: &MoveEvents| matches!(events, MoveEvents::Loading(thread, _) if thread.is_finished());
        if !is_done(self) {
            return Taken::default();
        }
        let MoveEvents::Loading(thread, _) = std::mem::take(self) else {
            return Taken::default();
        };
        let failed = |_| Err(load(std::io::Error::other("the loader failed")));
        match thread.join().unwrap_or_else(failed) {
            Ok(moves) => {
                *self = MoveEvents::Told(Box::new(moves));
                Taken {
                    lost: true,
                    more: false,
                }
            }
            Err(error) => {
                tracing::info!("no events report moves between control groups: {error}");
                *self = MoveEvents::Untold(error.to_string());
                Taken::default()
            }
        }
    }
}

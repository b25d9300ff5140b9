//! A domain without a kernel module: processes are real, their pages are not.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;
use uksm_linux::domain::{BreakChoice, Domain};
use uksm_linux::module::{
    AttachAnswer, BreakAnswer, CountAnswer, Error, FramesAnswer, Info, MappingsAnswer, Result,
    Verb, raw,
};
use uksm_policy::command::{
    FoldBatch, FoldOutcome, FrameId, Lines, Page, PageFlags, PageState, Reason, Run, SpaceId,
    SpaceSize, Status,
};

/// Numbers address spaces by process, and acts as its fields request.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    /// Spaces by process; a test may give two processes one.
    pub spaces: BTreeMap<u32, SpaceId>,
    /// Spaces attached now.
    pub attached: BTreeSet<SpaceId>,
    /// Every process that was ever attached.
    pub seen: BTreeSet<u32>,
    /// Processes that cannot be attached.
    pub refused: BTreeMap<u32, Errno>,
    /// This number of the next attaches is refused with EBUSY, as right after another domain's
    /// DETACH.
    pub busy: u32,
    /// This number of the next calls that need memory fails for lack of it.
    pub short: u32,
    /// Spaces whose process is gone, or has another by now.
    pub dead: BTreeSet<SpaceId>,
    /// Entries of all folds.
    pub folded: u64,
    /// Calls of BREAK, and those for pages whose frame nothing else maps.
    pub broken: u64,
    pub broken_singles: u64,
    /// Spaces whose process holds its locks.
    pub locked: BTreeSet<SpaceId>,
    /// The mappings of every living space.
    pub mappings: Vec<raw::uksm_mapping>,
    /// Maximum number of mappings that a call lists; 0 is one.
    pub most_listed: usize,
    last: u32,
}

/// A mapping of memory that may be written.
pub(crate) fn writable(start: u64, end: u64, flags: u32) -> raw::uksm_mapping {
    raw::uksm_mapping {
        start,
        end,
        flags: raw::UKSM_MAPPING_READ | raw::UKSM_MAPPING_WRITE | flags,
        pad: 0,
    }
}

impl Fake {
    /// A domain whose spaces have a heap, a mapping of a device, and a stack.
    pub(crate) fn mapped() -> Fake {
        Fake {
            mappings: vec![
                writable(0x10_0000, 0x20_0000, raw::UKSM_MAPPING_HEAP),
                writable(0x30_0000, 0x40_0000, raw::UKSM_MAPPING_REFUSED),
                writable(0x50_0000, 0x60_0000, raw::UKSM_MAPPING_STACK),
            ],
            ..Fake::default()
        }
    }

    /// The process gets another address space, as by an exec.
    pub(crate) fn exec(&mut self, pid: u32) {
        self.dead.extend(self.spaces.remove(&pid));
    }

    fn memory(&mut self, verb: Verb) -> Result<()> {
        let errno = Errno::NOMEM;
        let Some(left) = self.short.checked_sub(1) else {
            return Ok(());
        };
        self.short = left;
        Err(Error::Call { verb, errno })
    }

    fn known(&self, verb: Verb, space: SpaceId) -> Result<()> {
        if self.attached.contains(&space) {
            Ok(())
        } else {
            Err(Error::Call {
                verb,
                errno: Errno::NOENT,
            })
        }
    }
}

/// The process of a pidfd.
fn process(pidfd: BorrowedFd<'_>) -> u32 {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .expect("a pidfd");
    // -1 once the process is reaped.
    line.trim().parse().unwrap_or(0)
}

impl Domain for Fake {
    fn info(&self) -> Result<Info> {
        Ok(Info::default())
    }

    fn attach(&mut self, pidfd: BorrowedFd<'_>) -> Result<AttachAnswer> {
        let pid = process(pidfd);
        if let Some(&errno) = self.refused.get(&pid) {
            return Err(Error::Call {
                verb: Verb::Attach,
                errno,
            });
        }
        let verb = Verb::Attach;
        if let Some(left) = self.busy.checked_sub(1) {
            self.busy = left;
            let errno = Errno::BUSY;
            return Err(Error::Call { verb, errno });
        }
        self.memory(verb)?;
        self.seen.insert(pid);
        let last = &mut self.last;
        let space = *self.spaces.entry(pid).or_insert_with(|| {
            *last += 1;
            SpaceId(*last)
        });
        Ok(AttachAnswer {
            space,
            existing: !self.attached.insert(space),
        })
    }

    fn detach(&mut self, space: SpaceId) -> Result<()> {
        self.known(Verb::Detach, space)?;
        self.attached.remove(&space);
        Ok(())
    }

    fn sample(&mut self, runs: &[Run], _: Lines, pages: &mut Vec<Page>) -> Result<()> {
        pages.clear();
        self.memory(Verb::Sample)?;
        for run in runs {
            self.known(Verb::Sample, run.space)?;
            let dead = self.dead.contains(&run.space);
            let state = if dead {
                PageState::Dead
            } else {
                PageState::Anon
            };
            let page = Page {
                hash: run.start,
                frame: 0,
                state,
                flags: PageFlags::default(),
            };
            pages.extend(std::iter::repeat_n(page, run.count as usize));
        }
        Ok(())
    }

    fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>> {
        self.memory(Verb::Fold)?;
        self.folded += batch.entries.len() as u64;
        let outcome = FoldOutcome {
            status: Status::Merged,
            reason: Reason::None,
            frame: 1,
        };
        batch
            .entries
            .iter()
            .map(|e| self.known(Verb::Fold, e.space).map(|()| outcome))
            .collect()
    }

    fn break_range(
        &mut self,
        space: SpaceId,
        _: u64,
        end: u64,
        choice: BreakChoice,
    ) -> Result<BreakAnswer> {
        let verb = Verb::Break;
        self.known(verb, space)?;
        self.memory(verb)?;
        if self.locked.contains(&space) {
            let errno = Errno::AGAIN;
            return Err(Error::Call { verb, errno });
        }
        self.broken += 1;
        self.broken_singles += u64::from(choice == BreakChoice::Single);
        Ok(BreakAnswer {
            next: end,
            pages: 1,
            stopped: false,
        })
    }

    fn count(&mut self, space: SpaceId, _: u64, end: u64) -> Result<CountAnswer> {
        self.known(Verb::Count, space)?;
        Ok(CountAnswer {
            next: end,
            pages: [0; 16],
            huge: 0,
        })
    }

    fn frames(&mut self, _: u32, _: u32, _: Lines, _: bool) -> Result<FramesAnswer> {
        self.memory(Verb::Frames)?;
        Ok(FramesAnswer {
            frames: Vec::new(),
            cursor: 0,
            freed: 0,
        })
    }

    fn changed_frames(&mut self, _: u32, _: u32) -> Result<Vec<FrameId>> {
        self.memory(Verb::Frames)?;
        Ok(Vec::new())
    }

    fn retire(&mut self, _: FrameId) -> Result<()> {
        self.memory(Verb::Frames)
    }

    fn sizes(&mut self, spaces: &[SpaceId]) -> Result<Vec<SpaceSize>> {
        self.memory(Verb::Sizes)?;
        let size = |&space: &SpaceId| SpaceSize {
            space,
            gone: !self.attached.contains(&space) || self.dead.contains(&space),
            mappings: 1,
            pages: 2,
            anon_pages: 3,
        };
        Ok(spaces.iter().map(size).collect())
    }

    fn mappings(
        &mut self,
        space: SpaceId,
        start: u64,
        mappings: &mut Vec<raw::uksm_mapping>,
    ) -> Result<MappingsAnswer> {
        mappings.clear();
        self.memory(Verb::Mappings)?;
        self.known(Verb::Mappings, space)?;
        if self.dead.contains(&space) {
            return Ok(MappingsAnswer::Gone);
        }
        let from_start = |mapping: &&raw::uksm_mapping| mapping.start >= start;
        let mut rest = self.mappings.iter().filter(from_start).copied();
        mappings.extend(rest.by_ref().take(self.most_listed.max(1)));
        Ok(match rest.next() {
            Some(next) => MappingsAnswer::Until(next.start),
            None => MappingsAnswer::Through,
        })
    }
}

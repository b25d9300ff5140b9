//! The calls into the module: one method each.
//!
//! # Problem
//! The kernel does not know the type behind an ioctl's pointer, and some requests contain further
//! pointers.
//!
//! # Approach
//! A method builds the request, names it by its structure and converts the answer into the policy's
//! types. Methods with arrays take slices and fill in pointers and lengths themselves, so that no
//! caller can name memory that is not its own. A new call needs only a method here: structure,
//! number and name come from the header.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use uksm_policy::command::{FoldBatch, FoldOutcome, FrameId, Lines, Page, Run, SpaceId, SpaceSize};

use super::raw::{self, Request, Verb};
use super::{
    AttachAnswer, BreakAnswer, Configuration, CountAnswer, Device, Error, FramesAnswer, Info,
    MappingsAnswer, Result,
};
use crate::domain::{BreakChoice, Domain};

mod mappings;
mod words;

use words::{entry_of, frame_of, outcome_of, page_of, run_of, size_of_space};

/// Issues any request at all, for tests that send invalid ones.
///
/// # Errors
/// The errno of the call.
///
/// # Safety
/// `argument` must match the request of that number, with every pointer in it valid for its
/// accompanying length; or anything that the kernel may write through it must hit unused memory.
pub unsafe fn any(
    device: BorrowedFd<'_>,
    request: u32,
    argument: *mut libc::c_void,
) -> std::result::Result<i32, Errno> {
    let request = libc::c_ulong::from(request);
    // SAFETY: the descriptor is open while borrowed; the caller vouches for the argument.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), request, argument) };
    if answer < 0 {
        let code = std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(answer)
}

/// Issues the call that this structure belongs to.
///
/// # Safety
/// Every pointer in `request` must be valid for its accompanying length.
unsafe fn call<T: Request>(device: BorrowedFd<'_>, request: &mut T) -> Result<()> {
    let argument = std::ptr::from_mut(request).cast();
    // SAFETY: `Request` pairs number and structure; the caller vouches for the pointers in it.
    let answer = unsafe { any(device, T::VERB.request(), argument) };
    answer.map(drop).map_err(|errno| failed(T::VERB, errno))
}

fn failed(verb: Verb, errno: Errno) -> Error {
    Error::Call { verb, errno }
}

/// Whether a call did anything: a call that a signal interrupted before did nothing, which is no
/// error.
fn unless_interrupted(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Error::Call {
            errno: Errno::INTR, ..
        }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The next address of a range: its start, if the call did nothing.
fn next_of(start: u64, answered: u64) -> u64 {
    if answered == 0 { start } else { answered }
}

/// An array's address, as in a request.
fn address<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

/// An array's length, as in a request.
fn length(verb: Verb, len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| failed(verb, Errno::TOOBIG))
}

impl Device {
    /// Features, limits and counters.
    ///
    /// # Errors
    /// The call failed.
    pub fn info(&self) -> Result<Info> {
        let mut info = Info::default();
        // SAFETY: the structure holds no pointer.
        unsafe { call(self.as_fd(), &mut info) }?;
        Ok(info)
    }

    /// Sets the domain's constants; possible before the first [`Device::attach`] only.
    ///
    /// # Errors
    /// The domain is in use or sealed; a value is refused.
    pub fn configure(&self, configuration: Configuration) -> Result<()> {
        let mut request = raw::uksm_configure {
            hash_seed: configuration.hash_seed,
            frame_limit: configuration.frame_limit,
            sharer_limit: configuration.sharer_limit,
            policy: configuration.policy(),
            least_spaces: configuration.least_spaces,
            flags: 0,
        };
        // SAFETY: the structure holds no pointer.
        unsafe { call(self.as_fd(), &mut request) }
    }

    /// Adds the address space of a process.
    ///
    /// # Errors
    /// No right, no memory of its own, owned by another domain, too many.
    pub fn attach(&self, pidfd: BorrowedFd<'_>) -> Result<AttachAnswer> {
        let mut request = raw::uksm_attach {
            pidfd: pidfd.as_raw_fd(),
            ..Default::default()
        };
        // SAFETY: the structure holds no pointer.
        unsafe { call(self.as_fd(), &mut request) }?;
        Ok(AttachAnswer {
            space: SpaceId(request.space),
            existing: request.existing != 0,
        })
    }

    /// Forgets a space. Merged pages stay merged.
    ///
    /// # Errors
    /// No such space.
    pub fn detach(&self, space: SpaceId) -> Result<()> {
        let mut request = raw::uksm_detach {
            space: space.0,
            flags: 0,
        };
        // SAFETY: the structure holds no pointer.
        unsafe { call(self.as_fd(), &mut request) }
    }

    /// Forgets all spaces, including those attached by others.
    ///
    /// # Errors
    /// The call failed.
    pub fn detach_all(&self) -> Result<()> {
        self.detach(SpaceId(0))
    }

    /// Refuses ATTACH and CONFIGURE from now on, through every handle of the domain.
    ///
    /// # Errors
    /// The call failed.
    pub fn seal(&self) -> Result<()> {
        // SAFETY: the call takes no argument.
        let answer = unsafe { any(self.as_fd(), Verb::Seal.request(), std::ptr::null_mut()) };
        answer.map(drop).map_err(|errno| failed(Verb::Seal, errno))
    }

    /// Reads states and hashes into `pages`, which is emptied first: one entry for each requested
    /// page, in order; fewer if a signal interrupted.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn sample(&mut self, runs: &[Run], lines: Lines, pages: &mut Vec<Page>) -> Result<()> {
        pages.clear();
        self.runs.clear();
        self.runs.extend(runs.iter().map(run_of));
        let asked: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if asked > raw::UKSM_MAX_PAGES as u64 {
            return Err(failed(Verb::Sample, Errno::TOOBIG));
        }
        let asked = usize::try_from(asked).unwrap_or(raw::UKSM_MAX_PAGES);
        if self.pages.len() < asked {
            self.pages.resize(asked, raw::uksm_page::default());
        }
        let answers = &mut self.pages[..asked];
        let mut request = raw::uksm_sample {
            runs: address(self.runs.as_ptr()),
            pages: address(answers.as_mut_ptr()),
            nr_runs: length(Verb::Sample, self.runs.len())?,
            nr_pages: length(Verb::Sample, asked)?,
            from: lines.from,
            to: lines.to,
            ..Default::default()
        };
        // SAFETY: both arrays are borrowed for the call, with their own lengths.
        let done = match unless_interrupted(unsafe { call(self.file.as_fd(), &mut request) })? {
            true => asked.min(request.done as usize),
            false => 0,
        };
        pages.reserve(done);
        for page in &answers[..done] {
            pages.push(page_of(page).ok_or_else(|| Error::Answer {
                verb: Verb::Sample,
                what: "page state",
                number: page.state.into(),
            })?);
        }
        Ok(())
    }

    /// Merges pages: one outcome for each entry, in order; fewer if a signal interrupted.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>> {
        self.entries.clear();
        self.entries.extend(batch.entries.iter().map(entry_of));
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = flag(batch.split, raw::UKSM_FOLD_SPLIT)
            | flag(batch.locked, raw::UKSM_FOLD_LOCKED)
            | flag(batch.drain, raw::UKSM_FOLD_DRAIN);
        let mut request = raw::uksm_fold {
            entries: address(self.entries.as_mut_ptr()),
            count: length(Verb::Fold, self.entries.len())?,
            flags,
            lines: batch.lines,
            ..Default::default()
        };
        // SAFETY: the array is borrowed mutably for the call, with its own length.
        let done = match unless_interrupted(unsafe { call(self.file.as_fd(), &mut request) })? {
            true => self.entries.len().min(request.done as usize),
            false => 0,
        };
        let mut outcomes = Vec::with_capacity(done);
        for entry in &self.entries[..done] {
            outcomes.push(outcome_of(entry).ok_or_else(|| Error::Answer {
                verb: Verb::Fold,
                what: "status and reason",
                number: u64::from(entry.status) << 8 | u64::from(entry.reason),
            })?);
        }
        Ok(outcomes)
    }

    /// Unmerges `start..end` until something stops it, at [`BreakAnswer::next`].
    ///
    /// # Errors
    /// No such space; a bad range; the target holds its locks.
    pub fn break_range(&self, space: SpaceId, start: u64, end: u64) -> Result<BreakAnswer> {
        self.break_frames(space, start, end, BreakChoice::Own)
    }

    /// As [`Device::break_range`], for these frames.
    ///
    /// # Errors
    /// No such space; a bad range.
    pub fn break_frames(
        &self,
        space: SpaceId,
        start: u64,
        end: u64,
        choice: BreakChoice,
    ) -> Result<BreakAnswer> {
        let flags = match choice {
            BreakChoice::Own => 0,
            BreakChoice::Foreign => raw::UKSM_BREAK_FOREIGN,
            BreakChoice::Single => raw::UKSM_BREAK_SINGLE,
        };
        let mut request = raw::uksm_break {
            space: space.0,
            flags,
            start,
            end,
            ..Default::default()
        };
        // SAFETY: the structure holds no pointer; its addresses are those of the space.
        unless_interrupted(unsafe { call(self.as_fd(), &mut request) })?;
        Ok(BreakAnswer {
            next: next_of(start, request.next),
            pages: request.broken,
            stopped: request.stopped != 0,
        })
    }

    /// Counts the pages of `start..end` by state, as far as one call goes; [`CountAnswer::next`] is
    /// the address to continue at.
    ///
    /// # Errors
    /// No such space; a bad range; the target holds its locks.
    pub fn count(&self, space: SpaceId, start: u64, end: u64) -> Result<CountAnswer> {
        let mut request = raw::uksm_count {
            space: space.0,
            start,
            end,
            ..Default::default()
        };
        // SAFETY: the structure holds no pointer; its addresses are those of the space.
        unless_interrupted(unsafe { call(self.as_fd(), &mut request) })?;
        Ok(CountAnswer {
            next: next_of(start, request.next),
            pages: request.pages,
            huge: request.huge,
        })
    }

    /// Lists at most `count` frames from `cursor` on; with `reap`, frees those without mappings.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn frames(
        &mut self,
        cursor: u32,
        count: u32,
        lines: Lines,
        reap: bool,
    ) -> Result<FramesAnswer> {
        let request = raw::uksm_frames {
            count,
            cursor,
            from: lines.from,
            to: lines.to,
            flags: if reap { raw::UKSM_FRAMES_REAP } else { 0 },
            ..Default::default()
        };
        let (frames, answer) = self.list(request)?;
        Ok(FramesAnswer {
            frames: frames.iter().map(frame_of).collect(),
            cursor: answer.cursor,
            freed: answer.freed,
        })
    }

    /// Frames whose content has changed since the first such call, among at most `count` from
    /// `cursor` on. Hashes each in full.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn changed_frames(&mut self, cursor: u32, count: u32) -> Result<Vec<FrameId>> {
        let (frames, _) = self.list(raw::uksm_frames {
            count,
            cursor,
            flags: raw::UKSM_FRAMES_CHECK,
            ..Default::default()
        })?;
        let changed = frames
            .iter()
            .filter(|frame| frame.flags & raw::UKSM_FRAME_CHANGED != 0);
        Ok(changed.map(|frame| FrameId(frame.frame)).collect())
    }

    /// Gives up a frame that has changed: its sharers keep it, and nothing more is merged into it.
    /// An unchanged frame is not given up.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn retire(&mut self, frame: FrameId) -> Result<()> {
        self.list(raw::uksm_frames {
            count: 1,
            cursor: frame.0,
            flags: raw::UKSM_FRAMES_CHECK | raw::UKSM_FRAMES_REAP,
            ..Default::default()
        })?;
        Ok(())
    }

    /// The frames that a request lists, and its answer. After a signal, none and the starting
    /// cursor.
    fn list(
        &mut self,
        mut request: raw::uksm_frames,
    ) -> Result<(Vec<raw::uksm_frame>, raw::uksm_frames)> {
        let room = usize::try_from(request.count).unwrap_or(usize::MAX);
        if room > raw::UKSM_MAX_FRAMES {
            return Err(failed(Verb::Frames, Errno::TOOBIG));
        }
        let cursor = request.cursor;
        let mut frames = vec![raw::uksm_frame::default(); room];
        request.frames = address(frames.as_mut_ptr());
        // SAFETY: the array is borrowed mutably for the call, with its own length.
        if unless_interrupted(unsafe { call(self.as_fd(), &mut request) })? {
            frames.truncate(request.done as usize);
        } else {
            frames.clear();
            (request.cursor, request.freed) = (cursor, 0);
        }
        Ok((frames, request))
    }

    /// The sizes of these spaces, in order: at most 4096; fewer if a signal interrupted.
    ///
    /// # Errors
    /// A request the module refuses.
    pub fn sizes(&mut self, spaces: &[SpaceId]) -> Result<Vec<SpaceSize>> {
        let entry = |space: &SpaceId| raw::uksm_size {
            space: space.0,
            ..Default::default()
        };
        let mut sizes: Vec<_> = spaces.iter().map(entry).collect();
        let mut request = raw::uksm_sizes {
            sizes: address(sizes.as_mut_ptr()),
            count: length(Verb::Sizes, sizes.len())?,
            ..Default::default()
        };
        // SAFETY: the array is borrowed mutably for the call, with its own length.
        let done = match unless_interrupted(unsafe { call(self.as_fd(), &mut request) })? {
            true => sizes.len().min(request.done as usize),
            false => 0,
        };
        Ok(sizes[..done].iter().map(size_of_space).collect())
    }
}

impl Domain for Device {
    fn info(&self) -> Result<Info> {
        Device::info(self)
    }
    fn attach(&mut self, pidfd: BorrowedFd<'_>) -> Result<AttachAnswer> {
        Device::attach(self, pidfd)
    }
    fn detach(&mut self, space: SpaceId) -> Result<()> {
        Device::detach(self, space)
    }
    fn sample(&mut self, runs: &[Run], lines: Lines, pages: &mut Vec<Page>) -> Result<()> {
        Device::sample(self, runs, lines, pages)
    }
    fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>> {
        Device::fold(self, batch)
    }
    fn break_range(
        &mut self,
        space: SpaceId,
        start: u64,
        end: u64,
        choice: BreakChoice,
    ) -> Result<BreakAnswer> {
        Device::break_frames(self, space, start, end, choice)
    }
    fn count(&mut self, space: SpaceId, start: u64, end: u64) -> Result<CountAnswer> {
        Device::count(self, space, start, end)
    }
    fn frames(
        &mut self,
        cursor: u32,
        count: u32,
        lines: Lines,
        reap: bool,
    ) -> Result<FramesAnswer> {
        Device::frames(self, cursor, count, lines, reap)
    }
    fn changed_frames(&mut self, cursor: u32, count: u32) -> Result<Vec<FrameId>> {
        Device::changed_frames(self, cursor, count)
    }
    fn retire(&mut self, frame: FrameId) -> Result<()> {
        Device::retire(self, frame)
    }
    fn sizes(&mut self, spaces: &[SpaceId]) -> Result<Vec<SpaceSize>> {
        Device::sizes(self, spaces)
    }
    fn mappings(
        &mut self,
        space: SpaceId,
        start: u64,
        mappings: &mut Vec<raw::uksm_mapping>,
    ) -> Result<MappingsAnswer> {
        Device::mappings(self, space, start, mappings)
    }
}

#[cfg(test)]
mod tests;

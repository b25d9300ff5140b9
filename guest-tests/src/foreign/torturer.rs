//! Exchanges every page of every process, all the time.
//!
//! # Problem
//! A policy merges only where it pays, which in a short test is nowhere. A process that notices the
//! module does so only if its pages are exchanged again and again.
//!
//! # Approach
//! Round after round: attach every process but itself and the harness, sample all its private pages
//! at full strength, and send FOLDs. A page with the hash of a known frame goes into that frame,
//! zero pages go to the zero page, and the others are sets of equal hashes. LRU batches are drained
//! once a round, huge pages are split where that is allowed, mlocked pages are merged. Frames
//! without mappings are kept for a while, so that later pages with the same contents are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::io::Errno;
use uksm_linux::module::raw::{UKSM_MAX_FOLD, UKSM_MAX_FRAMES, UKSM_MAX_PAGES};
use uksm_linux::module::{Device, Error};
use uksm_linux::pidfd;
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FrameId, Lines, PAGE_LINES, PAGE_SIZE, Page, PageState, Run,
    SpaceId, Status,
};
use uksm_policy::hash::LineHash;

use super::schedule::{Allowed, TortureCounts};

/// File of the torturer's counts, written after each round.
pub const TORTURE_PATH: &str = "/run/torture.json";
/// File of the permissions, read before each round.
pub const ALLOWED_PATH: &str = "/run/allowed.json";

/// Rounds between two reaps of frames without mappings.
const REAP_EVERY: u64 = 16;
/// Limit of the pages sampled of one process in one round: the rest of a larger process follows in
/// later rounds.
const MAX_PAGES: usize = 1 << 16;
/// The end of user space with four levels of page tables; the vsyscall page lies beyond it.
const USER_END: u64 = 1 << 47;
const WHOLE: Lines = Lines {
    from: 0,
    to: PAGE_LINES,
};

/// A page that can be merged.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    space: SpaceId,
    address: u64,
    hash: u64,
}

/// The torturer's state.
struct Torturer {
    device: Device,
    zero: u64,
    spared: BTreeSet<u32>,
    spaces: BTreeMap<u32, SpaceId>,
    frames: BTreeMap<u64, FrameId>,
    done: TortureCounts,
}

/// Tortures every process but `spared` and itself, until it is killed.
///
/// # Errors
/// The device cannot be opened, or refuses a valid call.
pub fn torture(spared: &[u32]) -> Result<(), Error> {
    let device = Device::open()?;
    let zero = LineHash::new(device.info()?.hash_seed).zero(PAGE_LINES);
    let mut torturer = Torturer {
        device,
        zero,
        spared: spared.iter().copied().chain([std::process::id()]).collect(),
        spaces: BTreeMap::new(),
        frames: BTreeMap::new(),
        done: TortureCounts::default(),
    };
    loop {
        torturer.round()?;
    }
}

impl Torturer {
    fn round(&mut self) -> Result<(), Error> {
        self.attach_all()?;
        if self.done.rounds.is_multiple_of(REAP_EVERY) {
            self.list_frames()?;
        }
        let spaces: Vec<(u32, SpaceId)> = self.spaces.iter().map(|(&p, &s)| (p, s)).collect();
        let mut candidates = Vec::new();
        for (pid, space) in spaces {
            // A process that is gone has no listing.
            if let Ok(text) = fs::read(format!("/proc/{pid}/maps")) {
                self.sample(space, &text, &mut candidates)?;
            }
        }
        self.fold_all(candidates)?;
        self.done.rounds += 1;
        self.done.splits = self.device.info()?.splits;
        print_counts(self.done);
        Ok(())
    }

    /// Attaches processes that are new or have another address space than before, and detaches
    /// those that are gone.
    fn attach_all(&mut self) -> Result<(), Error> {
        let mut present = BTreeMap::new();
        for pid in processes().filter(|pid| !self.spared.contains(pid)) {
            let Ok(Some(pidfd)) = pidfd::open(pid) else {
                continue;
            };
            match self.device.attach(pidfd.as_fd()) {
                Ok(attached) => {
                    present.insert(pid, attached.space);
                }
                // A kernel thread, a zombie, or a process in the middle of its exit.
                Err(Error::Call {
                    errno: Errno::SRCH | Errno::PERM | Errno::BUSY | Errno::NOMEM,
                    ..
                }) => {}
                Err(error) if error.is_locked() => {}
                Err(error) => return Err(error),
            }
        }
        let kept: BTreeSet<SpaceId> = present.values().copied().collect();
        let gone: BTreeSet<SpaceId> = self
            .spaces
            .values()
            .copied()
            .filter(|space| !kept.contains(space))
            .collect();
        for space in gone {
            self.device.detach(space)?;
        }
        self.spaces = present;
        Ok(())
    }

    /// Learns the frames' hashes and frees those without mappings.
    fn list_frames(&mut self) -> Result<(), Error> {
        self.frames.clear();
        let (mut cursor, count) = (0, u32::try_from(UKSM_MAX_FRAMES).unwrap_or(1));
        loop {
            let listing = self.device.frames(cursor, count, WHOLE, true)?;
            for frame in listing.frames.iter().filter(|frame| frame.sharers > 0) {
                self.frames.insert(frame.hash, frame.frame);
            }
            cursor = listing.cursor;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Adds the mergeable pages of one space.
    fn sample(
        &mut self,
        space: SpaceId,
        listing: &[u8],
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), Error> {
        let mut runs = Vec::new();
        for mapping in private(listing) {
            self.populated(space, mapping, &mut runs)?;
        }
        if runs.is_empty() {
            return Ok(());
        }
        let first = usize::try_from(self.done.rounds).unwrap_or(0) % runs.len();
        runs.rotate_left(first);
        let mut left = MAX_PAGES;
        let mut pages: Vec<Page> = Vec::new();
        for run in runs {
            let size = usize::try_from(run.count).unwrap_or(usize::MAX);
            if size > left {
                break;
            }
            left -= size;
            self.device.sample(&[run], WHOLE, &mut pages)?;
            self.done.sampled += u64::try_from(pages.len()).unwrap_or(0);
            for (number, page) in (0_u64..).zip(&pages) {
                if matches!(page.state, PageState::Anon | PageState::Orphan) {
                    candidates.push(Candidate {
                        space,
                        address: run.start + number * PAGE_SIZE,
                        hash: page.hash,
                    });
                }
            }
        }
        Ok(())
    }

    /// Cuts a mapping into runs that one call can sample, and leaves out empty parts: a mapping can
    /// be far larger than memory.
    fn populated(
        &self,
        space: SpaceId,
        part: Range<u64>,
        runs: &mut Vec<Run>,
    ) -> Result<(), Error> {
        let size = (part.end - part.start) / PAGE_SIZE;
        let (mut next, mut some) = (part.start, false);
        while next < part.end && !some {
            let counted = match self.device.count(space, next, part.end) {
                Ok(counted) => counted,
                // The mapping is gone, or beyond user space: the vsyscall page.
                Err(Error::Call {
                    errno: Errno::NOENT | Errno::INVAL | Errno::NOMEM | Errno::SRCH,
                    ..
                }) => return Ok(()),
                // The process holds its own lock: its pages are counted in the next round.
                Err(error) if error.is_locked() => return Ok(()),
                Err(error) => return Err(error),
            };
            let candidates = [PageState::Anon, PageState::Orphan, PageState::Frame];
            some = candidates
                .iter()
                .any(|&state| counted.pages[usize::from(state as u16)] > 0);
            if counted.next <= next {
                break;
            }
            next = counted.next;
        }
        if !some {
            return Ok(());
        }
        match u32::try_from(size) {
            Ok(count) if size <= UKSM_MAX_PAGES as u64 => runs.push(Run {
                start: part.start,
                space,
                count,
                stride: 1,
            }),
            _ => {
                let middle = part.start + size / 2 * PAGE_SIZE;
                let halves = [(part.start, middle), (middle, part.end)];
                for (start, end) in halves {
                    self.populated(space, start..end, runs)?;
                }
            }
        }
        Ok(())
    }

    fn fold_all(&mut self, candidates: Vec<Candidate>) -> Result<(), Error> {
        let Allowed {
            split,
            zero,
            locked,
        } = allowed();
        let mut drain = true;
        let (known, unknown): (Vec<Candidate>, Vec<Candidate>) = candidates
            .into_iter()
            .partition(|c| (zero && c.hash == self.zero) || self.frames.contains_key(&c.hash));
        let kind = |c: &Candidate| match self.frames.get(&c.hash) {
            Some(_) if zero && c.hash == self.zero => FoldKind::Zero,
            Some(&frame) => FoldKind::Frame(frame),
            None => FoldKind::Zero,
        };
        let known: Vec<FoldEntry> = known.iter().map(|c| c.entry(kind(c))).collect();
        let batches = known
            .chunks(UKSM_MAX_FOLD)
            .map(<[FoldEntry]>::to_vec)
            .chain(sets(unknown));
        for entries in batches {
            let batch = FoldBatch {
                entries,
                lines: PAGE_LINES,
                split,
                locked,
                drain,
            };
            drain = false;
            self.fold(&batch)?;
        }
        Ok(())
    }

    fn fold(&mut self, batch: &FoldBatch) -> Result<(), Error> {
        let outcomes = match self.device.fold(batch) {
            Ok(outcomes) => outcomes,
            // A process went meanwhile; memory is short just now.
            Err(Error::Call {
                errno: Errno::NOENT | Errno::NOMEM,
                ..
            }) => return Ok(()),
            Err(error) => return Err(error),
        };
        for (entry, outcome) in batch.entries.iter().zip(&outcomes) {
            self.done.tried += 1;
            match outcome.status {
                Status::Merged => {
                    self.done.merged += 1;
                    self.frames.insert(entry.hash, FrameId(outcome.frame));
                }
                Status::Zeroed => self.done.zeroed += 1,
                // The frame is full, or gone: another one is made.
                Status::Full | Status::Gone => {
                    self.frames.remove(&entry.hash);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Candidate {
    fn entry(&self, kind: FoldKind) -> FoldEntry {
        FoldEntry {
            address: self.address,
            hash: self.hash,
            space: self.space,
            kind,
        }
    }
}

/// Batches of sets of equal hashes; pages without a partner are left out.
fn sets(mut candidates: Vec<Candidate>) -> impl Iterator<Item = Vec<FoldEntry>> {
    candidates.sort_by_key(|c| c.hash);
    let mut batches = vec![Vec::new()];
    let mut set = 0;
    for equal in candidates.chunk_by(|a, b| a.hash == b.hash) {
        for group in equal.chunks(UKSM_MAX_FOLD).filter(|group| group.len() > 1) {
            let full = batches
                .last()
                .is_none_or(|batch: &Vec<FoldEntry>| batch.len() + group.len() > UKSM_MAX_FOLD);
            if full {
                batches.push(Vec::new());
                set = 0;
            }
            if let Some(batch) = batches.last_mut() {
                batch.extend(group.iter().map(|c| c.entry(FoldKind::Set(set))));
                set += 1;
            }
        }
    }
    batches
        .into_iter()
        .filter(|batch| !batch.is_empty())
        .map(|mut batch| {
            // Neighbours share a lock, a flush and a notifier.
            batch.sort_by_key(|entry| (entry.space, entry.address));
            batch
        })
}

/// The private mappings in a listing of `/proc/PID/maps`, with any permissions: also those that a
/// sensible policy leaves alone.
fn private(listing: &[u8]) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        (rest.get(3..4) == Some("p") && range.end <= USER_END).then_some(range)
    };
    String::from_utf8_lossy(listing)
        .lines()
        .filter_map(range)
        .collect()
}

/// The runner's permissions, or all of them.
fn allowed() -> Allowed {
    fs::read_to_string(ALLOWED_PATH)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or(Allowed::FULL)
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Writes the counts to a file; a reader sees the old counts or the new ones.
fn print_counts(done: TortureCounts) {
    let partial = format!("{TORTURE_PATH}.new");
    let text = serde_json::to_string(&done).unwrap_or_default();
    if let Err(error) = fs::write(&partial, text).and_then(|()| fs::rename(&partial, TORTURE_PATH))
    {
        eprintln!("torturer: {TORTURE_PATH}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(hash: u64, address: u64) -> Candidate {
        Candidate {
            space: SpaceId(1),
            address: address * PAGE_SIZE,
            hash,
        }
    }

    #[test]
    fn pages_of_equal_hash_share_a_set_and_those_alone_are_left_out() {
        let batches: Vec<_> = sets(vec![page(7, 3), page(9, 2), page(7, 1), page(5, 9)]).collect();
        let pages: Vec<(u64, FoldKind)> = batches
            .concat()
            .iter()
            .map(|entry| (entry.address / PAGE_SIZE, entry.kind))
            .collect();
        assert_eq!(pages, [(1, FoldKind::Set(0)), (3, FoldKind::Set(0))]);
    }

    #[test]
    fn private_mappings_are_taken_whatever_their_permissions() {
        let listing = b"1000-3000 r--p 00000000 00:00 0 /bin/a\n\
            3000-4000 rw-s 00000000 00:01 7 /dev/zero\n\
            5000-6000 ---p 00000000 00:00 0\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        assert_eq!(private(listing), [0x1000..0x3000, 0x5000..0x6000]);
    }

    #[test]
    fn sets_stay_within_one_batch() {
        let pages = (0..2000).map(|at| page(at / 3, at)).collect();
        for batch in sets(pages) {
            assert!(batch.len() <= UKSM_MAX_FOLD);
            let mut members = BTreeMap::new();
            for entry in &batch {
                *members.entry(entry.hash).or_insert(0) += 1;
            }
            assert!(members.values().all(|&count| count >= 2), "{members:?}");
        }
    }
}

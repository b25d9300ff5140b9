//! A domain of the module, with what tests ask of it most.
//!
//! # Problem
//! Tests speak of pages by number and of outcomes by count; the device speaks of batches.
//!
//! # Approach
//! A thin layer over the program's own [`Device`]: pages count from [`BASE`], ranges of any length
//! are cut into batches, outcomes are tallied by status and reason, and every tally is checked
//! against the module's counters, so that each test also tests their equation.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use uksm_linux::module::{Configuration, Counted, Device, Info};
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, Frame, FrameId, Lines, Page, PageState, Reason,
    Run, SpaceId, Status,
};

use super::contents::PAGE;
use super::memory::BASE;
use super::peer::{Peer, pidfd};

/// The strength tests use where it does not matter.
pub const LINES: Lines = Lines { from: 0, to: 8 };

/// How often a call is made again that met a lock, and the time between.
const ATTEMPTS: usize = 20;
const PATIENCE: Duration = Duration::from_millis(1);

/// A domain.
#[derive(Debug)]
pub struct Domain {
    /// The device itself.
    pub device: Device,
}

/// How often something became of a page.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(Status, Reason), usize>);

impl Tally {
    /// Pages with this status.
    #[must_use]
    pub fn of(&self, status: Status) -> usize {
        self.0
            .iter()
            .filter(|((of, _), _)| *of == status)
            .map(|(_, count)| count)
            .sum()
    }

    /// Pages with this status and reason.
    #[must_use]
    pub fn with(&self, status: Status, reason: Reason) -> usize {
        self.0.get(&(status, reason)).copied().unwrap_or(0)
    }

    /// Pages now mapping a frame.
    #[must_use]
    pub fn merged(&self) -> usize {
        self.of(Status::Merged)
    }

    /// Adds outcomes.
    pub fn add(&mut self, outcomes: &[FoldOutcome]) {
        for outcome in outcomes {
            *self.0.entry((outcome.status, outcome.reason)).or_default() += 1;
        }
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for ((status, reason), count) in &self.0 {
            write!(out, "{separator}{status:?}/{reason:?} {count}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            write!(out, "nothing tried")
        } else {
            Ok(())
        }
    }
}

/// What a fold may do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permit {
    /// Split huge pages.
    pub split: bool,
    /// Merge in mlocked mappings.
    pub locked: bool,
}

/// The byte address of a page, counted from [`BASE`].
#[must_use]
pub fn address(page: usize) -> u64 {
    BASE + (page * PAGE) as u64
}

/// An entry that names a page by number, without an expected hash.
#[must_use]
pub fn entry(space: SpaceId, page: usize, kind: FoldKind) -> FoldEntry {
    FoldEntry {
        address: address(page),
        hash: 0,
        space,
        kind,
    }
}

impl Domain {
    /// Opens the device.
    #[must_use]
    pub fn open() -> Domain {
        Domain {
            device: Device::open().unwrap_or_else(|error| panic!("{error}")),
        }
    }

    /// Opens the device and sets its constants.
    #[must_use]
    pub fn configured(configuration: Configuration) -> Domain {
        let domain = Domain::open();
        domain
            .device
            .configure(configuration)
            .unwrap_or_else(|error| panic!("{error}"));
        domain
    }

    /// Attaches a peer.
    #[must_use]
    pub fn attach(&self, peer: &Peer) -> SpaceId {
        self.attach_pid(peer.pid())
    }

    /// Attaches a process.
    #[must_use]
    pub fn attach_pid(&self, pid: i32) -> SpaceId {
        let pidfd = pidfd(pid).unwrap_or_else(|error| panic!("pidfd_open({pid}): {error}"));
        let attached = self.device.attach(pidfd.as_fd());
        attached
            .unwrap_or_else(|error| panic!("attaching {pid}: {error}"))
            .space
    }

    /// The module's numbers for this domain, whose equation must hold.
    #[must_use]
    pub fn info(&self) -> Info {
        let info = self.device.info().unwrap_or_else(|error| panic!("{error}"));
        let sum = info.merged
            + info.already
            + info.zeroed
            + info.differed
            + info.busy
            + info.gone
            + info.full
            + info.refused;
        assert_eq!(
            info.tried, sum,
            "tried should be the sum of all outcomes: {info:?}"
        );
        info
    }

    /// Samples `pages`, in batches.
    #[must_use]
    pub fn sample(&mut self, space: SpaceId, pages: Range<usize>, lines: Lines) -> Vec<Page> {
        const BATCH: usize = 16384;
        let mut all = Vec::with_capacity(pages.len());
        let mut answer = Vec::new();
        for first in pages.clone().step_by(BATCH) {
            let count = BATCH.min(pages.end - first);
            let run = Run {
                start: address(first),
                space,
                count: u32::try_from(count).expect("a batch is small"),
                stride: 1,
            };
            self.sample_patiently(run, lines, &mut answer);
            assert_eq!(
                answer.len(),
                count,
                "an uninterrupted SAMPLE answers all pages"
            );
            all.append(&mut answer);
        }
        all
    }

    /// Samples one run, again if the process's address space was locked.
    pub fn sample_patiently(&mut self, run: Run, lines: Lines, answer: &mut Vec<Page>) {
        for _ in 0..ATTEMPTS {
            self.device
                .sample(&[run], lines, answer)
                .unwrap_or_else(|error| panic!("{error}"));
            if answer.iter().all(|page| page.state != PageState::Retry) {
                break;
            }
            sleep(PATIENCE);
        }
    }

    /// How many of `pages` are in `state`.
    #[must_use]
    pub fn in_state(&mut self, space: SpaceId, pages: Range<usize>, state: PageState) -> usize {
        let pages = self.sample(space, pages, Lines { from: 0, to: 0 });
        pages.iter().filter(|page| page.state == state).count()
    }

    /// Folds entries in one call after emptying the per-CPU LRU lists.
    #[must_use]
    pub fn fold(&mut self, entries: &[FoldEntry], permit: Permit) -> Vec<FoldOutcome> {
        self.fold_batch(&FoldBatch {
            entries: entries.to_vec(),
            lines: 0,
            split: permit.split,
            locked: permit.locked,
            drain: true,
        })
    }

    /// Folds one batch; the module's counters must grow by what it says of each entry.
    #[must_use]
    pub fn fold_batch(&mut self, batch: &FoldBatch) -> Vec<FoldOutcome> {
        let before = self.info();
        let outcomes = self
            .device
            .fold(batch)
            .unwrap_or_else(|error| panic!("{error}"));
        let after = self.info();
        assert_eq!(
            outcomes.len(),
            batch.entries.len(),
            "an uninterrupted FOLD tries all entries"
        );
        let mut tally = Tally::default();
        tally.add(&outcomes);
        assert_eq!(
            grown(&before, &after),
            [
                outcomes.len(),
                tally.of(Status::Merged),
                tally.of(Status::Already),
                tally.of(Status::Zeroed),
                tally.of(Status::Differed),
                tally.of(Status::Busy),
                tally.of(Status::Gone),
                tally.of(Status::Full),
                tally.of(Status::Refused),
            ],
            "INFO should count what FOLD answered: {tally:?}"
        );
        outcomes
    }

    /// Merges page `i` of every space with page `i` of the others, for each of `pages`. Pages
    /// that are locked or race are tried again a few times.
    #[must_use]
    pub fn merge(&mut self, spaces: &[SpaceId], pages: Range<usize>, permit: Permit) -> Tally {
        let per_batch = 512 / spaces.len();
        let mut tally = Tally::default();
        for first in pages.clone().step_by(per_batch) {
            let last = pages.end.min(first + per_batch);
            let mut entries = Vec::new();
            for &space in spaces {
                for page in first..last {
                    let set = u16::try_from(page - first).expect("a batch is small");
                    entries.push(entry(space, page, FoldKind::Set(set)));
                }
            }
            tally.add(&self.fold_patiently(&entries, permit));
        }
        tally
    }

    /// Folds entries, and those again that met a lock or a race, with the frame of their set if
    /// it has one by now; the last outcome counts.
    #[must_use]
    pub fn fold_patiently(&mut self, entries: &[FoldEntry], permit: Permit) -> Vec<FoldOutcome> {
        let mut outcomes = self.fold(entries, permit);
        for _ in 0..ATTEMPTS {
            let passing = |at: &usize| {
                matches!(
                    outcomes[*at].reason,
                    Reason::Lock | Reason::Raced | Reason::Swapcache
                )
            };
            let again: Vec<usize> = (0..entries.len()).filter(passing).collect();
            if again.is_empty() {
                break;
            }
            sleep(PATIENCE);
            let retry: Vec<_> = again
                .iter()
                .map(|&at| FoldEntry {
                    kind: frame_of_set(entries, &outcomes, entries[at].kind),
                    ..entries[at]
                })
                .collect();
            for (at, outcome) in again.into_iter().zip(self.fold(&retry, permit)) {
                outcomes[at] = outcome;
            }
        }
        outcomes
    }

    /// Maps the zero page for those of `pages` that hold zeros.
    #[must_use]
    pub fn merge_zero(&mut self, space: SpaceId, pages: Range<usize>) -> Tally {
        let mut tally = Tally::default();
        for first in pages.clone().step_by(512) {
            let entries: Vec<_> = (first..pages.end.min(first + 512))
                .map(|page| entry(space, page, FoldKind::Zero))
                .collect();
            tally.add(&self.fold_patiently(&entries, Permit::default()));
        }
        tally
    }

    /// Counts the pages of a space by state, from [`BASE`] over `pages` pages.
    #[must_use]
    pub fn count(&self, space: SpaceId, pages: usize) -> Counted {
        let end = address(pages);
        let mut sum = Counted {
            next: BASE,
            pages: [0; 16],
            huge: 0,
        };
        while sum.next < end {
            let part = self
                .device
                .count(space, sum.next, end)
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(part.next > sum.next, "COUNT should get on: {part:?}");
            sum.next = part.next;
            sum.huge += part.huge;
            for (all, some) in sum.pages.iter_mut().zip(part.pages) {
                *all += some;
            }
        }
        sum
    }

    /// Breaks all merged pages of a space among the first `pages`; how many were.
    #[must_use]
    pub fn unmerge(&self, space: SpaceId, pages: Range<usize>) -> u64 {
        let (mut next, end, mut broken) = (address(pages.start), address(pages.end), 0);
        while next < end {
            let part = self
                .device
                .break_range(space, next, end)
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(!part.stopped, "BREAK should find memory here: {part:?}");
            assert!(part.next > next, "BREAK should get on: {part:?}");
            next = part.next;
            broken += part.pages;
        }
        broken
    }

    /// All frames, ascending.
    #[must_use]
    pub fn frames(&mut self, lines: Lines, reap: bool) -> Vec<Frame> {
        let (mut cursor, mut frames) = (0, Vec::new());
        loop {
            let part = self
                .device
                .frames(cursor, 4096, lines, reap)
                .unwrap_or_else(|error| panic!("{error}"));
            frames.extend(part.frames);
            if part.cursor == 0 {
                return frames;
            }
            assert!(part.cursor > cursor, "FRAMES should get on");
            cursor = part.cursor;
        }
    }

    /// Mappings of a frame.
    #[must_use]
    pub fn sharers(&mut self, frame: FrameId) -> Option<u32> {
        let frames = self.frames(Lines { from: 0, to: 0 }, false);
        frames
            .iter()
            .find(|known| known.frame == frame)
            .map(|known| known.sharers)
    }

    /// Frees frames without mappings; afterwards no frame may be left.
    ///
    /// # Panics
    /// If one is left: something still maps it or it leaked.
    pub fn assert_all_frames_return(&mut self) {
        let listed = self.frames(Lines { from: 0, to: 0 }, true);
        let kept: Vec<_> = listed
            .iter()
            .filter(|frame| frame.sharers > 0)
            .take(8)
            .collect();
        assert!(
            kept.is_empty(),
            "every frame should be without mappings, these are not: {kept:?}"
        );
        let info = self.info();
        assert_eq!(info.frames, 0, "every frame should be freed: {info:?}");
        assert_eq!(
            info.frames_made, info.frames_freed,
            "made frames should be freed: {info:?}"
        );
    }
}

/// By how much the counters of a domain grew, in the order of the equation.
fn grown(before: &Info, after: &Info) -> [usize; 9] {
    [
        after.tried - before.tried,
        after.merged - before.merged,
        after.already - before.already,
        after.zeroed - before.zeroed,
        after.differed - before.differed,
        after.busy - before.busy,
        after.gone - before.gone,
        after.full - before.full,
        after.refused - before.refused,
    ]
    .map(|count| usize::try_from(count).expect("a count fits"))
}

/// The frame that the entries of a set were merged into, else the set.
fn frame_of_set(entries: &[FoldEntry], outcomes: &[FoldOutcome], kind: FoldKind) -> FoldKind {
    let FoldKind::Set(_) = kind else { return kind };
    entries
        .iter()
        .zip(outcomes)
        .find(|(entry, outcome)| entry.kind == kind && outcome.status == Status::Merged)
        .map_or(kind, |(_, outcome)| FoldKind::Frame(FrameId(outcome.frame)))
}

//! The commands of the engine to a machine, and the machine's observations.
//!
//! # Problem
//! The policy must run unchanged over the kernel module, over in-kernel KSM and over a simulated
//! host, and a run must be replayable.
//!
//! # Approach
//! One command at a time: the driver performs it on a machine and hands back one observation with
//! the time and the processor time spent since the last one. States, flags, statuses and reasons
//! are those of `interface/uksm_ioctl.h`, which defines their meanings.

pub use uksm_interface::{PageFlags, Reason, State as PageState, Status};

/// Time in nanoseconds: a point counts from an arbitrary start, a length from nothing.
pub type Nanos = u64;

/// A second in [`Nanos`].
pub(crate) const SECOND: Nanos = 1_000_000_000;
/// A millisecond in [`Nanos`].
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Processor time, user and kernel, since the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// The last step itself, in which the engine processed the answer before.
    pub step: Nanos,
    /// Performing the command that the step returned.
    pub call: Nanos,
}

/// Bytes in a page.
pub const PAGE_SIZE: u64 = uksm_interface::UKSM_PAGE_SIZE;

/// Cache lines in a page: the highest hash strength.
pub const PAGE_LINES: u16 = uksm_interface::UKSM_PAGE_LINES;

/// Names one address space; 0 is never used. An id is not used again within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u32);

/// Names one frame, a page that merged pages share; 0 is never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Pages of one space: `count` pages from `start` on, `stride` pages apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Byte address of the first page, a multiple of [`PAGE_SIZE`].
    pub start: u64,
    /// The space the pages are in.
    pub space: SpaceId,
    /// Number of pages, at least 1.
    pub count: u32,
    /// Distance in pages, at least 1.
    pub stride: u32,
}

/// Lines of the hash permutation, half-open: `from..to`, at most [`PAGE_LINES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    /// First line.
    pub from: u16,
    /// One past the last line.
    pub to: u16,
}

/// The answer of a sample for one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Sum of the hashes of the lines asked for; 0 for a state without contents.
    pub hash: u64,
    /// The frame, 0 unless `state` is [`PageState::Frame`].
    pub frame: u32,
    /// The state of the page.
    pub state: PageState,
    /// Its properties.
    pub flags: PageFlags,
}

impl Page {
    /// Whether it is an anonymous small page that is not pinned or locked.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        let held = PageFlags::LOCKED | PageFlags::PINNED | PageFlags::HUGE;
        self.state == PageState::Anon && !self.flags.any(held)
    }
}

/// How a page is to be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldKind {
    /// With this frame.
    Frame(FrameId),
    /// With the other entries of the batch that are of this set (below 512).
    Set(u16),
    /// With the zero page.
    Zero,
}

/// One page to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldEntry {
    /// Byte address of the page.
    pub address: u64,
    /// The hash the page is believed to have, over the batch's lines.
    pub hash: u64,
    /// The space it is in.
    pub space: SpaceId,
    /// How to merge it.
    pub kind: FoldKind,
}

/// Pages to merge in one call, tried in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldBatch {
    /// The pages, at most 512, neighbours in a space side by side.
    pub entries: Vec<FoldEntry>,
    /// Strength of the entries' hashes; 0 skips the check.
    pub lines: u16,
    /// Split huge pages in the way.
    pub split: bool,
    /// Merge in mlocked mappings, too.
    pub locked: bool,
    /// Empty the per-CPU LRU batches first.
    pub drain: bool,
}

/// The answer of a FOLD for one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldOutcome {
    /// The outcome for the page.
    pub status: Status,
    /// The reason for it.
    pub reason: Reason,
    /// The frame the page maps now, or 0.
    pub frame: u32,
}

/// One frame in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Sum of the hashes of the lines asked for.
    pub hash: u64,
    /// The frame.
    pub frame: FrameId,
    /// Its mappings; 0 if it was freed by this listing, or if its memory has failed.
    pub sharers: u32,
    /// The node of memory that it lies on, from 0.
    pub node: u32,
}

impl Frame {
    /// Counts the frame among those of its node; `by_node` begins with node 0. Nodes from 1024 on,
    /// which no kernel for x86-64 has, are not counted.
    pub fn count_on_node(&self, by_node: &mut Vec<u64>) {
        const MAX_NODES: usize = 1024;
        let node = usize::try_from(self.node).unwrap_or(MAX_NODES);
        if node >= MAX_NODES {
            return;
        }
        if by_node.len() <= node {
            by_node.resize(node + 1, 0);
        }
        by_node[node] += 1;
    }
}

/// A newly found process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceArrival {
    /// Its address space.
    pub space: SpaceId,
    /// The kind of process, equal for processes of the same program. Lifetimes are learned by kind.
    pub kind: u64,
    /// Its age at this time, so that long-lived processes need not wait.
    pub age: Nanos,
}

/// A mapping in which pages can be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The kind of mapping (heap, stack, anonymous, file). Lifetimes are learned by kind.
    pub kind: u64,
}

/// The size of a space now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceSize {
    /// The space.
    pub space: SpaceId,
    /// Its process is gone, or has another space by now; the numbers are 0.
    pub gone: bool,
    /// Mappings of any kind.
    pub mappings: u64,
    /// Pages in these mappings, present or not.
    pub pages: u64,
    /// Anonymous pages present, huge and merged ones too.
    pub anon_pages: u64,
}

/// The kind of I/O of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HintSource {
    /// Data of a file or block device was read into the memory.
    Read,
    /// The memory was written to a file or block device.
    Write,
}

/// A place in a file. Files that are copies of each other have the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// Size of the file, in bytes.
    pub file_size: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// Memory of a space that I/O has just filled, or that it was written from (XLH §4.1). It may be
/// wrong in every respect: it only suggests where to look first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// Byte address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// The space.
    pub space: SpaceId,
    /// The kind of I/O.
    pub source: HintSource,
    /// The place in the file, if that is known.
    pub place: Option<FilePlace>,
}

/// A request of the engine to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Return the hints that have arrived, at most some thousands. Answer: [`Observation::Hints`].
    TakeHints,
    /// List processes that came or went, within a few milliseconds. Answer:
    /// [`Observation::Processes`].
    ListProcesses,
    /// Measure these spaces, at most 4096. Answer: [`Observation::Sizes`].
    MeasureSpaces(Vec<SpaceId>),
    /// List the mergeable mappings of a space. Answer: [`Observation::Mappings`].
    ListMappings(SpaceId),
    /// Read states and hashes of pages: at most 4096 runs of 16384 pages together. Answer:
    /// [`Observation::Sampled`].
    Sample {
        /// The pages, sorted by (space, start).
        runs: Vec<Run>,
        /// The lines to hash; empty reads states only.
        lines: Lines,
    },
    /// Merge pages. Answer: [`Observation::Folded`].
    Fold(FoldBatch),
    /// List at most `count` (≤ 4096) frames from `cursor` on. Answer: [`Observation::Frames`].
    Frames {
        /// Where to continue; 0 starts.
        cursor: u32,
        /// Limit of frames.
        count: u32,
        /// The lines to hash.
        lines: Lines,
        /// Free frames without mappings.
        reap: bool,
        /// First check that their contents are unchanged, and give up those whose are not.
        check: bool,
    },
    /// Give the pages of a range whose frame nothing else maps a copy of their own again, at most
    /// some thousand pages. Such a frame saves nothing, and can be neither moved nor swapped out.
    /// The frames are freed by the next listing with `reap`. Answer: [`Observation::GivenBack`].
    GiveBack {
        /// The space.
        space: SpaceId,
        /// Byte address of the first page.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Do nothing until this time. Answer: [`Observation::Woke`], which may come early,
    /// [`Observation::EventsArrived`], or [`Observation::HintsArrived`].
    Sleep {
        /// When to wake.
        until: Nanos,
        /// From this time on, process events end the sleep as well.
        events_wake_from: Nanos,
        /// From this time on, waiting hints end it as well.
        hints_wake_from: Nanos,
    },
}

/// The events that a machine receives, which need not be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EventSource {
    /// None: it searches for processes.
    #[default]
    Nothing,
    /// Forks, execs and exits.
    Processes,
    /// Arrival, exit and change of size of each space: a supervisor watches them.
    Spaces,
}

/// An answer of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The first step of a run.
    Started,
    /// Answer to [`Command::ListProcesses`].
    Processes {
        /// Spaces that came.
        arrived: Vec<SpaceArrival>,
        /// Spaces that went, their process dead or no longer chosen.
        left: Vec<SpaceId>,
        /// Spaces whose size seems to have changed, if the machine receives such events.
        resized: Vec<SpaceId>,
        /// Whether possible new processes are still to be examined: ask again.
        more: bool,
        /// The events that the machine receives.
        event_source: EventSource,
    },
    /// Answer to [`Command::MeasureSpaces`]: one size for each space asked for, in order. Shorter
    /// if interrupted.
    Sizes(Vec<SpaceSize>),
    /// Answer to [`Command::ListMappings`].
    Mappings {
        /// The space.
        space: SpaceId,
        /// Its mergeable mappings, ascending and disjoint; none if the process died meanwhile.
        mappings: Vec<Mapping>,
        /// Time since they were read: a machine may cache an expensive listing.
        age: Nanos,
    },
    /// Answer to [`Command::ListMappings`] if the mappings cannot be read just now: they may be
    /// unchanged.
    Unread {
        /// The space.
        space: SpaceId,
    },
    /// Answer to [`Command::Sample`]: one page for each asked for, in order. Shorter if
    /// interrupted.
    Sampled(Vec<Page>),
    /// Answer to [`Command::Fold`]: one outcome for each entry, in order. Shorter if interrupted.
    Folded(Vec<FoldOutcome>),
    /// Answer to [`Command::Frames`].
    Frames {
        /// The frames, ascending.
        frames: Vec<Frame>,
        /// Where to continue; 0 at the end.
        cursor: u32,
    },
    /// Answer to [`Command::GiveBack`].
    GivenBack {
        /// Where to continue; `end` when through. `start` if nothing can be done in this space just
        /// now, because its process holds its locks.
        next: u64,
        /// Pages that have their own copy now.
        pages: u64,
        /// It ended early because the machine, or the process's cgroup, has no memory for copies.
        stopped: bool,
    },
    /// Answer to [`Command::Sleep`].
    Woke,
    /// The same, where the machine has looked and found that memory is short.
    MemoryIsShort,
    /// Answer to [`Command::Sleep`] if process events arrived, which the next process list covers.
    EventsArrived,
    /// Answer to [`Command::Sleep`] if hints wait.
    HintsArrived,
    /// Answer to [`Command::TakeHints`].
    Hints {
        /// The hints, in the order of their arrival.
        hints: Vec<Hint>,
        /// Hints that were lost since the last answer, because they were not taken in time.
        lost: u64,
        /// Spaces with lost hints, as far as known. The memory of lost hints is unknown.
        lost_of: Vec<SpaceId>,
        /// Spaces in which clearly more memory appeared than went since the last answer, at unknown
        /// places.
        grown: Vec<SpaceId>,
        /// Whether more hints wait.
        more: bool,
    },
    /// Answer to any command that reads or changes memory: there was no memory for it just now, and
    /// nothing was done. Returns the command, to be tried again later.
    NoMemory(Command),
}

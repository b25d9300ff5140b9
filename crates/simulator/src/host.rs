//! The machine side: performs commands on simulated processes.
//!
//! # Problem
//! The rules that matter to the policy must hold as in the module: what can be merged, what a frame
//! is, what breaks it, what is said when it does not work.
//!
//! # Approach
//! As the contract says, without page tables: a page is a slot with a content and a state. Sets
//! make a frame only when a second page of the same content comes; frames live on without mappings
//! until a listing reaps them; a write gives a page its own copy.
//!
//! # Units
//! Bytes, pages, nanoseconds.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uksm_policy::command::{
    Command, FoldBatch, FoldEntry, FoldKind, FoldOutcome, Frame, FrameId, Lines, Mapping, Nanos,
    Observation, PAGE_SIZE, Page, PageFlags, PageState, Reason, Run, SpaceArrival, SpaceId, Status,
};
use uksm_policy::hash::LineHash;
use uksm_policy::params::MAX_SHARERS;

use crate::memory::{Area, Process, Slot};
use crate::{Content, Costs, Fill, PageView};

mod fold;

/// A simulated host.
#[derive(Debug)]
pub struct Host {
    hash: LineHash,
    costs: Costs,
    now: Nanos,
    processes: BTreeMap<SpaceId, Process>,
    left: Vec<SpaceId>,
    next_space: u32,
    frames: BTreeMap<u32, (Content, u32)>,
    next_frame: u32,
    poisoned: BTreeSet<u32>,
    /// Most mappings of a frame.
    pub sharer_limit: u32,
    /// Most frames.
    pub frame_limit: usize,
    /// Whether samples report that a page is pinned.
    pub report_pins: bool,
    /// Listings of mappings are given out again for so long.
    pub mapping_list_life: Nanos,
    mapping_lists: BTreeMap<SpaceId, (Nanos, Vec<Mapping>)>,
    /// Mappings cannot be read.
    pub unreadable: bool,
    /// There is no memory for calls before this time.
    pub no_memory_until: Nanos,
    /// Calls for which there was none.
    pub shortages: u64,
    /// Pages merged, frames made of them included.
    pub merged: u64,
    /// Huge pages split.
    pub splits: u64,
    /// Pages whose contents differed though their hashes were equal.
    pub false_matches: u64,
}

impl Host {
    /// A host without processes. `seed` is that of the line hash.
    #[must_use]
    pub fn new(seed: u64, costs: Costs) -> Host {
        Host {
            hash: LineHash::new(seed),
            costs,
            now: 0,
            processes: BTreeMap::new(),
            left: vec![],
            next_space: 1,
            frames: BTreeMap::new(),
            next_frame: 1,
            poisoned: BTreeSet::new(),
            sharer_limit: MAX_SHARERS,
            frame_limit: usize::MAX,
            report_pins: true,
            mapping_list_life: 0,
            mapping_lists: BTreeMap::new(),
            unreadable: false,
            no_memory_until: 0,
            shortages: 0,
            merged: 0,
            splits: 0,
            false_matches: 0,
        }
    }

    /// What things cost here.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Sets the time: processes are born at it.
    pub fn at(&mut self, now: Nanos) {
        self.now = now;
    }

    /// A process begins.
    pub fn spawn(&mut self, kind: u64) -> SpaceId {
        let space = SpaceId(self.next_space);
        self.next_space += 1;
        let process = Process {
            kind,
            born: self.now,
            areas: vec![],
            reported: false,
        };
        self.processes.insert(space, process);
        space
    }

    /// A process ends.
    pub fn exit(&mut self, space: SpaceId) {
        let process = self.processes.remove(&space).expect("no such process");
        process.areas.iter().for_each(|area| self.release(area));
        if process.reported {
            self.left.push(space);
        }
    }

    /// The next process list names every process again, as for a new engine.
    pub fn forget_reported(&mut self) {
        self.processes
            .values_mut()
            .for_each(|process| process.reported = false);
        self.left.clear();
    }

    /// A process splits in two that share every page until it is written.
    pub fn fork(&mut self, parent: SpaceId) -> SpaceId {
        let child = self.spawn(self.processes[&parent].kind);
        let areas = self.processes[&parent].areas.clone();
        for slot in areas.iter().flat_map(Area::slots) {
            if slot.state == PageState::Frame {
                self.frames.get_mut(&slot.frame).expect("it is mapped").1 += 1;
            }
        }
        self.processes.get_mut(&child).expect("just made").areas = areas;
        child
    }

    /// Maps `pages` at `start`.
    pub fn map(&mut self, space: SpaceId, start: u64, pages: u64, kind: u64, fill: &Fill<'_>) {
        let areas = &mut self
            .processes
            .get_mut(&space)
            .expect("no such process")
            .areas;
        let area = Area::new(start, pages, kind, fill);
        let at = areas.partition_point(|other| other.start < start);
        assert!(
            areas.get(at).is_none_or(|next| next.start >= area.end()),
            "mappings overlap"
        );
        areas.insert(at, area);
    }

    /// Makes the mapping at `start` one of a kind that is never merged.
    pub fn refuse(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        process.areas[at].refused = true;
    }

    /// The zero page may not be mapped in the mapping at `start`.
    pub fn refuse_zero(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        process.areas[at].no_zero = true;
    }

    /// Frees the frames that nobody maps, as the module does when memory is short. If `reuse`, the
    /// next frames get their ids.
    pub fn shrink(&mut self, reuse: bool) {
        self.frames.retain(|_, &mut (_, sharers)| sharers > 0);
        if reuse {
            self.next_frame = 1;
        }
    }

    /// The memory of a frame fails: nothing can be merged into it any more.
    pub fn poison(&mut self, frame: u32) {
        self.poisoned.insert(frame);
    }

    /// The frame that a page maps, if it does.
    #[must_use]
    pub fn frame_of(&self, space: SpaceId, address: u64) -> Option<u32> {
        let process = self.processes.get(&space)?;
        let area = &process.areas[process.area(address)?];
        let slot = area.get((address - area.start) / PAGE_SIZE);
        (slot.state == PageState::Frame).then_some(slot.frame)
    }

    /// Unmaps the mapping at `start`.
    pub fn unmap(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        let area = process.areas.remove(at);
        self.release(&area);
    }

    /// Writes a page: it holds `content` now, alone.
    pub fn write(&mut self, space: SpaceId, address: u64, content: Content) {
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        let page = (address - area.start) / PAGE_SIZE;
        let old = area.get(page);
        area.set(
            page,
            Slot {
                pinned: old.pinned,
                ..Slot::anon(content)
            },
        );
        self.unshare(&old);
    }

    /// Pins a page, or lets it go.
    pub fn pin(&mut self, space: SpaceId, address: u64, pinned: bool) {
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        let page = (address - area.start) / PAGE_SIZE;
        let slot = area.get(page);
        area.set(page, Slot { pinned, ..slot });
    }

    /// What is at an address.
    #[must_use]
    pub fn page(&self, space: SpaceId, address: u64) -> Option<PageView> {
        let process = self.processes.get(&space)?;
        let area = &process.areas[process.area(address)?];
        let slot = area.get((address - area.start) / PAGE_SIZE);
        Some(PageView {
            state: slot.state,
            content: slot.content,
        })
    }

    /// Pages saved now: mappings of frames less frames, and zero pages.
    #[must_use]
    pub fn saved(&self) -> u64 {
        let frames: u64 = self
            .frames
            .values()
            .map(|&(_, n)| u64::from(n.saturating_sub(1)))
            .sum();
        let zero = self
            .slots()
            .filter(|slot| slot.state == PageState::Zero)
            .count() as u64;
        frames + zero
    }

    /// Pages that could be saved if every page were merged.
    #[must_use]
    pub fn mergeable(&self) -> u64 {
        let mut counts: HashMap<Content, u64> = HashMap::new();
        for slot in self.slots().filter(|slot| slot.state != PageState::None) {
            *counts.entry(slot.content).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(content, count)| {
                if content == Content::ZERO {
                    count
                } else {
                    count - 1
                }
            })
            .sum()
    }

    /// Frames held, mapped or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Performs a command; says what it cost. A sleep costs what waking does.
    pub fn perform(&mut self, command: &Command) -> (Observation, Nanos) {
        let asks_memory = !matches!(
            command,
            Command::ListProcesses | Command::ListMappings(_) | Command::Sleep { .. }
        );
        if asks_memory && self.now < self.no_memory_until {
            self.shortages += 1;
            return (Observation::NoMemory(command.clone()), self.costs.call);
        }
        match command {
            Command::ListProcesses => self.list_processes(),
            Command::ListMappings(space) => self.list_mappings(*space),
            Command::Sample { runs, lines } => self.sample(runs, *lines),
            Command::Fold(batch) => self.fold(batch),
            &Command::Frames {
                cursor,
                count,
                lines,
                reap,
            } => self.list_frames(cursor, count, lines, reap),
            &Command::Break { space, start, end } => self.unmerge(space, start, end),
            Command::Sleep { .. } => (Observation::Woke, self.costs.wake),
        }
    }

    fn find(&mut self, space: SpaceId, address: u64) -> (&mut Process, usize) {
        let process = self.processes.get_mut(&space).expect("no such process");
        let at = process.area(address).expect("nothing is mapped there");
        (process, at)
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.processes
            .values()
            .flat_map(|process| process.areas.iter().flat_map(Area::slots))
    }

    fn release(&mut self, area: &Area) {
        for slot in area.slots() {
            self.unshare(slot);
        }
    }

    fn unshare(&mut self, slot: &Slot) {
        if slot.state == PageState::Frame {
            self.frames.get_mut(&slot.frame).expect("it is mapped").1 -= 1;
        }
    }

    fn list_processes(&mut self) -> (Observation, Nanos) {
        let mut arrived = vec![];
        for (&space, process) in &mut self.processes {
            if !std::mem::replace(&mut process.reported, true) {
                let age = self.now.saturating_sub(process.born);
                arrived.push(SpaceArrival {
                    space,
                    kind: process.kind,
                    age,
                });
            }
        }
        let resident = self.processes.iter().map(|(&space, process)| {
            let slots = process.areas.iter().flat_map(Area::slots);
            let is_there = |slot: &&Slot| slot.state != PageState::None;
            (space, slots.filter(is_there).count() as u64)
        });
        let resident = resident.collect();
        let cost = self.costs.list_processes + self.costs.process * self.processes.len() as u64;
        (
            Observation::Processes {
                arrived,
                left: std::mem::take(&mut self.left),
                resident,
            },
            cost,
        )
    }

    fn list_mappings(&mut self, space: SpaceId) -> (Observation, Nanos) {
        if self.unreadable {
            return (Observation::Unread { space }, self.costs.list_mappings);
        }
        if let Some((read_at, mappings)) = self.mapping_lists.get(&space)
            && self.now - read_at < self.mapping_list_life
        {
            let (mappings, age) = (mappings.clone(), self.now - read_at);
            let listed = Observation::Mappings {
                space,
                mappings,
                age,
            };
            return (listed, self.costs.list_mappings);
        }
        let mappings: Vec<Mapping> = self.processes.get(&space).map_or(vec![], |process| {
            let areas = process.areas.iter();
            areas
                .map(|a| Mapping {
                    start: a.start,
                    end: a.end(),
                    kind: a.kind,
                })
                .collect()
        });
        let cost = self.costs.list_mappings + self.costs.mapping * mappings.len() as u64;
        self.mapping_lists
            .insert(space, (self.now, mappings.clone()));
        let listed = Observation::Mappings {
            space,
            mappings,
            age: 0,
        };
        (listed, cost)
    }

    fn sample(&mut self, runs: &[Run], lines: Lines) -> (Observation, Nanos) {
        assert!(
            !runs.is_empty() && runs.len() <= 4096,
            "{} runs",
            runs.len()
        );
        let sorted = runs.is_sorted_by_key(|run| (run.space, run.start));
        assert!(sorted, "runs are to be sorted");
        let mut pages = vec![];
        let costs = self.costs;
        let mut cost = costs.call + costs.run * runs.len() as u64;
        for run in runs {
            assert!(run.count > 0 && run.stride > 0 && run.start.is_multiple_of(PAGE_SIZE));
            let process = self.processes.get(&run.space);
            for at in 0..u64::from(run.count) {
                let address = run.start + at * u64::from(run.stride) * PAGE_SIZE;
                let page = self.read(process, address, lines);
                cost += costs.page;
                if matches!(page.state, PageState::Anon | PageState::Frame) {
                    cost += costs.line * u64::from(lines.to - lines.from);
                }
                pages.push(page);
            }
        }
        assert!(pages.len() <= 16384, "{} pages", pages.len());
        (Observation::Sampled(pages), cost)
    }

    fn read(&self, process: Option<&Process>, address: u64, lines: Lines) -> Page {
        let in_state = |state| Page {
            hash: 0,
            frame: 0,
            state,
            flags: PageFlags(0),
        };
        let Some(process) = process else {
            return in_state(PageState::Dead);
        };
        let Some(at) = process.area(address) else {
            return in_state(PageState::Unmapped);
        };
        let area = &process.areas[at];
        if area.refused {
            return in_state(PageState::Refused);
        }
        let slot = area.get((address - area.start) / PAGE_SIZE);
        if !matches!(slot.state, PageState::Anon | PageState::Frame) {
            return in_state(slot.state);
        }
        let huge = if area.huge_at(address).is_some() {
            PageFlags::HUGE
        } else {
            0
        };
        Page {
            hash: slot.content.hash(lines, &self.hash),
            frame: slot.frame,
            state: slot.state,
            flags: PageFlags(
                huge | if slot.pinned && self.report_pins {
                    PageFlags::PINNED
                } else {
                    0
                },
            ),
        }
    }

    fn list_frames(
        &mut self,
        cursor: u32,
        count: u32,
        lines: Lines,
        reap: bool,
    ) -> (Observation, Nanos) {
        let count = usize::try_from(count).expect("bounded");
        let listed: Vec<(u32, (Content, u32))> = self
            .frames
            .range(cursor..)
            .take(count)
            .map(|(&frame, &known)| (frame, known))
            .collect();
        let cursor = match listed.last() {
            Some(&(last, _)) if listed.len() == count => last + 1,
            _ => 0,
        };
        let frames: Vec<Frame> = listed
            .iter()
            .map(|&(frame, (content, sharers))| Frame {
                hash: content.hash(lines, &self.hash),
                frame: FrameId(frame),
                sharers,
            })
            .collect();
        if reap {
            frames
                .iter()
                .filter(|frame| frame.sharers == 0)
                .for_each(|frame| {
                    self.frames.remove(&frame.frame.0);
                });
        }
        let lines = u64::from(lines.to - lines.from) * self.costs.line;
        let cost = self.costs.call + (self.costs.frame + lines) * frames.len() as u64;
        (Observation::Frames { frames, cursor }, cost)
    }

    fn unmerge(&mut self, space: SpaceId, start: u64, end: u64) -> (Observation, Nanos) {
        let mut broken = vec![];
        if let Some(process) = self.processes.get_mut(&space) {
            for area in process
                .areas
                .iter_mut()
                .filter(|a| a.start < end && a.end() > start)
            {
                let from = start.saturating_sub(area.start) / PAGE_SIZE;
                let to = area.pages.min((end - area.start).div_ceil(PAGE_SIZE));
                for page in from..to {
                    let slot = area.get(page);
                    if slot.state == PageState::Frame {
                        area.set(page, Slot::anon(slot.content));
                        broken.push(slot);
                    }
                }
            }
        }
        broken.iter().for_each(|slot| self.unshare(slot));
        let pages = broken.len() as u64;
        let cost = self.costs.call + self.costs.unmerge * pages;
        (
            Observation::Broken {
                pages,
                stopped: false,
            },
            cost,
        )
    }
}

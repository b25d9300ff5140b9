//! The simulated host: performs commands on simulated processes.
//!
//! # Problem
//! The rules that matter to the policy must hold as in the module: which pages can be merged, what a
//! frame is, what breaks it, and which answer a page gets that cannot be merged.
//!
//! # Approach
//! The contract is followed without page tables: a page is a slot with a content and a state. A set
//! makes a frame only when a second page of the same content comes. A frame lives on without
//! mappings until FRAMES reaps it. A write gives a page its own copy.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uksm_policy::command::{Command, Mapping, Nanos, Observation, PAGE_SIZE, PageState, SpaceId};
use uksm_policy::hash::LineHash;
use uksm_policy::params::MAX_SHARERS;

use crate::memory::{Area, Process, Slot};
use crate::{Content, Costs, PageView};

mod fold;
mod listing;
mod sample;
mod workload;

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
    /// Whether the machine is told of processes.
    pub told: bool,
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
            told: true,
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

    /// The next process list names every process again, as for a new engine.
    pub fn forget_reported(&mut self) {
        self.processes
            .values_mut()
            .for_each(|process| process.reported = false);
        self.left.clear();
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
            Command::MeasureSpaces(spaces) => self.measure_spaces(spaces),
            Command::ListMappings(space) => self.list_mappings(*space),
            Command::Sample { runs, lines } => self.sample(runs, *lines),
            Command::Fold(batch) => self.fold(batch),
            &Command::Frames {
                cursor,
                count,
                lines,
                reap,
            } => self.list_frames(cursor, count, lines, reap),
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

    fn unshare(&mut self, slot: &Slot) {
        if slot.state == PageState::Frame {
            self.frames.get_mut(&slot.frame).expect("it is mapped").1 -= 1;
        }
    }
}

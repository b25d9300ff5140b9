//! The simulated host: performs commands on simulated processes.
//!
//! # Problem
//! The rules that matter to the policy must hold as in the module: which pages can be merged, which
//! contents a frame has, which events break it, and which answer a page gets that cannot be merged.
//!
//! # Approach
//! The contract is followed without page tables: a page is a slot with a content and a state. A set
//! makes a frame of its first page that can be taken. A frame lives on without mappings until
//! FRAMES reaps it. A write gives a page its own copy. Pages shared by a fork are not modelled: the
//! child has pages of its own, and only mappings of frames are shared.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::collections::{BTreeMap, BTreeSet};

use uksm_policy::command::{Command, EventSource, Mapping, Nanos, Observation, PageState, SpaceId};
use uksm_policy::hash::LineHash;
use uksm_policy::mix::mix;
use uksm_policy::params::MAX_SHARERS;

use crate::fault::{Canary, Fault, Faults};
use crate::frames::{FrameView, Frames};
use crate::memory::Slot;
use crate::process::{Process, Processes};
use crate::{Costs, PageView};

mod chance_counts;
mod fold;
mod give_back;
mod guard;
mod hint_ring;
mod hints;
pub(crate) mod in_kernel;
mod khugepaged;
mod listing;
mod sample;
pub(crate) mod sharing_chances;
pub(crate) mod truth;
mod workload;

/// Longest duration of a temporary fault.
const MAX_FAULT: Nanos = 3_000_000_000;

/// A simulated host.
#[derive(Debug)]
pub struct Host {
    hash: LineHash,
    costs: Costs,
    now: Nanos,
    processes: Processes,
    /// Spaces that ended and were not reported yet, with their domain.
    left: Vec<(u16, SpaceId)>,
    /// Domains whose processes were listed.
    listeners: BTreeSet<u16>,
    /// Events sent to the machine: the domain, and the time from which a process list can report
    /// them.
    news: Vec<(u16, Nanos)>,
    /// Pending hints, by domain.
    rings: BTreeMap<u16, hint_ring::HintRing>,
    frames: Frames,
    /// Pages that map the zero page.
    zero_pages: u64,
    /// Limit of the mappings of a frame.
    pub sharer_limit: u32,
    /// A frame needs pages of this many spaces.
    pub least_spaces: u32,
    /// Pages lie on two nodes of memory, and are merged with pages of their own only.
    pub keeps_nodes: bool,
    /// Limit of the frames.
    pub frame_limit: usize,
    /// Limit of the frames of all domains together.
    pub machine_frame_limit: usize,
    /// Whether samples report that a page is pinned.
    pub report_pins: bool,
    /// A listing of mappings is reused for this long.
    pub mapping_list_life: Nanos,
    mapping_lists: BTreeMap<SpaceId, (Nanos, Vec<Mapping>)>,
    /// The process events that the machine receives.
    pub event_source: EventSource,
    /// Mappings cannot be read.
    pub unreadable: bool,
    /// The machine reports at each wake that memory is short.
    pub is_short_of_memory: bool,
    /// There is no memory for calls before this time.
    pub no_memory_until: Nanos,
    /// Calls that failed for lack of memory.
    pub shortages: u64,
    /// Pages for whose copies there is memory.
    pub copies: u64,
    /// Spaces whose cgroup has no memory for copies.
    pub full_cgroups: BTreeSet<SpaceId>,
    /// Pages given back: copies of frames that nothing else mapped.
    pub given_back: u64,
    /// Pages merged, frames made of them included.
    pub merged: u64,
    /// Huge pages and other large folios split.
    pub splits: u64,
    /// Pages whose contents SAMPLE read.
    pub reads: u64,
    /// Pages written after they were mapped.
    pub writes: u64,
    /// Pages whose contents differed though their hashes were equal.
    pub false_matches: u64,
    /// The faults of this host.
    pub faults: Faults,
    /// The deliberate error of this host, if it has one.
    pub canary: Option<Canary>,
    /// The domain is full before this time.
    full_until: Nanos,
    /// Pages that a peer has marked read-only.
    guards: guard::Guards,
    /// Chances to share, if they are counted.
    chances: Option<Box<sharing_chances::SharingChances>>,
}

impl Host {
    /// A host without processes. `seed` is that of the line hash.
    #[must_use]
    pub fn new(seed: u64, costs: Costs) -> Host {
        Host {
            hash: LineHash::new(seed),
            costs,
            now: 0,
            processes: Processes::default(),
            left: vec![],
            listeners: BTreeSet::new(),
            news: vec![],
            rings: BTreeMap::new(),
            frames: Frames::new(),
            zero_pages: 0,
            sharer_limit: MAX_SHARERS,
            least_spaces: 1,
            keeps_nodes: false,
            frame_limit: usize::MAX,
            machine_frame_limit: usize::MAX,
            is_short_of_memory: false,
            copies: u64::MAX,
            full_cgroups: BTreeSet::new(),
            given_back: 0,
            report_pins: true,
            mapping_list_life: 0,
            mapping_lists: BTreeMap::new(),
            event_source: EventSource::Processes,
            unreadable: false,
            no_memory_until: 0,
            shortages: 0,
            merged: 0,
            splits: 0,
            reads: 0,
            writes: 0,
            false_matches: 0,
            faults: Faults::none(),
            canary: None,
            full_until: 0,
            guards: guard::Guards::default(),
            chances: None,
        }
    }

    /// The costs of this host.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The time.
    #[must_use]
    pub fn time(&self) -> Nanos {
        self.now
    }

    /// The id that the next space will have.
    #[must_use]
    pub fn next_space(&self) -> SpaceId {
        self.processes.next()
    }

    /// Sets the time: processes are born at it.
    pub fn at(&mut self, now: Nanos) {
        self.now = now;
    }

    /// The next process list names every process again, as for a new engine.
    pub fn forget_reported(&mut self) {
        for (_, process) in self.processes.iter_mut() {
            process.reported = false;
        }
        self.left.clear();
    }

    /// Frees the frames without mappings, as the module does when memory is short. If `reuse`, the
    /// next frames get their ids.
    pub fn shrink(&mut self, reuse: bool) {
        self.frames.shrink(reuse);
    }

    /// The memory of a frame fails: nothing can be merged into it any more.
    pub fn poison(&mut self, frame: u32) {
        self.frames.poison(frame);
    }

    /// A bit of a frame flips. Readers of the frame are not notified.
    pub fn change(&mut self, frame: u32) {
        self.frames.change(frame);
    }

    /// A frame, if it is held.
    #[must_use]
    pub fn frame(&self, frame: u32) -> Option<FrameView> {
        self.frames.get(frame)
    }

    /// The frame that a page maps, if it does.
    #[must_use]
    pub fn frame_of(&self, space: SpaceId, address: u64) -> Option<u32> {
        let slot = self.processes.get(space)?.slot(address)?;
        (slot.state == PageState::Frame).then_some(slot.frame)
    }

    /// The node of memory of a page at this address, if pages lie on several. Pages of different
    /// processes at one address lie on one node, as after a fork.
    #[must_use]
    pub fn node(&self, address: u64) -> u32 {
        // 16 neighbouring pages lie on one node.
        u32::from(self.keeps_nodes && mix(address >> 16) & 1 == 1)
    }

    /// The node that the hash of a page shows.
    fn node_of(&self, slot: &Slot, address: u64) -> u32 {
        if self.canary == Some(Canary::AcrossNodes) {
            return 0;
        }
        let frame = self.frames.get(slot.frame);
        match frame.filter(|_| slot.state == PageState::Frame) {
            Some(frame) => frame.node,
            None => self.node(address),
        }
    }

    /// The page at an address.
    #[must_use]
    pub fn page(&self, space: SpaceId, address: u64) -> Option<PageView> {
        let slot = self.processes.get(space)?.slot(address)?;
        Some(PageView {
            state: slot.state,
            content: slot.content,
        })
    }

    /// Pages saved now: mappings of frames less frames, and zero pages.
    #[must_use]
    pub fn saved(&self) -> u64 {
        let invented = u64::from(self.canary == Some(Canary::FalseSaving));
        self.frames.saved() + self.zero_pages + invented
    }

    /// Frames held, mapped or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Performs a command of the engine of the first domain; returns its cost, too.
    pub fn perform(&mut self, command: &Command) -> (Observation, Nanos) {
        self.perform_in(0, command)
    }

    /// Performs a command of the engine of a domain; returns its cost, too. The cost of a sleep is
    /// that of waking.
    pub fn perform_in(&mut self, domain: u16, command: &Command) -> (Observation, Nanos) {
        let asks_memory = !matches!(
            command,
            Command::ListProcesses
                | Command::ListMappings(_)
                | Command::TakeHints
                | Command::Sleep { .. }
        );
        if asks_memory && self.faults.strikes(Fault::ModuleGone) {
            self.no_memory_until = self.now + self.faults.below(MAX_FAULT);
        }
        if asks_memory && self.now < self.no_memory_until {
            self.shortages += 1;
            return (Observation::NoMemory(command.clone()), self.costs.call);
        }
        match command {
            Command::ListProcesses => self.list_processes(domain),
            Command::MeasureSpaces(spaces) => self.measure_spaces(spaces),
            Command::ListMappings(space) => self.list_mappings(*space),
            Command::Sample { runs, lines } => self.sample(runs, *lines),
            Command::Fold(batch) => self.fold(domain, batch),
            &Command::Frames {
                cursor,
                count,
                lines,
                reap,
                check,
            } => {
                let cost = if check {
                    self.check_frames(domain, cursor, count)
                } else {
                    0
                };
                let (listed, listing) = self.list_frames(domain, cursor, count, lines, reap);
                (listed, cost + listing)
            }
            &Command::GiveBack { space, start, end } => self.give_back(domain, space, (start, end)),
            Command::TakeHints => self.take_hints(domain),
            Command::Sleep { .. } => {
                let is_short = self.is_short_of_memory || self.faults.strikes(Fault::ShortMemory);
                let woke = [Observation::Woke, Observation::MemoryIsShort];
                (woke[usize::from(is_short)].clone(), self.costs.wake)
            }
        }
    }

    fn process(&mut self, space: SpaceId) -> &mut Process {
        self.processes.get_mut(space).expect("no such process")
    }

    fn find(&mut self, space: SpaceId, address: u64) -> (&mut Process, usize) {
        let process = self.process(space);
        let at = process.area(address).expect("nothing is mapped there");
        (process, at)
    }

    /// Changes a page; what it maps is counted.
    fn put(&mut self, space: SpaceId, address: u64, slot: Slot) {
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        let page = area.page(address);
        let old = area.get(page);
        area.set(page, slot);
        let (is_there, was_there) = (slot.is_there(), old.is_there());
        process.growth.go(u64::from(was_there && !is_there));
        if self.chances.is_some() {
            self.chance((space, address), &old, &slot);
        }
        self.share(&slot);
        self.unshare(&old);
        if is_there && !was_there {
            self.appears(space, address);
        }
    }

    fn share(&mut self, slot: &Slot) {
        match slot.state {
            PageState::Frame => self.frames.share(slot.frame),
            PageState::Zero => self.zero_pages += 1,
            _ => {}
        }
    }

    fn unshare(&mut self, slot: &Slot) {
        match slot.state {
            PageState::Frame => self.frames.unshare(slot.frame),
            PageState::Zero => self.zero_pages -= 1,
            _ => {}
        }
    }
}

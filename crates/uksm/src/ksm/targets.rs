//! The processes whose memory is sampled and offered.
//!
//! # Problem
//! A selected process may take advice, may have offered its memory itself, or neither; that changes
//! while it runs.
//!
//! # Approach
//! [`Targets::look`] goes through the connected agents and all processes of the host, and keeps the
//! memory of selected processes that cooperate. A process with an agent is known by its connection,
//! which exec ends. A process that has offered its memory itself is known by its id and start time;
//! its blocks are sampled to decide when a series is due, and never advised.
//!
//! A process can hold the lock of its mappings, which makes reads of its kernel files wait: reads
//! have a deadline ([`deadline`](uksm_linux::proc::deadline)), and a process that has held one up
//! is skipped until it is due again.
//!
//! # Units
//! Addresses in bytes, counts in pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use uksm_linux::clock;
use uksm_linux::ksm::agents::{Advice, Agents, DONE, END_OF_SPACES, Range};
use uksm_linux::ksm::memory::{self, Frames, Memory};
use uksm_linux::proc::{self, Proc};
use uksm_linux::selection::{Selection, Selectors};
use uksm_policy::advice::estimates::{AdviceChange, Estimates, Probe, ProbedPage};
use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::hash::LineHash;

use crate::status::ksm::KsmProcessStatus;

/// Numbers of spaces from here on belong to processes without an agent.
const FIRST_FIXED: u32 = END_OF_SPACES;

/// Memory has grown if it exceeds the earlier amount by 1/16, and by 256 pages.
const GROWTH: (u64, u64) = (16, 256);

/// Probes between two looks at the clock: each is of up to 64 pages, some 100 µs.
const PROBES: usize = 16;

/// Interval of close looks at a process, where the kernel shows only in each mapping whether it is
/// offered.
const CLOSE_CHECK_INTERVAL_NS: Nanos = 60_000_000_000;

#[derive(Debug)]
struct Target {
    memory: Arc<Memory>,
    start_ticks: u64,
    /// Pages in memory when its mappings were listed.
    resident: u64,
    /// Pages in memory when its blocks were begun.
    begun_at: u64,
    is_fixed: bool,
}

/// All targets.
#[derive(Debug)]
pub(super) struct Targets {
    proc: Proc,
    named: Selection,
    agents: Agents,
    frames: Arc<Frames>,
    hash: LineHash,
    targets: BTreeMap<SpaceId, Target>,
    /// Decisions of the policy for each range that was advised and not answered, oldest first.
    advised: BTreeMap<SpaceId, VecDeque<Vec<AdviceChange>>>,
    pub(super) estimates: Estimates,
    found: KsmProcessStatus,
    next_fixed: u32,
    /// Time of the last close look at processes that had not offered any memory.
    looked_closely: BTreeMap<(u32, u64), Nanos>,
    refused: u64,
}

/// Unmerging in progress.
#[derive(Debug)]
pub(super) struct Unmerging {
    /// Space, process and earlier number of merged pages of each.
    processes: Vec<(SpaceId, u32, u64)>,
}

/// The result of unmerging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnmergeResult {
    pub(super) processes: u64,
    pub(super) pages: u64,
}

impl Targets {
    /// No targets yet.
    pub(super) fn new(
        proc: Proc,
        named: Selection,
        agents: Agents,
        frames: Frames,
        seed: u64,
        v_dup: f64,
    ) -> Targets {
        Targets {
            proc,
            named,
            agents,
            frames: Arc::new(frames),
            hash: LineHash::new(seed),
            targets: BTreeMap::new(),
            advised: BTreeMap::new(),
            estimates: Estimates::new(v_dup, seed),
            found: KsmProcessStatus::default(),
            next_fixed: FIRST_FIXED,
            looked_closely: BTreeMap::new(),
            refused: 0,
        }
    }

    /// The agents.
    pub(super) fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Number of refused pieces of advice.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Numbers of processes of each kind, at the last look.
    pub(super) fn found(&self) -> &KsmProcessStatus {
        &self.found
    }

    /// Searches for processes, and lists their mappings. Answers whether there is memory that was
    /// never sampled.
    pub(super) fn look(&mut self) -> bool {
        self.agents.expire(clock::now());
        self.take_messages();
        self.agents.accept(&self.proc);
        // Connections that a newer one has replaced.
        self.take_messages();
        let mut has_agent = BTreeSet::new();
        for space in self.agents.spaces() {
            let Some(pid) = self.agents.process_of(space) else {
                continue;
            };
            has_agent.insert(pid);
            match (self.is_named(pid), self.targets.contains_key(&space)) {
                (Some(start_ticks), false) => self.follow_agent(space, pid, start_ticks),
                (None, true) => self.leave(space),
                _ => {}
            }
        }
        self.find_others(&has_agent);
        self.list_mappings()
    }

    /// Reads outcomes of advice, and forgets processes whose agent has gone. Does not wait.
    pub(super) fn take_messages(&mut self) {
        let collected = self.agents.collect(clock::now());
        for (space, outcomes) in collected.answers {
            for outcome in outcomes {
                let advised = self.advised.get_mut(&space);
                let Some(changes) = advised.and_then(VecDeque::pop_front) else {
                    continue;
                };
                if outcome != DONE {
                    self.refused += 1;
                    changes
                        .iter()
                        .filter(|change| change.offer)
                        .for_each(|change| self.estimates.undo(change));
                }
            }
        }
        for space in collected.lost {
            self.advised.remove(&space);
            self.forget(space);
        }
        self.advised.retain(|_, changes| !changes.is_empty());
    }

    /// The start time of a process, if it is selected.
    fn is_named(&self, pid: u32) -> Option<u64> {
        if pid == std::process::id() {
            return None;
        }
        let stat = self.proc.stat(pid).ok()?;
        let is_named = stat.has_memory() && self.named.include(&self.proc, pid, &stat).ok()?;
        is_named.then_some(stat.start_ticks)
    }

    /// Follows an agent's process, unless the id or the program has changed hands.
    fn follow_agent(&mut self, space: SpaceId, pid: u32, start_ticks: u64) {
        self.follow(space, pid, start_ticks, false);
        // Checked after its files were opened: then they are its own.
        if !self.is_itself(space) {
            self.drop_target(space);
        }
    }

    /// Whether all files opened and data read so far for an agent's process are its own, and the
    /// agent may know of them.
    fn is_itself(&self, space: SpaceId) -> bool {
        let is_still = self.agents.is_still_itself(space, &self.proc);
        is_still.unwrap_or(false)
    }

    /// Ends the connection; the agent of the program that runs there now makes a new one.
    fn drop_target(&mut self, space: SpaceId) {
        self.agents.let_go(space);
        self.advised.remove(&space);
        self.forget(space);
    }

    fn follow(&mut self, space: SpaceId, pid: u32, start_ticks: u64, is_fixed: bool) {
        match Memory::of(&self.proc, pid) {
            Ok(memory) => {
                let target = Target {
                    memory: Arc::new(memory),
                    start_ticks,
                    resident: 0,
                    begun_at: 0,
                    is_fixed,
                };
                self.targets.insert(space, target);
            }
            Err(proc::Error::Gone { .. }) => {}
            Err(error) => tracing::debug!("process {pid} is left alone: {error}"),
        }
    }

    /// It is no longer selected: withdraws the ranges that it was advised to offer.
    fn leave(&mut self, space: SpaceId) {
        let offered = self.estimates.offered(Some(space));
        self.advise(offered);
        self.forget(space);
    }

    fn forget(&mut self, space: SpaceId) {
        self.targets.remove(&space);
        self.estimates.forget(space);
    }

    /// Finds processes without an agent: follows those that have offered memory themselves, and
    /// counts the others.
    fn find_others(&mut self, has_agent: &BTreeSet<u32>) {
        let mut found = KsmProcessStatus {
            advised: self
                .targets
                .values()
                .filter(|target| !target.is_fixed)
                .count() as u64,
            ..KsmProcessStatus::default()
        };
        let mut pids = Vec::new();
        if let Err(error) = self.proc.list(&mut pids) {
            tracing::warn!("{error}");
            return;
        }
        let known: BTreeMap<(u32, u64), SpaceId> = self
            .targets
            .iter()
            .filter(|(_, target)| target.is_fixed)
            .map(|(&space, target)| ((target.memory.pid(), target.start_ticks), space))
            .collect();
        let mut alive = BTreeSet::new();
        let now = clock::now();
        let mut closely = Vec::new();
        self.looked_closely
            .retain(|_, at| now < *at + CLOSE_CHECK_INTERVAL_NS);
        for pid in pids {
            if has_agent.contains(&pid) {
                continue;
            }
            let offered = |closely| {
                let found = memory::offered(&self.proc, pid, closely);
                found.is_ok_and(|found| found.is_offered)
            };
            let Some(start_ticks) = self.is_named(pid) else {
                found.others += u64::from(offered(false));
                continue;
            };
            let name = (pid, start_ticks);
            let is_due = self
                .looked_closely
                .get(&name)
                .is_none_or(|&at| now >= at + CLOSE_CHECK_INTERVAL_NS);
            if is_due && !known.contains_key(&name) {
                closely.push(name);
            }
            if !known.contains_key(&name) && !offered(is_due) {
                found.silent += 1;
                continue;
            }
            found.offered += 1;
            match known.get(&(pid, start_ticks)) {
                Some(&space) => {
                    alive.insert(space);
                }
                None => {
                    let space = self.unused();
                    self.follow(space, pid, start_ticks, true);
                    alive.insert(space);
                }
            }
        }
        let is_gone = |(space, target): (&SpaceId, &Target)| {
            (target.is_fixed && !alive.contains(space)).then_some(*space)
        };
        let gone: Vec<SpaceId> = self.targets.iter().filter_map(is_gone).collect();
        for space in gone {
            self.forget(space);
        }
        self.looked_closely
            .extend(closely.into_iter().map(|name| (name, now)));
        found.locked = self.proc.locked().len() as u64;
        self.found = found;
    }

    /// The next number that no process without an agent has.
    fn unused(&mut self) -> SpaceId {
        loop {
            let space = SpaceId(self.next_fixed);
            self.next_fixed = self.next_fixed.checked_add(1).unwrap_or(FIRST_FIXED);
            // There are far fewer processes than numbers.
            if !self.targets.contains_key(&space) {
                return space;
            }
        }
    }

    /// Lists the mappings of processes whose memory has changed in size.
    fn list_mappings(&mut self) -> bool {
        let mut has_more = false;
        let mut gone = Vec::new();
        for (&space, target) in &mut self.targets {
            let pid = target.memory.pid();
            let Ok(resident) = self.proc.resident(pid) else {
                gone.push(space);
                continue;
            };
            if resident == target.resident {
                continue;
            }
            let mappings = match memory::anonymous(&self.proc, pid) {
                Ok(mappings) => mappings,
                // The earlier list stays.
                Err(proc::Error::Locked { .. }) => continue,
                Err(error) => {
                    tracing::debug!("process {pid} is left alone: {error}");
                    gone.push(space);
                    continue;
                }
            };
            // Checked after they were listed: then they belong to the process that has the agent.
            let is_own = target.is_fixed
                || self
                    .agents
                    .is_still_itself(space, &self.proc)
                    .unwrap_or(false);
            if !is_own {
                gone.push(space);
                continue;
            }
            target.resident = resident;
            has_more |= self
                .estimates
                .set_mappings(space, &mappings, target.is_fixed);
            let (part, pages) = GROWTH;
            if resident > target.begun_at + (target.begun_at / part).max(pages) {
                target.begun_at = resident;
                self.estimates.has_grown(space);
                has_more = true;
            }
        }
        for space in gone {
            self.drop_target(space);
        }
        has_more
    }

    /// Samples for some milliseconds, and sends the resulting advice.
    pub(super) fn sample(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..PROBES {
            let Some(probe) = self.estimates.next_probe() else {
                break;
            };
            match self.read(&probe) {
                Some(seen) => changes.extend(self.estimates.answer(&probe, &seen)),
                // An agent belongs to one address space, and this one is gone.
                None => self.drop_target(probe.space),
            }
        }
        self.advise(changes);
    }

    /// The result of a probe; none if the space is gone.
    fn read(&self, probe: &Probe) -> Option<Vec<ProbedPage>> {
        let memory = &self.targets.get(&probe.space)?.memory;
        let seen = memory.see_each(&self.proc, &probe.pages, &self.hash, &self.frames);
        match seen {
            // They are sampled again in the next pass.
            Err(proc::Error::Locked { .. }) => Some(vec![ProbedPage::Absent; probe.pages.len()]),
            seen => seen.ok(),
        }
    }

    /// Sends changes to agents, in as few ranges as possible.
    fn advise(&mut self, mut changes: Vec<AdviceChange>) {
        changes.sort_unstable_by_key(|change| (change.space, change.offer, change.start));
        let touches = |one: &AdviceChange, next: &AdviceChange| {
            (one.space, one.offer, one.end) == (next.space, next.offer, next.start)
        };
        let same = |one: &&[AdviceChange], next: &&[AdviceChange]| {
            (one[0].space, one[0].offer) == (next[0].space, next[0].offer)
        };
        let ranges: Vec<&[AdviceChange]> = changes.chunk_by(touches).collect();
        for ranges in ranges.chunk_by(same) {
            let AdviceChange { space, offer, .. } = ranges[0][0];
            let range = |changes: &&[AdviceChange]| Range {
                start: changes[0].start,
                end: changes[changes.len() - 1].end,
            };
            let advice = if offer {
                Advice::Merge
            } else {
                Advice::Unmerge
            };
            let sent: Vec<Range> = ranges.iter().map(range).collect();
            let advised = self.advised.entry(space).or_default();
            advised.extend(ranges.iter().map(|changes| changes.to_vec()));
            let now = clock::now();
            if self.agents.advise(space, advice, &sent, now).is_err() {
                self.drop_target(space);
            }
        }
    }

    /// Pages of all targets that are merged.
    pub(super) fn merged(&self) -> u64 {
        let merged = self.targets.values().filter_map(|target| {
            let offered = memory::offered(&self.proc, target.memory.pid(), false).ok()?;
            Some(offered.merged)
        });
        merged.sum()
    }

    /// Unmerges the pages of selected processes, and leaves those processes alone from now on.
    ///
    /// # Errors
    /// One of them takes no advice, a unit is a user's, or too many are excluded already: nothing
    /// was done.
    pub(super) fn break_up(&mut self, selectors: &Selectors) -> Result<Unmerging, String> {
        selectors.check_units(&self.proc)?;
        self.named.excluded.has_room_for(selectors)?;
        let is_selected = |target: &Target| {
            let pid = target.memory.pid();
            let stat = self.proc.stat(pid);
            stat.and_then(|stat| selectors.select(&self.proc, pid, &stat))
                .unwrap_or(false)
        };
        let selected = self
            .targets
            .iter()
            .filter(|(_, target)| is_selected(target));
        let selected: Vec<(SpaceId, u32, bool)> = selected
            .map(|(&space, target)| (space, target.memory.pid(), target.is_fixed))
            .collect();
        if let Some((_, pid, _)) = selected.iter().find(|(_, _, is_fixed)| *is_fixed) {
            return Err(format!(
                "process {pid} has offered its memory itself and takes no advice: only it can withdraw it"
            ));
        }
        let mut processes = Vec::new();
        for (space, pid, _) in selected {
            processes.push((space, pid, self.merged_of(pid)));
            self.leave(space);
        }
        self.named.excluded.add(selectors.clone(), &self.proc);
        Ok(Unmerging { processes })
    }

    /// The result, once all agents have answered or gone.
    pub(super) fn broken(&self, breaking: &Unmerging) -> Option<UnmergeResult> {
        let mut processes = breaking.processes.iter();
        if !processes.all(|(space, ..)| self.agents.is_idle(*space)) {
            return None;
        }
        let pages = breaking
            .processes
            .iter()
            .map(|(_, pid, before)| before.saturating_sub(self.merged_of(*pid)));
        Some(UnmergeResult {
            processes: breaking.processes.len() as u64,
            pages: pages.sum(),
        })
    }

    /// Pages of a process that are merged.
    fn merged_of(&self, pid: u32) -> u64 {
        memory::offered(&self.proc, pid, false).map_or(0, |found| found.merged)
    }

    /// Amount of memory read, for the log.
    pub(super) fn sampled_mib(&self) -> u64 {
        (self.estimates.sampled() * PAGE_SIZE) >> 20
    }
}

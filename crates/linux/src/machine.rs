//! This host as a machine for the policy, through the kernel module.
//!
//! # Problem
//! The policy's commands name spaces and pages; processes die, exec and are excluded between a
//! command's making and its doing.
//!
//! # Approach
//! Each command is one call or one read. A space that was detached meanwhile is answered for here
//! as dead, because the module refuses a whole request over one space it does not know. A space
//! that the module calls dead is noted for the next process list. A listing that cannot be read says
//! nothing about the mappings, and a call for which there is no memory did nothing: both are
//! counted and answered as what they are, and the policy tries again later. Only a failure of the
//! module itself ends a run.
//!
//! With [`LinuxMachine::dry`] set nothing is ever merged: every fold is answered as busy, so that the
//! policy keeps looking and reports what it believes could be merged.

use std::collections::BTreeSet;

use uksm_policy::command::{
    Command, FoldBatch, FoldOutcome, Lines, Nanos, Observation, Page, PageFlags, PageState, Reason,
    Run, SpaceId, Status,
};

use crate::breaking::{break_range, break_space};
use crate::clock;
use crate::domain::Domain;
use crate::driver::Machine;
use crate::mappings::MappingLists;
use crate::module::{self, raw};
use crate::processes::Processes;
use crate::selection::Selectors;
use crate::wake::Sleeper;

/// The longest sleep: whoever runs the loop has duties of its own (a watchdog).
const LONGEST_SLEEP: Nanos = 2_000_000_000;

/// So many frames can be listed however short memory is: they take half a page.
const FEW_FRAMES: u32 = 64;

/// No lines: states only.
const STATES: Lines = Lines { from: 0, to: 0 };

/// What breaking up targets did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakUp {
    /// Processes looked at.
    pub processes: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Processes in which memory did not suffice for all copies.
    pub stopped: u64,
}

/// All frames of the domain, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameTotals {
    /// Frames with at least one mapping.
    pub mapped: u64,
    /// Frames without, not freed yet.
    pub unmapped: u64,
    /// Mappings.
    pub sharers: u64,
}

/// The machine.
#[derive(Debug)]
pub struct LinuxMachine<D> {
    domain: D,
    processes: Processes,
    mapping_lists: MappingLists,
    sleeper: Sleeper,
    dry: bool,
    /// Pages that would have been tried, had this not been a dry run.
    withheld: u64,
    /// Spaces whose mappings could not be read the last time.
    unreadable: BTreeSet<SpaceId>,
    /// Listings that could not be read.
    unread: u64,
    /// Calls for which there was no memory.
    shortages: u64,
}

impl<D: Domain> LinuxMachine<D> {
    /// A machine of these parts.
    pub fn new(domain: D, processes: Processes, sleeper: Sleeper) -> LinuxMachine<D> {
        let mapping_lists = MappingLists::default();
        LinuxMachine {
            domain,
            processes,
            mapping_lists,
            sleeper,
            dry: false,
            withheld: 0,
            unreadable: BTreeSet::new(),
            unread: 0,
            shortages: 0,
        }
    }

    /// Never merges anything from now on.
    #[must_use]
    pub fn dry(mut self) -> LinuxMachine<D> {
        self.dry = true;
        self
    }

    /// Whether it merges nothing.
    #[must_use]
    pub fn is_dry(&self) -> bool {
        self.dry
    }

    /// Pages the policy wanted to merge and a dry run did not, repetitions included.
    #[must_use]
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// The domain.
    pub fn domain_mut(&mut self) -> &mut D {
        &mut self.domain
    }

    /// Reads of processes that failed though they live: what was known of them stayed.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread + self.processes.unread()
    }

    /// Calls that the kernel had no memory for; each was tried again later, or will be.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        self.shortages + self.processes.shortages()
    }

    /// The processes.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.sleeper.stopping()
    }

    /// The module's features, limits and counters.
    ///
    /// # Errors
    /// The module fails.
    pub fn info(&self) -> module::Result<module::Info> {
        self.domain.info()
    }

    /// Follows the processes named by id; see [`Processes::follow_named`].
    ///
    /// # Errors
    /// The first that cannot be attached, with its id.
    pub fn follow_named(&mut self) -> Result<(), (u32, module::Error)> {
        self.processes.follow_named(&mut self.domain)
    }

    /// Adds up all frames. Costs a third of a microsecond a frame.
    ///
    /// # Errors
    /// The module fails.
    pub fn frame_totals(&mut self) -> module::Result<FrameTotals> {
        let mut totals = FrameTotals::default();
        let mut cursor = 0;
        let mut most = u32::try_from(raw::UKSM_MAX_FRAMES).unwrap_or(u32::MAX);
        loop {
            let listing = match self.domain.frames(cursor, most, STATES, false) {
                // Less is asked of a kernel that is short of memory.
                Err(error) if error.is_short() && most > FEW_FRAMES => {
                    self.shortages += 1;
                    most /= 2;
                    continue;
                }
                answer => answer?,
            };
            for frame in &listing.frames {
                let mapped = frame.sharers > 0;
                totals.mapped += u64::from(mapped);
                totals.unmapped += u64::from(!mapped);
                totals.sharers += u64::from(frame.sharers);
            }
            if listing.cursor == 0 || listing.frames.is_empty() {
                return Ok(totals);
            }
            cursor = listing.cursor;
        }
    }

    /// Unmerges every page of the selected processes that are followed, and leaves them alone
    /// from now on. Calls `alive` every now and then: it can take long.
    ///
    /// # Errors
    /// The module fails.
    pub fn break_up(
        &mut self,
        selectors: &Selectors,
        alive: &mut dyn FnMut(),
    ) -> module::Result<BreakUp> {
        let mut done = BreakUp::default();
        let mut seen = BTreeSet::new();
        for target in self.processes.targets() {
            let proc = self.processes.proc();
            let chosen = proc
                .stat(target.pid)
                .and_then(|stat| selectors.select(proc, target.pid, &stat));
            if !chosen.unwrap_or(false) {
                continue;
            }
            done.processes += 1;
            if seen.insert(target.space) {
                let broken =
                    break_space(&mut self.domain, proc, (target.pid, target.space), alive)?;
                done.pages += broken.pages;
                done.stopped += u64::from(broken.stopped);
            }
        }
        for space in self
            .processes
            .exclude(selectors.clone(), &mut self.domain)?
        {
            self.forget(space);
        }
        Ok(done)
    }

    fn list_mappings(&mut self, space: SpaceId) -> module::Result<Observation> {
        let nothing = Observation::Mappings {
            space,
            mappings: vec![],
            age: 0,
        };
        let Some(pid) = self.processes.process_of(space) else {
            return Ok(nothing);
        };
        let listed = self.mapping_lists.list(self.processes.proc(), pid, space);
        // After an exec the mappings are those of another address space than this one. And a
        // process without mappings may have ended while another one still has this space.
        let first = listed.as_ref().ok().and_then(|(list, _)| list.first());
        let probe = Run {
            start: first.map_or(0, |mapping| mapping.start),
            space,
            count: 1,
            stride: 1,
        };
        let mut pages = Vec::new();
        if self.try_call(|domain| domain.sample(&[probe], STATES, &mut pages))? {
            if pages.first().is_some_and(|p| p.state == PageState::Dead) {
                self.forget(space);
                self.processes.note_dead(space);
                return Ok(nothing);
            }
        } else {
            return Ok(Observation::Unread { space });
        }
        match listed {
            Ok((mappings, age)) => {
                self.unreadable.remove(&space);
                Ok(Observation::Mappings {
                    space,
                    mappings,
                    age,
                })
            }
            Err(error) => {
                self.unread += 1;
                if self.unreadable.insert(space) {
                    tracing::warn!("{error}: the mappings of process {pid} are taken as they were");
                }
                Ok(Observation::Unread { space })
            }
        }
    }

    /// Forgets what is kept of a space.
    fn forget(&mut self, space: SpaceId) {
        self.mapping_lists.forget(space);
        self.unreadable.remove(&space);
    }

    /// Makes a call; whether there was memory for it.
    fn try_call(
        &mut self,
        call: impl FnOnce(&mut D) -> module::Result<()>,
    ) -> module::Result<bool> {
        match call(&mut self.domain) {
            Err(error) if error.is_short() => {
                if self.shortages.is_power_of_two() || self.shortages == 0 {
                    tracing::warn!("{error}: tried again later");
                }
                self.shortages += 1;
                Ok(false)
            }
            answer => answer.map(|()| true),
        }
    }

    /// Whether all of these are followed. Neighbours are mostly of one space.
    fn has_all(&self, spaces: impl Iterator<Item = SpaceId>) -> bool {
        let mut last = None;
        for space in spaces {
            if last != Some(space) && !self.processes.has(space) {
                return false;
            }
            last = Some(space);
        }
        true
    }

    /// None if there was no memory for the call.
    fn sample(&mut self, runs: &[Run], lines: Lines) -> module::Result<Option<Vec<Page>>> {
        let mut pages = Vec::new();
        if self.has_all(runs.iter().map(|run| run.space)) {
            if !self.try_call(|domain| domain.sample(runs, lines, &mut pages))? {
                return Ok(None);
            }
        } else {
            let known: Vec<Run> = runs
                .iter()
                .filter(|r| self.processes.has(r.space))
                .copied()
                .collect();
            let mut answers = Vec::new();
            if !known.is_empty()
                && !self.try_call(|domain| domain.sample(&known, lines, &mut answers))?
            {
                return Ok(None);
            }
            let mut answers = answers.into_iter();
            let dead = Page {
                hash: 0,
                frame: 0,
                state: PageState::Dead,
                flags: PageFlags::default(),
            };
            'runs: for run in runs {
                let there = self.processes.has(run.space);
                for _ in 0..run.count {
                    match if there { answers.next() } else { Some(dead) } {
                        Some(page) => pages.push(page),
                        // Interrupted: what follows was not asked.
                        None => break 'runs,
                    }
                }
            }
        }
        if pages.iter().any(|page| page.state == PageState::Dead) {
            let mut rest = pages.as_slice();
            for run in runs {
                let (mine, others) = rest.split_at((run.count as usize).min(rest.len()));
                if mine.iter().any(|page| page.state == PageState::Dead) {
                    self.processes.note_dead(run.space);
                }
                rest = others;
            }
        }
        Ok(Some(pages))
    }

    /// None if there was no memory for the call.
    fn fold(&mut self, batch: &FoldBatch) -> module::Result<Option<Vec<FoldOutcome>>> {
        const DEAD: FoldOutcome = FoldOutcome {
            status: Status::Gone,
            reason: Reason::Dead,
            frame: 0,
        };
        const WITHHELD: FoldOutcome = FoldOutcome {
            status: Status::Busy,
            reason: Reason::Lock,
            frame: 0,
        };
        if self.dry {
            self.withheld += batch.entries.len() as u64;
            return Ok(Some(vec![WITHHELD; batch.entries.len()]));
        }
        let mut answers = Vec::new();
        let mut call = |machine: &mut Self, batch: &FoldBatch| {
            machine.try_call(|domain| {
                answers = domain.fold(batch)?;
                Ok(())
            })
        };
        if self.has_all(batch.entries.iter().map(|entry| entry.space)) {
            return Ok(call(self, batch)?.then_some(answers));
        }
        let there: Vec<bool> = batch
            .entries
            .iter()
            .map(|entry| self.processes.has(entry.space))
            .collect();
        let mut known = batch.clone();
        known
            .entries
            .retain(|entry| self.processes.has(entry.space));
        if !known.entries.is_empty() && !call(self, &known)? {
            return Ok(None);
        }
        let mut answers = answers.into_iter();
        let answers = there
            .iter()
            .map_while(|&there| if there { answers.next() } else { Some(DEAD) });
        Ok(Some(answers.collect()))
    }
}

impl<D: Domain> Machine for LinuxMachine<D> {
    type Error = module::Error;

    fn perform(&mut self, command: Command) -> module::Result<Observation> {
        Ok(match command {
            Command::ListProcesses => {
                let changes = self.processes.list(&mut self.domain)?;
                changes.left.iter().for_each(|&space| self.forget(space));
                Observation::Processes {
                    arrived: changes.arrived,
                    left: changes.left,
                    resident: changes.resident,
                }
            }
            Command::ListMappings(space) => self.list_mappings(space)?,
            Command::Sample { runs, lines } => match self.sample(&runs, lines)? {
                Some(pages) => Observation::Sampled(pages),
                None => Observation::NoMemory(Command::Sample { runs, lines }),
            },
            Command::Fold(batch) => match self.fold(&batch)? {
                Some(outcomes) => Observation::Folded(outcomes),
                None => Observation::NoMemory(Command::Fold(batch)),
            },
            Command::Frames {
                cursor,
                count,
                lines,
                reap,
            } => {
                let mut listing = None;
                let call = |domain: &mut D| {
                    listing = Some(domain.frames(cursor, count, lines, reap)?);
                    Ok(())
                };
                self.try_call(call)?;
                match listing {
                    Some(listing) => Observation::Frames {
                        frames: listing.frames,
                        cursor: listing.cursor,
                    },
                    None => Observation::NoMemory(command),
                }
            }
            Command::Break { space, start, end } => {
                if self.dry || !self.processes.has(space) {
                    return Ok(Observation::Broken {
                        pages: 0,
                        stopped: false,
                    });
                }
                let broken = break_range(&mut self.domain, space, start, end)?;
                Observation::Broken {
                    pages: broken.pages,
                    stopped: broken.stopped,
                }
            }
            Command::Sleep { until } => {
                self.sleeper.sleep(until.min(clock::now() + LONGEST_SLEEP));
                Observation::Woke
            }
        })
    }
}

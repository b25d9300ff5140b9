//! This host as a machine for the policy, through the kernel module.
//!
//! # Problem
//! The policy's commands name spaces and pages; processes die, exec and are excluded between a
//! command's making and its doing.
//!
//! # Approach
//! Each command is one call or one read. A space that was detached meanwhile is answered for here
//! as dead, because the module refuses a whole request over one space it does not know. A space
//! that the module calls dead is noted for the next census. Only a failure of the module itself
//! ends a run.
//!
//! With [`Host::dry`] set nothing is ever merged: every fold is answered as busy, so that the
//! policy keeps looking and reports what it believes could be merged.

use std::collections::BTreeSet;

use rustix::io::Errno;
use uksm_policy::command::{
    Command, FoldBatch, FoldOutcome, Lines, Mapping, Nanos, Observation, Page, PageFlags,
    PageState, Reason, Run, SpaceId, Status,
};

use crate::census::Census;
use crate::domain::Domain;
use crate::driver::Machine;
use crate::module::{self, raw};
use crate::survey::Surveys;
use crate::targets::Selectors;
use crate::wake::Sleeper;
use crate::{clock, maps, proc};

/// The longest sleep: whoever runs the loop has duties of its own (a watchdog).
const LONGEST_SLEEP: Nanos = 2_000_000_000;

/// Most of a range that is broken up in one call, in bytes: a fifth of a second of copying.
const BREAK_STRETCH: u64 = 256 << 20;

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
pub struct Host<D> {
    domain: D,
    census: Census,
    surveys: Surveys,
    sleeper: Sleeper,
    dry: bool,
    /// Pages that would have been tried, had this not been a dry run.
    withheld: u64,
}

impl<D: Domain> Host<D> {
    /// A machine of these parts.
    pub fn new(domain: D, census: Census, sleeper: Sleeper) -> Host<D> {
        let surveys = Surveys::default();
        Host {
            domain,
            census,
            surveys,
            sleeper,
            dry: false,
            withheld: 0,
        }
    }

    /// Never merges anything from now on.
    #[must_use]
    pub fn dry(mut self) -> Host<D> {
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

    /// The processes.
    #[must_use]
    pub fn census(&self) -> &Census {
        &self.census
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

    /// Follows the processes named by id; see [`Census::follow_named`].
    ///
    /// # Errors
    /// The first that cannot be attached, with its id.
    pub fn follow_named(&mut self) -> Result<(), (u32, module::Error)> {
        self.census.follow_named(&mut self.domain)
    }

    /// Adds up all frames. Costs a third of a microsecond a frame.
    ///
    /// # Errors
    /// The module fails.
    pub fn frame_totals(&mut self) -> module::Result<FrameTotals> {
        let mut totals = FrameTotals::default();
        let mut cursor = 0;
        let most = u32::try_from(raw::UKSM_MAX_FRAMES).unwrap_or(u32::MAX);
        loop {
            let listing = self.domain.frames(cursor, most, STATES, false)?;
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
        for target in self.census.targets() {
            let proc = self.census.proc();
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
        for space in self.census.exclude(selectors.clone(), &mut self.domain)? {
            self.surveys.forget(space);
        }
        Ok(done)
    }

    fn survey(&mut self, space: SpaceId) -> module::Result<Vec<Mapping>> {
        let Some(pid) = self.census.process_of(space) else {
            return Ok(Vec::new());
        };
        let mappings = match self.surveys.list(self.census.proc(), pid, space) {
            Ok(mappings) => mappings,
            Err(proc::Error::Gone { .. }) => Vec::new(),
            Err(error) => {
                tracing::warn!("{error}: process {pid} is skipped for now");
                return Ok(Vec::new());
            }
        };
        // After an exec the mappings are those of another address space than this one.
        let probe = mappings.first().map_or(0, |mapping| mapping.start);
        let mut pages = Vec::new();
        self.domain.sample(
            &[Run {
                start: probe,
                space,
                count: 1,
                stride: 1,
            }],
            STATES,
            &mut pages,
        )?;
        if mappings.is_empty()
            || pages
                .first()
                .is_some_and(|page| page.state == PageState::Dead)
        {
            self.surveys.forget(space);
            if pages
                .first()
                .is_some_and(|page| page.state == PageState::Dead)
            {
                self.census.note_dead(space);
            }
            return Ok(Vec::new());
        }
        Ok(mappings)
    }

    /// Whether all of these are followed. Neighbours are mostly of one space.
    fn has_all(&self, spaces: impl Iterator<Item = SpaceId>) -> bool {
        let mut last = None;
        for space in spaces {
            if last != Some(space) && !self.census.has(space) {
                return false;
            }
            last = Some(space);
        }
        true
    }

    fn sample(&mut self, runs: &[Run], lines: Lines) -> module::Result<Vec<Page>> {
        let mut pages = Vec::new();
        if self.has_all(runs.iter().map(|run| run.space)) {
            transient(self.domain.sample(runs, lines, &mut pages))?;
        } else {
            let known: Vec<Run> = runs
                .iter()
                .filter(|r| self.census.has(r.space))
                .copied()
                .collect();
            let mut answers = Vec::new();
            if !known.is_empty() {
                transient(self.domain.sample(&known, lines, &mut answers))?;
            }
            let mut answers = answers.into_iter();
            let dead = Page {
                hash: 0,
                frame: 0,
                state: PageState::Dead,
                flags: PageFlags::default(),
            };
            'runs: for run in runs {
                let there = self.census.has(run.space);
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
                    self.census.note_dead(run.space);
                }
                rest = others;
            }
        }
        Ok(pages)
    }

    fn fold(&mut self, mut batch: FoldBatch) -> module::Result<Vec<FoldOutcome>> {
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
            return Ok(vec![WITHHELD; batch.entries.len()]);
        }
        if self.has_all(batch.entries.iter().map(|entry| entry.space)) {
            return transient(self.domain.fold(&batch));
        }
        let there: Vec<bool> = batch
            .entries
            .iter()
            .map(|e| self.census.has(e.space))
            .collect();
        batch.entries.retain(|entry| self.census.has(entry.space));
        let answers = if batch.entries.is_empty() {
            Vec::new()
        } else {
            transient(self.domain.fold(&batch))?
        };
        let mut answers = answers.into_iter();
        Ok(there
            .iter()
            .map_while(|&there| if there { answers.next() } else { Some(DEAD) })
            .collect())
    }
}

impl<D: Domain> Machine for Host<D> {
    type Error = module::Error;

    fn perform(&mut self, command: Command) -> module::Result<Observation> {
        Ok(match command {
            Command::Census => {
                let changes = self.census.take(&mut self.domain)?;
                changes
                    .left
                    .iter()
                    .for_each(|&space| self.surveys.forget(space));
                Observation::Census {
                    arrived: changes.arrived,
                    left: changes.left,
                    resident: changes.resident,
                }
            }
            Command::Survey(space) => Observation::Surveyed {
                space,
                mappings: self.survey(space)?,
            },
            Command::Sample { runs, lines } => Observation::Sampled(self.sample(&runs, lines)?),
            Command::Fold(batch) => Observation::Folded(self.fold(batch)?),
            Command::Frames {
                cursor,
                count,
                lines,
                reap,
            } => {
                let listing = self.domain.frames(cursor, count, lines, reap)?;
                Observation::Frames {
                    frames: listing.frames,
                    cursor: listing.cursor,
                }
            }
            Command::Break { space, start, end } => {
                if self.dry || !self.census.has(space) {
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

/// How far a BREAK came.
struct Range {
    pages: u64,
    stopped: bool,
}

fn break_range(
    domain: &mut impl Domain,
    space: SpaceId,
    mut start: u64,
    end: u64,
) -> module::Result<Range> {
    let mut range = Range {
        pages: 0,
        stopped: false,
    };
    while start < end && !range.stopped {
        let broken = domain.break_range(space, start, end)?;
        range.pages += broken.pages;
        // Without progress the rest cannot be had now: a signal, or a process that is gone.
        range.stopped = broken.stopped || broken.next <= start;
        start = broken.next;
    }
    Ok(range)
}

fn break_space(
    domain: &mut impl Domain,
    proc: &proc::Proc,
    (pid, space): (u32, SpaceId),
    alive: &mut dyn FnMut(),
) -> module::Result<Range> {
    let mut text = Vec::new();
    let mut sum = Range {
        pages: 0,
        stopped: false,
    };
    if proc.maps(pid, &mut text).is_err() {
        return Ok(sum);
    }
    for (mut start, end) in maps::breakable(&text) {
        while start < end {
            alive();
            let stretch = end.min(start.saturating_add(BREAK_STRETCH));
            let range = break_range(domain, space, start, stretch)?;
            sum.pages += range.pages;
            sum.stopped |= range.stopped;
            start = stretch;
        }
    }
    Ok(sum)
}

/// No memory for a request, for a moment: nothing was done, which is what an empty answer says.
fn transient<T: Default>(answer: module::Result<T>) -> module::Result<T> {
    match answer {
        Err(error) if error.errno() == Some(Errno::NOMEM) => {
            tracing::warn!("{error}: trying again");
            Ok(T::default())
        }
        answer => answer,
    }
}

//! The machine of a running Linux: performs the policy's commands through the kernel module.
//!
//! # Problem
//! The policy's commands name spaces and pages. Processes exit, exec and are excluded after the
//! policy has made a command and before the machine performs it.
//!
//! # Approach
//! Each command is one call, or a few. The module refuses a whole request over one space that it
//! does not know, so the machine asks it only about followed spaces, and itself answers that the
//! others are dead (`ask`). If the module calls a space dead, the next process list drops it. A
//! call for which there is no memory has no effect: the machine counts it and reports it, and the
//! policy tries again later. Only a failure of the module itself ends a run.
//!
//! With [`LinuxMachine::dry`] set, nothing is ever merged: each page of a FOLD is answered as busy,
//! so that the policy goes on sampling and reports what it believes could be merged.

use std::collections::BTreeMap;

mod giving_back;
mod sleep_until_event;
mod zero_page_count;

use uksm_policy::command::{
    Command, FoldBatch, FoldEntry, FoldOutcome, FrameId, Lines, Nanos, Observation, Page,
    PageFlags, PageState, Reason, Run, SpaceId, SpaceSize, Status,
};

use crate::discovery::Discovery;
use crate::domain::Domain;
use crate::driver::Machine;
use crate::hints::Feed;
use crate::ksm::activity::KsmActivity;
use crate::lock_waits::LockWaits;
use crate::module::{self, raw};
use crate::patrol::{Finding, Sharer, sharers_of};
use crate::processes::Processes;
use crate::selection::Selectors;
use crate::short_memory::ShortMemory;
use crate::sleeper::Sleeper;
use crate::supervised_spaces::{SupervisedSpaces, Supervisor};
use crate::unmerge::{UnmergeSummary, unmerge_spaces};
use crate::{clock, mapping_lists};

/// A listing of this many frames works even if memory is short: it takes half a page.
const SHORT_LISTING_FRAMES: u32 = 64;

/// Maximum number of changed frames per check whose sharers are logged: finding them takes a search
/// of all memory for each frame.
const MAX_LOGGED_FRAMES: usize = 16;

/// No lines: states only.
const STATES: Lines = Lines { from: 0, to: 0 };

/// All frames of the domain, added up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrameTotals {
    /// Frames with at least one mapping.
    pub mapped: u64,
    /// Those with just one: they save nothing.
    pub single: u64,
    /// Frames without, not freed yet.
    pub unmapped: u64,
    /// Mappings.
    pub sharers: u64,
    /// Frames on each node of memory, from node 0.
    pub by_node: Vec<u64>,
}

/// The machine.
#[derive(Debug)]
pub struct LinuxMachine<D, P = Processes> {
    domain: D,
    processes: P,
    sleeper: Sleeper,
    longest_sleep: Nanos,
    /// In-kernel KSM.
    ksm: KsmActivity,
    hints: Option<Feed>,
    /// The processes with hints, by their spaces.
    hinted: BTreeMap<SpaceId, u32>,
    dry: bool,
    /// Pages of FOLD requests that the dry run did not perform.
    withheld: u64,
    /// Calls for which there was no memory.
    shortages: u64,
    /// Spaces whose processes hold their own locks.
    locked: LockWaits<SpaceId>,
    short_memory: ShortMemory,
}

impl<D: Domain, P: Discovery> LinuxMachine<D, P> {
    /// A machine of these parts.
    pub fn new(domain: D, processes: P, sleeper: Sleeper) -> LinuxMachine<D, P> {
        LinuxMachine {
            domain,
            processes,
            sleeper,
            longest_sleep: Nanos::MAX,
            ksm: KsmActivity::of_host(),
            hints: None,
            hinted: BTreeMap::new(),
            dry: false,
            withheld: 0,
            shortages: 0,
            locked: LockWaits::default(),
            short_memory: ShortMemory::of_host(),
        }
    }

    /// Uses these hints of I/O of the followed processes.
    pub fn be_hinted_by(&mut self, hints: Feed) {
        self.hints = Some(hints);
        self.hint(self.processes.spaces().into_iter());
    }

    /// Replaces the state of in-kernel KSM by this one.
    #[must_use]
    pub fn beside(mut self, ksm: KsmActivity) -> LinuxMachine<D, P> {
        self.ksm = ksm;
        self
    }

    /// The source of hints, if there is one.
    #[must_use]
    pub fn hints(&self) -> Option<&Feed> {
        self.hints.as_ref()
    }

    /// Merges nothing from now on.
    #[must_use]
    pub fn dry(mut self) -> LinuxMachine<D, P> {
        self.dry = true;
        self
    }

    /// Whether the machine merges nothing.
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

    /// Failed reads of processes that live: the known state of these processes was kept.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.processes.counts().unread
    }

    /// Calls that the kernel had no memory for; each was tried again later, or will be.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        self.shortages + self.processes.counts().shortages
    }

    /// Processes that hold their own locks, so that nothing can be read or merged there, with the
    /// duration; by id.
    #[must_use]
    pub fn locked(&self) -> Vec<(u32, Nanos)> {
        let mut locked = self.processes.counts().locked;
        let pid = |space| self.processes.process_of(space);
        let spaces = self.locked.long();
        locked.extend(spaces.filter_map(|(space, time)| Some((pid(space)?, time))));
        locked.sort_unstable_by_key(|&(pid, time)| (pid, std::cmp::Reverse(time)));
        locked.dedup_by_key(|&mut (pid, _)| pid);
        locked
    }

    /// Time for which the locks of a space's process were held at every try, if that is long.
    #[must_use]
    pub fn held(&self, space: SpaceId) -> Option<Nanos> {
        self.locked.held(space)
    }

    /// Calls that gave up on processes holding their own locks; each was made again later, or will
    /// be.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.locked.given_up() + self.processes.counts().given_up
    }

    /// The source of processes.
    #[must_use]
    pub fn processes(&self) -> &P {
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
                // When memory is short, the kernel is asked for fewer frames.
                Err(error) if error.is_short() && most > SHORT_LISTING_FRAMES => {
                    self.shortages += 1;
                    most /= 2;
                    continue;
                }
                answer => answer?,
            };
            for frame in &listing.frames {
                totals.mapped += u64::from(frame.sharers > 0);
                totals.single += u64::from(frame.sharers == 1);
                totals.unmapped += u64::from(frame.sharers == 0);
                totals.sharers += u64::from(frame.sharers);
                frame.count_on_node(&mut totals.by_node);
            }
            if listing.cursor == 0 || listing.frames.is_empty() {
                return Ok(totals);
            }
            cursor = listing.cursor;
        }
    }

    fn list_mappings(&mut self, space: SpaceId) -> module::Result<Observation> {
        let nothing = Observation::Mappings {
            space,
            mappings: vec![],
            age: 0,
        };
        if !self.processes.has(space) {
            return Ok(nothing);
        }
        let read_at = clock::now();
        if !self.locked.is_due(space, read_at) {
            return Ok(Observation::Unread { space });
        }
        let ksm_runs = self.ksm.now();
        let listed = match self.try_call(|domain| mapping_lists::mergeable(domain, space, ksm_runs))
        {
            Err(error) if error.is_locked() => {
                self.locked.gave_up(space, clock::now());
                return Ok(Observation::Unread { space });
            }
            listed => listed?,
        };
        Ok(match listed {
            None => Observation::Unread { space },
            Some(None) => {
                self.forget(space);
                self.processes.note_dead(space);
                nothing
            }
            Some(Some(mappings)) => {
                self.locked.clear(space);
                Observation::Mappings {
                    space,
                    mappings,
                    age: clock::now().saturating_sub(read_at),
                }
            }
        })
    }

    /// Forgets the state of a space.
    fn forget(&mut self, space: SpaceId) {
        self.locked.clear(space);
        if let (Some(hints), Some(pid)) = (&mut self.hints, self.hinted.remove(&space)) {
            hints.forget(pid);
        }
    }

    /// Makes a call. None if there was no memory for it.
    fn try_call<T>(
        &mut self,
        call: impl FnOnce(&mut D) -> module::Result<T>,
    ) -> module::Result<Option<T>> {
        match call(&mut self.domain) {
            Err(error) if error.is_short() => {
                if self.shortages.is_power_of_two() || self.shortages == 0 {
                    tracing::warn!("{error}: tried again later");
                }
                self.shortages += 1;
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Makes a call about pages, and answers `dead` here for those whose space is not followed: the
    /// module refuses a whole request over one space that it does not know. `call` is given the
    /// items to ask about, or none if these are all of them.
    ///
    /// The answers are in the order of the items; there are fewer if the call was interrupted. None
    /// if there was no memory for the call.
    fn ask<I: OfSpace, A: Copy>(
        &mut self,
        items: &[I],
        dead: A,
        call: impl FnOnce(&mut D, Option<Vec<I>>) -> module::Result<Vec<A>>,
    ) -> module::Result<Option<Vec<A>>> {
        if self.has_all(items) {
            return self.try_call(|domain| call(domain, None));
        }
        let is_followed = |item: &&I| self.processes.has(item.space());
        let followed: Vec<I> = items.iter().filter(is_followed).copied().collect();
        let mut answered = Vec::new();
        if !followed.is_empty() {
            match self.try_call(|domain| call(domain, Some(followed)))? {
                Some(answers) => answered = answers,
                None => return Ok(None),
            }
        }
        let mut answered = answered.into_iter();
        let mut answers = Vec::new();
        for item in items {
            let followed = self.processes.has(item.space());
            for _ in 0..item.pages() {
                match if followed {
                    answered.next()
                } else {
                    Some(dead)
                } {
                    Some(answer) => answers.push(answer),
                    // Interrupted: the module was not asked about the rest.
                    None => return Ok(Some(answers)),
                }
            }
        }
        Ok(Some(answers))
    }

    /// Whether the spaces of all these are followed. Neighbours are mostly of one space.
    fn has_all<I: OfSpace>(&self, items: &[I]) -> bool {
        let mut last = None;
        for space in items.iter().map(OfSpace::space) {
            if last != Some(space) && !self.processes.has(space) {
                return false;
            }
            last = Some(space);
        }
        true
    }

    /// None if there was no memory for the call.
    fn sample(&mut self, runs: &[Run], lines: Lines) -> module::Result<Option<Vec<Page>>> {
        const DEAD: Page = Page {
            hash: 0,
            frame: 0,
            state: PageState::Dead,
            flags: PageFlags(0),
        };
        let answer = self.ask(runs, DEAD, |domain, followed| {
            let mut pages = Vec::new();
            domain.sample(followed.as_deref().unwrap_or(runs), lines, &mut pages)?;
            Ok(pages)
        })?;
        let Some(pages) = answer else {
            return Ok(None);
        };
        let is_news = |page: &Page| {
            use PageState::{Dead, Foreign, Retry};
            matches!(page.state, Dead | Foreign | Retry)
        };
        if !self.locked.is_empty() || pages.iter().any(is_news) {
            let now = clock::now();
            let mut rest = pages.as_slice();
            for run in runs {
                let (mine, others) = rest.split_at((run.count as usize).min(rest.len()));
                let has = |state| mine.iter().any(|page| page.state == state);
                if has(PageState::Dead) {
                    self.processes.note_dead(run.space);
                } else if has(PageState::Foreign) {
                    self.processes.note_foreign(run.space);
                }
                if has(PageState::Retry) {
                    self.locked.met(run.space, now);
                } else if !mine.is_empty() {
                    self.locked.clear(run.space);
                }
                rest = others;
            }
        }
        Ok(Some(pages))
    }

    /// Finds changed frames, logs their sharers, and gives the frames up. If memory is short, the
    /// next pass does it.
    fn check_frames(&mut self, cursor: u32, count: u32) -> module::Result<()> {
        let changed = self.try_call(|domain| domain.changed_frames(cursor, count))?;
        let changed = changed.unwrap_or_default();
        if changed.len() > MAX_LOGGED_FRAMES {
            tracing::error!(
                "patrol: {} more frames have changed and are given up; the processes that share \
                 them are not searched for",
                changed.len() - MAX_LOGGED_FRAMES
            );
        }
        for (number, frame) in changed.into_iter().enumerate() {
            if number < MAX_LOGGED_FRAMES {
                self.name_sharers(frame)?;
            }
            self.try_call(|domain| domain.retire(frame))?;
        }
        Ok(())
    }

    /// Logs the sharers of a changed frame.
    fn name_sharers(&mut self, frame: FrameId) -> module::Result<()> {
        let spaces = self.processes.spaces();
        let sharers = self.try_call(|domain| sharers_of(domain, &spaces, frame))?;
        let with_process = |sharer: Sharer| (sharer, self.processes.process_of(sharer.space));
        let sharers: Vec<_> = sharers.into_iter().flatten().map(with_process).collect();
        let sharers = &sharers;
        tracing::error!("{}", Finding { frame, sharers });
        Ok(())
    }

    /// None if there was no memory for the call.
    fn measure(&mut self, spaces: &[SpaceId]) -> module::Result<Option<Vec<SpaceSize>>> {
        let sizes = self.try_call(|domain| domain.sizes(spaces))?;
        for size in sizes.iter().flatten().filter(|size| size.gone) {
            self.processes.note_dead(size.space);
        }
        Ok(sizes)
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
        self.ask(&batch.entries, DEAD, |domain, followed| match followed {
            None => domain.fold(batch),
            Some(entries) => domain.fold(&FoldBatch { entries, ..*batch }),
        })
    }
}

/// A request item: pages of one space.
trait OfSpace: Copy {
    /// The space.
    fn space(&self) -> SpaceId;
    /// Number of pages, each of which gets an answer.
    fn pages(&self) -> u32;
}

impl OfSpace for Run {
    fn space(&self) -> SpaceId {
        self.space
    }
    fn pages(&self) -> u32 {
        self.count
    }
}

impl OfSpace for FoldEntry {
    fn space(&self) -> SpaceId {
        self.space
    }
    fn pages(&self) -> u32 {
        1
    }
}

impl<D: Domain> LinuxMachine<D> {
    /// Whether the selected processes can be unmerged and then excluded.
    ///
    /// # Errors
    /// The selectors name a unit of a user, or too many are excluded already: one line.
    pub fn may_break(&mut self, selectors: &Selectors) -> Result<(), String> {
        selectors.check_units(self.processes.proc())?;
        self.processes.grouping().has_room_for(selectors)
    }

    /// Unmerges every page of the selected processes that are followed, and excludes them from now
    /// on. Calls `alive` regularly, because it can take long.
    ///
    /// # Errors
    /// The module fails.
    pub fn unmerge_selected(
        &mut self,
        selectors: &Selectors,
        alive: &mut dyn FnMut(),
    ) -> module::Result<UnmergeSummary> {
        let targets = self.processes.chosen(selectors);
        let targets: Vec<SpaceId> = targets.iter().map(|target| target.space).collect();
        let done = unmerge_spaces(&mut self.domain, &targets, alive)?;
        self.processes
            .exclude(selectors.clone(), &mut self.domain)?;
        Ok(done)
    }
}

impl<D: Domain, S: Supervisor> LinuxMachine<D, SupervisedSpaces<S>> {
    /// Unmerges every page of these spaces, which are excluded from now on. Calls `alive`
    /// regularly.
    ///
    /// # Errors
    /// The module fails.
    pub fn break_spaces(
        &mut self,
        spaces: &[SpaceId],
        alive: &mut dyn FnMut(),
    ) -> module::Result<UnmergeSummary> {
        // Excluded before they are broken: pages merged meanwhile would stay merged.
        self.processes.set_aside(spaces);
        unmerge_spaces(&mut self.domain, spaces, alive)
    }
}

impl<D: Domain, P: Discovery> Machine for LinuxMachine<D, P> {
    type Error = module::Error;

    fn perform(&mut self, command: Command) -> module::Result<Observation> {
        Ok(match command {
            Command::ListProcesses => {
                let changes = self.processes.list(&mut self.domain)?;
                for &space in &changes.left {
                    self.forget(space);
                }
                self.hint(changes.arrived.iter().map(|arrival| arrival.space));
                Observation::Processes {
                    arrived: changes.arrived,
                    left: changes.left,
                    resized: changes.resized,
                    more: changes.more,
                    event_source: self.processes.told(),
                }
            }
            Command::MeasureSpaces(spaces) => match self.measure(&spaces)? {
                Some(sizes) => Observation::Sizes(sizes),
                None => Observation::NoMemory(Command::MeasureSpaces(spaces)),
            },
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
                check,
            } => {
                if check {
                    self.check_frames(cursor, count)?;
                }
                match self.try_call(|domain| domain.frames(cursor, count, lines, reap))? {
                    Some(listing) => Observation::Frames {
                        frames: listing.frames,
                        cursor: listing.cursor,
                    },
                    None => Observation::NoMemory(command),
                }
            }
            Command::GiveBack { space, start, end } => self.give_back(space, (start, end))?,
            Command::TakeHints => self.take_hints(),
            Command::Sleep {
                until,
                events_wake_from,
                hints_wake_from,
            } => self.sleep(until, events_wake_from, hints_wake_from),
        })
    }
}

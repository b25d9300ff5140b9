//! Conditions that must hold after every step of every run, under all faults.
//!
//! # Problem
//! A wrong merge, a lost count or a duplicate that is not found must end the run in which it
//! happens, at the step at which it happens. Hosts have many pages, and runs many steps.
//!
//! # Approach
//! After each command the pages that it named are examined: the answer must agree with the page
//! tables. Counts are kept here apart from host and engine. At intervals all page tables are
//! counted. `budget` and `progress` examine time.
//!
//! | check | holds |
//! |---|---|
//! | `merge` | a merged page maps a frame of its own contents and its own domain |
//! | `answer` | what FOLD answers is what page tables say |
//! | `savings` | what host and engine count as saved is what page tables save |
//! | `equation` | every page tried has one outcome, and the engine counted each answer once |
//! | `budget` | no window costs more processor time than the share |
//! | `policy` | nothing is merged that the policy forbids |
//! | `memory` | the engine needs no more memory than its bound |
//! | `progress` | no duplicate waits longer than its bound |

mod budget;
mod policy;
mod progress;
mod violation;

use std::collections::BTreeSet;

use uksm_policy::command::{
    Command, FoldEntry, FoldKind, FoldOutcome, Nanos, Observation, PageState, SpaceId, Status,
};
use uksm_policy::params::Contents;
use uksm_policy::{Engine, Outcomes, Params};

use crate::{Content, FrameView, Host};
use budget::Budget;
use policy::Policy;
use progress::Progress;
pub use violation::Violation;
use violation::violated;

/// The bounds of a run.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The parameters that the engine should keep.
    pub params: Params,
    /// Longest permitted wait of a duplicate; none to measure it only.
    pub wait: Option<Nanos>,
}

/// Bytes beside the index that are tolerated.
const SPARE_BYTES: u64 = 256 << 10;
/// Limit of the bytes of a region or a space.
const REGION_BYTES: u64 = 8 << 10;
/// Bytes of regions that went: a thousand ids are kept back, in an array that doubles.
const VACANT_BYTES: u64 = 2 << 20;
/// Limit of the bytes of a frame in the engine's tables.
const FRAME_BYTES: u64 = 64;
/// Bytes of a page that shares a frame with no other page of its space.
const PAIR_BYTES: u64 = 16;
/// Bytes of the index for each page in memory, without other settings: below 1/256 of a page.
const PAGE_BYTES: u64 = 12;

/// The checks of one engine's run.
#[derive(Debug)]
pub struct Checks {
    domain: u16,
    bounds: Bounds,
    counted: Outcomes,
    budget: Budget,
    policy: Policy,
    progress: Progress,
    /// Largest number of pages in memory in the engine's view.
    most_pages: u64,
    /// Largest number of regions and spaces that it followed.
    most_regions: u64,
}

impl Checks {
    /// Checks of the engine of a domain.
    #[must_use]
    pub fn new(domain: u16, bounds: Bounds) -> Checks {
        Checks {
            domain,
            counted: Outcomes::default(),
            budget: Budget::new(&bounds.params),
            policy: Policy::default(),
            progress: Progress::new(bounds.wait),
            bounds,
            most_pages: 0,
            most_regions: 0,
        }
    }

    /// Checks a command that was performed.
    ///
    /// # Errors
    /// The answer does not agree with the page tables, or a page was merged that must not be.
    pub fn performed(
        &mut self,
        host: &Host,
        command: &Command,
        observation: &Observation,
    ) -> Result<(), Violation> {
        let (Command::Fold(batch), Observation::Folded(outcomes)) = (command, observation) else {
            return Ok(());
        };
        let tried = || batch.entries.iter().zip(outcomes);
        // A page can be in a batch twice: as sampled before a write, and after it.
        let is_merged =
            |outcome: &FoldOutcome| matches!(outcome.status, Status::Merged | Status::Zeroed);
        let merged: BTreeSet<(SpaceId, u64)> = tried()
            .filter(|(_, outcome)| is_merged(outcome))
            .map(|(entry, _)| (entry.space, entry.address))
            .collect();
        for (entry, outcome) in tried() {
            self.count(outcome.status);
            self.merged_rightly(host, entry)?;
            if is_merged(outcome) || !merged.contains(&(entry.space, entry.address)) {
                answered_rightly(host, entry, *outcome)?;
            }
        }
        self.policy
            .performed(&self.bounds.params, host, batch, outcomes)
    }

    /// A page maps a frame or the zero page only if the contents are the same.
    fn merged_rightly(&self, host: &Host, entry: &FoldEntry) -> Result<(), Violation> {
        let Some(page) = host.page(entry.space, entry.address) else {
            return Ok(());
        };
        let fault = match page.state {
            PageState::Zero => (page.content != Content::ZERO).then_some("it holds no zeros"),
            PageState::Frame => {
                let frame = host.frame_of(entry.space, entry.address);
                match frame.and_then(|frame| host.frame(frame)) {
                    None => Some("its frame is not held"),
                    Some(frame) if frame.content != page.content => Some("contents differ"),
                    Some(frame) if Some(frame.domain) != host.domain_of(entry.space) => {
                        Some("its frame is another domain's")
                    }
                    Some(_) => None,
                }
            }
            _ => None,
        };
        match fault {
            None => Ok(()),
            Some(fault) => violated(
                "merge",
                format!(
                    "page {:#x} of space {} in domain {}: {fault}",
                    entry.address, entry.space.0, self.domain
                ),
            ),
        }
    }

    fn count(&mut self, status: Status) {
        let counter = match status {
            Status::Untried => return,
            Status::Merged => &mut self.counted.merged,
            Status::Already => &mut self.counted.already,
            Status::Zeroed => &mut self.counted.zeroed,
            Status::Differed => &mut self.counted.differed,
            Status::Busy => &mut self.counted.busy,
            Status::Gone => &mut self.counted.gone,
            Status::Full => &mut self.counted.full,
            Status::Refused => &mut self.counted.refused,
        };
        *counter += 1;
        self.counted.tried += 1;
    }

    /// Checks the counts after the engine took in the answer to a FOLD.
    ///
    /// # Errors
    /// Its outcomes are not those that were reported, or do not add up.
    pub fn counted(&self, engine: &Engine) -> Result<(), Violation> {
        self.equation(&engine.report().outcomes)
    }

    /// Checks that these outcomes are those that were reported, and add up.
    ///
    /// # Errors
    /// They are not, or do not.
    pub fn equation(&self, outcomes: &Outcomes) -> Result<(), Violation> {
        if !outcomes.balances() || *outcomes != self.counted {
            let what = format!("{outcomes:?}, counted were {:?}", self.counted);
            return violated("equation", what);
        }
        Ok(())
    }

    /// Checks work from `begun` to `end` at this cost.
    ///
    /// # Errors
    /// It used more than the share.
    pub fn worked(&mut self, begun: Nanos, end: Nanos, cost: Nanos) -> Result<(), Violation> {
        self.budget.worked(begun, end, cost)
    }

    /// Checks the engine's memory.
    ///
    /// # Errors
    /// It is more than its bound.
    pub fn memory(&mut self, engine: &Engine) -> Result<(), Violation> {
        let report = engine.report();
        let regions = report.regions.regions + report.spaces.spaces;
        self.most_regions = self.most_regions.max(regions);
        self.most_pages = self.most_pages.max(report.regions.resident_pages);
        let index = self.bounds.params.index_bytes.map(|bytes| bytes as u64);
        let index = index.unwrap_or(self.most_pages * PAGE_BYTES) * 5 / 4;
        let frames = report.frames.frames;
        let pairs = match self.bounds.params.merge {
            Contents::Between => (self.counted.merged + self.most_pages) * PAIR_BYTES,
            Contents::All | Contents::Zero => 0,
        };
        let parts = [
            (
                "indexes",
                report.index.index_bytes,
                index + frames * FRAME_BYTES + pairs + SPARE_BYTES,
            ),
            (
                "regions",
                report.region_memory.region_bytes,
                self.most_regions * REGION_BYTES + VACANT_BYTES,
            ),
        ];
        for (part, used, bound) in parts {
            if used > bound {
                let what = format!(
                    "{used} bytes for {part}, bound {bound}, at most {} pages and {} regions, {frames} \
                     frames",
                    self.most_pages, self.most_regions
                );
                return violated("memory", what);
            }
        }
        Ok(())
    }

    /// Looks for duplicates that wait too long.
    ///
    /// # Errors
    /// There is one.
    pub fn progress(&mut self, host: &Host, now: Nanos) -> Result<(), Violation> {
        self.progress.look(self.domain, &host.duplicates(), now)
    }

    /// The longest wait of a duplicate so far.
    #[must_use]
    pub fn longest_wait(&self) -> Nanos {
        self.progress.longest()
    }
}

/// The answer of FOLD for a page must agree with the page table.
fn answered_rightly(host: &Host, entry: &FoldEntry, outcome: FoldOutcome) -> Result<(), Violation> {
    let page = host.page(entry.space, entry.address);
    let state = page.map_or(PageState::Unmapped, |page| page.state);
    let is_right = match outcome.status {
        Status::Merged => {
            state == PageState::Frame
                && host.frame_of(entry.space, entry.address) == Some(outcome.frame)
                && entry.kind != FoldKind::Zero
        }
        Status::Zeroed => state == PageState::Zero && entry.kind == FoldKind::Zero,
        Status::Already => matches!(state, PageState::Frame | PageState::Zero),
        Status::Busy | Status::Differed | Status::Full => {
            !matches!(state, PageState::Frame | PageState::Zero)
        }
        Status::Untried | Status::Gone | Status::Refused => true,
    };
    if !is_right {
        let what = format!(
            "page {:#x} of space {} is {state:?} after {outcome:?}",
            entry.address, entry.space.0
        );
        return violated("answer", what);
    }
    Ok(())
}

/// Counts all page tables.
///
/// # Errors
/// A page is mapped wrongly, or the books of the host differ.
pub fn audit(host: &Host) -> Result<(), Violation> {
    let audit = host.audit();
    if let Some((space, address)) = audit.wrong {
        let what = format!("page {address:#x} of space {} is mapped wrongly", space.0);
        return violated("merge", what);
    }
    if audit.saved() != host.saved() {
        let what = format!("{} pages, the books say {}", audit.saved(), host.saved());
        return violated("savings", what);
    }
    for (frame, held) in host.held() {
        let mapped = audit.sharers.get(frame as usize).copied().unwrap_or(0);
        if mapped != held.sharers {
            let what = format!("frame {frame} has {mapped} mappings, not {}", held.sharers);
            return violated("savings", what);
        }
    }
    Ok(())
}

/// At the end, without faults: the engine's savings in sound frames of a domain are those of the
/// page tables.
///
/// # Errors
/// They are not.
pub fn settled(host: &Host, domain: u16, engine: &Engine) -> Result<(), Violation> {
    let frames = engine.report().frames;
    let is_known = |frame: &FrameView| frame.domain == domain && !frame.is_poisoned;
    let held: Vec<_> = host.held().filter(|(_, frame)| is_known(frame)).collect();
    let mapped = held.iter().filter(|(_, frame)| frame.sharers > 0);
    let saved: u64 = mapped.map(|(_, frame)| u64::from(frame.sharers) - 1).sum();
    if frames.frames != held.len() as u64 || frames.saved != saved {
        let what = format!(
            "the engine believes in {} frames that save {} pages; {} save {saved}",
            frames.frames,
            frames.saved,
            held.len()
        );
        return violated("savings", what);
    }
    Ok(())
}

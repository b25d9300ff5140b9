//! Matches are extended: pages that may equal another region are read, and proposed.
//!
//! # Problem
//! The samples of a region are worth most before the pages between them are read and looked up.
//!
//! # Approach
//! Once samples proved that two regions lie on a diagonal, the rest of one is read before any other
//! pages, and queued page by page with the expected twins. That is merging, and the share of the
//! top level pays. While the hash strength is searched for, it waits: it would read all pages at a
//! strength that is too high.

use super::turn::{Action, Turn};
use super::{Engine, cost_by_space};
use crate::accounts::payer::Payer;
use crate::command::{Command, Nanos, Page, Run};
use crate::ladder::sampling::MAX_RUNS;
use crate::lookup::RegionPage;
use crate::merge::extension::{ExtensionPage, SampledRegion, TwinStretch};
use crate::merge::queue::{HitKind, WaitingPage};
use crate::region::Region;

/// Samples of a region up to which its pairs count: with more, it is being swept anyway.
const MAX_SAMPLES: u32 = 4096;
/// Limit of the parts of a stretch.
const MAX_PARTS: usize = 512;

impl Engine {
    /// A page was merged with the first of its set: the pages at the same distance may be equal,
    /// too.
    pub(super) fn extension_learns(&mut self, page: &WaitingPage) {
        if page.is_first || page.ticket.is_some() || self.params.spaces_needed() > 2 {
            return;
        }
        match page.counted {
            HitKind::Extended => self.extension.count_merged(),
            HitKind::Met | HitKind::Sure => self.count_pair(page.place, page.first),
            HitKind::Not | HitKind::Guess | HitKind::Expected => {}
        }
    }

    /// A page and its twin, which met by their hash, proved equal.
    fn count_pair(&mut self, place: RegionPage, twin: RegionPage) {
        let find = |place: RegionPage| self.regions.find_ranked(place.region, place.page);
        let Some(region) = find(place) else {
            return;
        };
        let samples = region.duplication().samples();
        if samples > MAX_SAMPLES || place.region == twin.region {
            return;
        }
        let are_limited = self.params.spaces_needed() > 1;
        let is_other = |other: &Region| !are_limited || other.space() != region.space();
        if let Some(other) = find(twin).filter(|other| is_other(other)) {
            let sampled = SampledRegion {
                pages: region.pages(),
                samples,
            };
            self.extension.proved(place, sampled, twin, other.pages());
        }
    }

    /// Whether pages that may equal another region are to be read before any others are looked up.
    pub(super) fn is_extension_due(&mut self) -> bool {
        let (now, top) = (self.clock.now(), self.ladder.top());
        self.extension.waits() && self.ladder.budget(top).is_ready(now)
    }

    /// The payer for reading them.
    pub(super) fn extension_payer(&self) -> Payer {
        Payer::level(self.ladder.top())
    }

    /// The call that reads them.
    pub(super) fn extend(&mut self) -> Option<Action> {
        if !self.is_extension_due() {
            return None;
        }
        let mut stretches = vec![];
        let limit = self.ladder.call_limit(self.ladder.top());
        let mut pages = 0;
        while pages < limit
            && stretches.len() + MAX_PARTS <= MAX_RUNS
            && let Some(stretch) = self.extension.take(stretches.is_empty())
        {
            for part in self.unmerged_parts(&stretch) {
                pages += u64::from(part.pages);
                stretches.push(part);
            }
        }
        stretches.sort_by_key(|stretch| {
            let run = self.run_of(stretch);
            (run.space, run.start)
        });
        let runs: Vec<Run> = stretches.iter().map(|part| self.run_of(part)).collect();
        if runs.is_empty() {
            return None;
        }
        self.extension.read(stretches);
        let lines = self.lines();
        Some(Turn::Extend.requests(Command::Sample { runs, lines }))
    }

    /// The parts of a stretch that are not merged, if both regions still exist.
    fn unmerged_parts(&self, stretch: &TwinStretch) -> Vec<TwinStretch> {
        let find = |place: RegionPage| {
            let last = place.page + stretch.pages - 1;
            self.regions.find_ranked(place.region, last)
        };
        let (Some(region), Some(_)) = (find(stretch.place), find(stretch.twin)) else {
            return vec![];
        };
        let runs = region.unmerged_runs(stretch.place.page, stretch.pages, 0);
        let part = |(page, pages)| TwinStretch {
            place: RegionPage {
                page,
                ..stretch.place
            },
            twin: RegionPage {
                page: stretch.twin.page + (page - stretch.place.page),
                ..stretch.twin
            },
            pages,
        };
        runs.into_iter().map(part).collect()
    }

    fn run_of(&self, stretch: &TwinStretch) -> Run {
        let region = &self.regions[stretch.place.region];
        Run {
            start: region.address(stretch.place.page),
            space: self.spaces.id(region.space()),
            count: stretch.pages,
            stride: 1,
        }
    }

    pub(super) fn on_extension_read(&mut self, pages: Vec<Page>, cost: Nanos) {
        let count = pages.len() as u64;
        self.ladder.measured(self.extension_payer(), count, cost);
        self.hash.sampled(count, cost);
        let runs = self.extension.reading();
        cost_by_space::divide(&self.regions, &mut self.spaces, runs, pages.len(), cost);
        self.extension.receive(pages);
    }

    /// Proposes the pages that were read, as far as the merge queue has room.
    pub(super) fn propose_extended(&mut self) {
        if !self.extension.is_under_way() {
            return;
        }
        let payer = self.extension_payer();
        let scale = self.scale();
        while self.merge.room() >= 2 {
            let Some(extended) = self.extension.next() else {
                break;
            };
            let ExtensionPage { place, twin, page } = extended;
            let is_here = self.regions.find_ranked(place.region, place.page).is_some();
            if !page.is_ordinary() || !is_here {
                continue;
            }
            let mut matching = self.matching().0;
            matching.payer = payer;
            if matching.merge_extended(place, page.hash, twin, &scale) {
                self.extension.count_proposed();
            }
        }
        if self.merge.len() > 0 {
            self.merge.flush();
        }
    }
}

//! Extends matches: where samples of a region meet pages of another region at a constant distance,
//! the pages between are read and compared, without lookups.
//!
//! # Problem
//! Forks, restored snapshots and processes with the same history hold the same pages in the same
//! order. Reading both, entering one in the index and looking the other up costs as much as merging
//! them.
//!
//! # Approach
//! Pairs of equal pages lie on one *diagonal* if the difference of their page numbers is the same.
//! If three of four samples, spread over a region, met pages of one other region on one diagonal,
//! the rest of the region most likely does, too. It is read, so that the hash of each page is
//! known; each page is proposed as the twin of the page on the diagonal, which is not read. The
//! module hashes that one before it makes a frame of it, so a wrong proposal is found by a hash and
//! makes no frame; its page is looked up then. Where fewer than half of the proposals prove equal,
//! the rest is left to sweeps.
//!
//! # Units
//! Pages. A stretch is a run of neighbours whose twins are neighbours, too.
//!
//! # Source
//! File deduplicators extend matches in this way; `docs/decisions/0026`.

use std::collections::{BTreeMap, VecDeque};

use crate::command::Page;
use crate::convert;
use crate::ids::RegionId;
use crate::lookup::RegionPage;

/// Pairs on a diagonal that are needed as evidence.
const MIN_PAIRS: u32 = 4;
/// They must extend over at least this part of a region: neighbours share a fate.
const SPREAD_DIVISOR: u32 = 4;
/// Regions for which pairs are counted.
const MAX_EVIDENCE: usize = 1024;
/// Limit of waiting stretches; later ones are left to sweeps.
const MAX_WAITING: usize = 4096;
/// Pages of a stretch.
const STRETCH_PAGES: u32 = 1024;
/// Proposals after which it is judged whether extending a region pays.
const JUDGED_PROPOSALS: u32 = 256;

/// A run of neighbours that may equal another run of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TwinStretch {
    /// The first page, which is read.
    pub(crate) place: RegionPage,
    /// Its twin, which is not read.
    pub(crate) twin: RegionPage,
    /// Number of pages.
    pub(crate) pages: u32,
}

/// A page of a stretch that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtensionPage {
    /// Where it is.
    pub(crate) place: RegionPage,
    /// Its twin, perhaps.
    pub(crate) twin: RegionPage,
    /// The page that was read.
    pub(crate) page: Page,
}

/// A region with pages that proved equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledRegion {
    /// Its length.
    pub(crate) pages: u32,
    /// Samples of it that are counted now.
    pub(crate) samples: u32,
}

/// The diagonal on which a region seems to lie.
#[derive(Debug, Clone, Copy)]
struct Evidence {
    /// The region of the twins, and their page number minus the page's.
    twins: RegionId,
    diagonal: i64,
    /// Pairs on this diagonal, and the votes for it, less those for others.
    pairs: u32,
    lead: u32,
    /// The first and the last page of these pairs.
    extent: (u32, u32),
    /// Samples of the region when the last pair was counted: if there are fewer now, they are
    /// counted anew.
    samples: u32,
    is_extended: bool,
}

/// The stretches that wait to be read, and the pages that wait to be proposed.
#[derive(Debug, Default)]
pub(crate) struct Extension {
    evidence: BTreeMap<RegionId, Evidence>,
    waiting: VecDeque<TwinStretch>,
    /// The stretches of the call under way or of its answer, as they were asked for.
    reading: Vec<TwinStretch>,
    /// The answer, and the next proposal: a stretch, a page of it, and a page of the answer.
    pages: Vec<Page>,
    next: (usize, u32, usize),
    /// Recent proposals, and those of them that were merged.
    proposed: u32,
    merged: u32,
    /// The region of which the call under way has only the first stretch, and the last region that
    /// was tried in this way.
    on_trial: Option<RegionId>,
    tried: Option<RegionId>,
}

impl Extension {
    /// Nothing is known.
    pub(crate) fn new() -> Extension {
        Extension::default()
    }

    /// A page of this region and its twin, in a region of `twin_pages`, met by their hash and
    /// proved equal. With enough evidence, all pages of the region that may have twins there are
    /// queued to be read. Among several diagonals, the one with the majority of pairs is kept, if
    /// there is one (Boyer and Moore's majority vote).
    pub(crate) fn proved(
        &mut self,
        place: RegionPage,
        region: SampledRegion,
        twin: RegionPage,
        twin_pages: u32,
    ) {
        let diagonal = i64::from(twin.page) - i64::from(place.page);
        let first = Evidence {
            twins: twin.region,
            diagonal,
            pairs: 1,
            lead: 1,
            extent: (place.page, place.page),
            samples: region.samples,
            is_extended: false,
        };
        let Some(known) = self.evidence.get_mut(&place.region) else {
            if self.evidence.len() >= MAX_EVIDENCE {
                self.evidence.pop_first();
            }
            self.evidence.insert(place.region, first);
            return;
        };
        if region.samples < known.samples || known.lead == 0 {
            *known = first;
            return;
        }
        known.samples = region.samples;
        if (known.twins, known.diagonal) != (twin.region, diagonal) {
            known.lead -= 1;
            return;
        }
        known.pairs += 1;
        known.lead += 1;
        let (first, last) = known.extent;
        known.extent = (first.min(place.page), last.max(place.page));
        let is_spread = known.extent.1 - known.extent.0 >= region.pages / SPREAD_DIVISOR;
        let is_enough = known.pairs >= MIN_PAIRS && 4 * known.pairs >= 3 * region.samples;
        if is_enough && is_spread && !known.is_extended {
            known.is_extended = true;
            self.extend(
                (place.region, region.pages),
                (twin.region, twin_pages),
                diagonal,
            );
        }
    }

    /// Queues all pages of the region that may have twins.
    fn extend(
        &mut self,
        (region, pages): (RegionId, u32),
        (twin, twin_pages): (RegionId, u32),
        diagonal: i64,
    ) {
        let page = |number: i64| convert::narrow(u64::try_from(number).unwrap_or(0));
        let from: u32 = page(-diagonal);
        let to = pages.min(page(i64::from(twin_pages) - diagonal));
        for first in (from..to).step_by(convert::index(STRETCH_PAGES)) {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push_back(TwinStretch {
                    place: RegionPage {
                        region,
                        page: first,
                    },
                    twin: RegionPage {
                        region: twin,
                        page: page(i64::from(first) + diagonal),
                    },
                    pages: STRETCH_PAGES.min(to - first),
                });
            }
        }
    }

    /// Whether stretches wait, and nothing is under way.
    pub(crate) fn waits(&self) -> bool {
        self.reading.is_empty() && !self.waiting.is_empty()
    }

    /// Takes the next stretch for a call, its first one if `is_first`. The first of several
    /// stretches of a region has a call of its own, so that its yield is known before the rest is
    /// read: three of four samples are evidence, and no proof. If proposals did not pay, the other
    /// stretches of the region are dropped.
    pub(crate) fn take(&mut self, is_first: bool) -> Option<TwinStretch> {
        if self.proposed >= JUDGED_PROPOSALS && 2 * self.merged < self.proposed {
            (self.proposed, self.merged) = (0, 0);
            let region = self.waiting.front()?.place.region;
            self.waiting
                .retain(|stretch| stretch.place.region != region);
        }
        let region = self.waiting.front()?.place.region;
        if self.on_trial == Some(region) && !is_first {
            return None;
        }
        let next = self.waiting.get(1).map(|next| next.place.region);
        if next == Some(region) && self.tried != Some(region) {
            self.on_trial = Some(region);
            (self.proposed, self.merged) = (0, 0);
        }
        self.waiting.pop_front()
    }

    /// Records that these stretches are being read, in this order.
    pub(crate) fn read(&mut self, stretches: Vec<TwinStretch>) {
        self.tried = self.on_trial.take().or(self.tried);
        self.reading = stretches;
        self.pages.clear();
        self.next = (0, 0, 0);
    }

    /// The regions being read, and the number of pages of each stretch.
    pub(crate) fn reading(&self) -> impl Iterator<Item = (RegionId, u32)> + '_ {
        let reading = self.reading.iter();
        reading.map(|part| (part.place.region, part.pages))
    }

    /// The pages came back: all, or the first of them.
    pub(crate) fn receive(&mut self, pages: Vec<Page>) {
        self.pages = pages;
        if self.pages.is_empty() {
            self.reading.clear();
        }
    }

    /// Whether pages that were read wait to be proposed.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.pages.is_empty()
    }

    /// The next page that was read; none at the end, where the answer is forgotten.
    pub(crate) fn next(&mut self) -> Option<ExtensionPage> {
        let (mut at, mut offset, page) = self.next;
        while self
            .reading
            .get(at)
            .is_some_and(|stretch| offset >= stretch.pages)
        {
            (at, offset) = (at + 1, 0);
        }
        let (Some(stretch), Some(&read)) = (self.reading.get(at), self.pages.get(page)) else {
            self.reading.clear();
            self.pages.clear();
            return None;
        };
        self.next = (at, offset + 1, page + 1);
        let further = |place: RegionPage| RegionPage {
            page: place.page + offset,
            ..place
        };
        Some(ExtensionPage {
            place: further(stretch.place),
            twin: further(stretch.twin),
            page: read,
        })
    }

    /// A page was proposed for its twin.
    pub(crate) fn count_proposed(&mut self) {
        self.proposed += 1;
        if self.proposed >= 4 * JUDGED_PROPOSALS {
            self.proposed /= 2;
            self.merged /= 2;
        }
    }

    /// A proposed page was merged.
    pub(crate) fn count_merged(&mut self) {
        self.merged += 1;
    }

    /// The strength of hashes changed: the answer is worthless, and its stretches are queued to be
    /// read again.
    pub(crate) fn read_again(&mut self) {
        self.tried = None;
        self.pages.clear();
        for stretch in self.reading.drain(..).rev() {
            self.waiting.push_front(stretch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{PageFlags, PageState};

    const A: RegionId = RegionId(1);
    const B: RegionId = RegionId(2);

    fn place(region: RegionId, page: u32) -> RegionPage {
        RegionPage { region, page }
    }

    fn sampled(samples: u32) -> SampledRegion {
        SampledRegion {
            pages: 3000,
            samples,
        }
    }

    /// Pages of B at these places proved equal to the pages of A that are `diagonal` pages further
    /// on.
    fn proved(extension: &mut Extension, pages: &[u32], diagonal: i64, samples: u32) {
        for &page in pages {
            let twin = u32::try_from(i64::from(page) + diagonal).unwrap();
            extension.proved(place(B, page), sampled(samples), place(A, twin), 2500);
        }
    }

    fn all(extension: &mut Extension) -> Vec<(u32, u32, u32)> {
        let stretches = std::iter::from_fn(|| extension.take(true));
        stretches
            .map(|stretch| (stretch.place.page, stretch.twin.page, stretch.pages))
            .collect()
    }

    #[test]
    fn a_region_of_which_most_samples_lie_on_one_diagonal_is_read_as_far_as_it_may_have_twins() {
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30], 100, 5);
        assert!(!extension.waits(), "three pairs may be chance");
        proved(&mut extension, &[900], 100, 5);
        assert_eq!(
            all(&mut extension),
            [(0, 100, 1024), (1024, 1124, 1024), (2048, 2148, 352)]
        );
        proved(&mut extension, &[901], 100, 6);
        assert!(!extension.waits(), "once");
        proved(&mut extension, &[1000, 1001, 1002, 1003], -700, 4);
        assert!(!extension.waits(), "neighbours");
        proved(&mut extension, &[2500], -700, 5);
        assert_eq!(
            all(&mut extension)[0],
            (700, 0, 1024),
            "before that there is nothing to equal"
        );
    }

    #[test]
    fn samples_that_met_nothing_or_lie_elsewhere_are_evidence_against_it() {
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30, 40], 100, 6);
        proved(&mut extension, &[8, 9], 101, 6);
        assert!(!extension.waits());
        proved(&mut extension, &[100], 100, 6);
        assert!(extension.waits(), "five of six");
    }

    #[test]
    fn pages_come_back_with_their_twins() {
        let mut extension = Extension::new();
        let stretch = |page| TwinStretch {
            place: place(B, page),
            twin: place(A, page + 7),
            pages: 1,
        };
        extension.read(vec![stretch(1), stretch(5)]);
        let page = Page {
            state: PageState::Anon,
            flags: PageFlags::default(),
            hash: 5,
            frame: 0,
        };
        extension.receive(vec![page, Page { hash: 6, ..page }]);
        assert!(extension.is_under_way());
        let pages: Vec<_> = std::iter::from_fn(|| extension.next())
            .map(|page| (page.place.page, page.twin.page, page.page.hash))
            .collect();
        assert_eq!(pages, [(1, 8, 5), (5, 12, 6)]);
        assert!(!extension.is_under_way());
    }

    #[test]
    fn what_does_not_pay_is_left_out() {
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30, 900], 100, 4);
        assert!(extension.take(true).is_some());
        (0..JUDGED_PROPOSALS).for_each(|_| extension.count_proposed());
        assert_eq!(extension.take(true), None);
    }

    #[test]
    fn of_a_region_one_stretch_is_tried_before_the_others_are_read() {
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30, 900], 100, 4);
        extension.proved(place(A, 0), sampled(4), place(B, 0), 900);
        for page in [700, 800, 850] {
            extension.proved(place(A, page), sampled(4), place(B, page), 900);
        }
        let mut call = |merged: u32| {
            let mut taken = vec![];
            while let Some(stretch) = extension.take(taken.is_empty()) {
                taken.push(stretch);
            }
            let places = taken
                .iter()
                .map(|stretch| (stretch.place.region, stretch.place.page))
                .collect::<Vec<_>>();
            extension.read(taken);
            extension.receive(vec![]);
            (0..JUDGED_PROPOSALS).for_each(|_| extension.count_proposed());
            (0..merged).for_each(|_| extension.count_merged());
            places
        };
        assert_eq!(call(JUDGED_PROPOSALS), [(B, 0)], "on trial");
        assert_eq!(call(0), [(B, 1024), (B, 2048), (A, 0)], "all the rest");
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30, 900], 100, 4);
        let lone = extension.take(true).unwrap();
        assert_eq!(extension.take(false), None);
        // No page of it had to be read, so the next one is on trial.
        assert_eq!(extension.take(true).unwrap().place.page, 1024);
        assert_eq!(extension.take(false), None);
        extension.read(vec![lone]);
        extension.read_again();
        assert_eq!(extension.take(true), Some(lone));
        assert_eq!(extension.take(false), None, "at another strength, again");
    }

    #[test]
    fn at_another_strength_what_was_read_is_read_again() {
        let mut extension = Extension::new();
        proved(&mut extension, &[7, 2000, 30, 900], 100, 4);
        let first = extension.take(true).unwrap();
        extension.read(vec![first]);
        assert!(!extension.waits());
        extension.read_again();
        assert_eq!(extension.take(true), Some(first));
    }
}

//! The pay of one kind of pages: the numbers of followed and of merged pages.
//!
//! # Units
//! Pages.

/// Number of followed pages from which on it is judged.
const MIN_JUDGED_PAGES: u16 = 4096;
/// Number at which counts are halved, so that recent pages count for more.
const MAX_COUNTED_PAGES: u16 = 1 << 14;
/// One page in this many must be merged for hints to pay.
const MIN_YIELD_DIVISOR: u16 = 64;

/// The counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct YieldCount {
    tried: u16,
    paid: u16,
}

impl YieldCount {
    /// Whether the pages pay, or too few were followed to judge.
    pub(super) fn pays(self) -> bool {
        self.tried < MIN_JUDGED_PAGES || self.paid >= self.tried / MIN_YIELD_DIVISOR
    }

    /// Whether a smaller share of them merged than of others.
    pub(super) fn is_below(self, others: YieldCount) -> bool {
        u32::from(self.paid) * u32::from(others.tried)
            < u32::from(others.paid) * u32::from(self.tried)
    }

    /// `pages` pages are followed.
    pub(super) fn tried(&mut self, pages: u64) {
        let pages = u16::try_from(pages).unwrap_or(MAX_COUNTED_PAGES);
        self.tried = self.tried.saturating_add(pages);
        if self.tried >= MAX_COUNTED_PAGES {
            self.tried /= 2;
            self.paid /= 2;
        }
    }

    /// A page was merged.
    pub(super) fn paid(&mut self) {
        self.paid = self.paid.saturating_add(1);
    }

    /// A merged page has been overwritten.
    pub(super) fn broken(&mut self) {
        self.paid = self.paid.saturating_sub(1);
    }
}

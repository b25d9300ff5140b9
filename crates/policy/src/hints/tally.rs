//! Whether pages of one kind pay: how many were followed, and how many merged.
//!
//! # Units
//! Pages.

/// So many are followed before it is judged.
const TRIED: u16 = 4096;
/// Counts are halved then, so that what is counts for more than what was.
const MAX_TRIED: u16 = 1 << 14;
/// One page in this many must be merged for hints to pay.
const MIN_YIELD_DIVISOR: u16 = 64;

/// The counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    tried: u16,
    paid: u16,
}

impl Tally {
    /// Whether they pay, or too few were followed to tell.
    pub(super) fn pays(self) -> bool {
        self.tried < TRIED || self.paid >= self.tried / MIN_YIELD_DIVISOR
    }

    /// Whether fewer of them merged than of others.
    pub(super) fn is_below(self, others: Tally) -> bool {
        u32::from(self.paid) * u32::from(others.tried)
            < u32::from(others.paid) * u32::from(self.tried)
    }

    /// So many are followed.
    pub(super) fn tried(&mut self, pages: u64) {
        let pages = u16::try_from(pages).unwrap_or(MAX_TRIED);
        self.tried = self.tried.saturating_add(pages);
        if self.tried >= MAX_TRIED {
            self.tried /= 2;
            self.paid /= 2;
        }
    }

    /// One was merged.
    pub(super) fn paid(&mut self) {
        self.paid = self.paid.saturating_add(1);
    }

    /// One that was merged has been filled with something else.
    pub(super) fn broken(&mut self) {
        self.paid = self.paid.saturating_sub(1);
    }
}

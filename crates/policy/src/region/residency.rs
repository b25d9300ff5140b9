//! The share of a region that is in memory, estimated from its samples.

use crate::convert;

/// Samples from which a residency is more than a guess.
const MIN_SAMPLES: u32 = 8;
/// Samples after which the older ones count half.
const MAX_FULL_WEIGHT_SAMPLES: u32 = 8192;

/// Samples of one region, and the number of them that found a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Residency {
    seen: u16,
    present: u16,
}

impl Residency {
    /// `samples` samples found a page.
    pub(crate) fn found(&mut self, samples: u32) {
        self.sampled(samples, samples);
    }

    /// `samples` samples found no page that could be merged.
    pub(crate) fn missed(&mut self, samples: u32) {
        self.sampled(samples, 0);
    }

    fn sampled(&mut self, samples: u32, found: u32) {
        let mut seen = u32::from(self.seen) + samples;
        let mut present = u32::from(self.present) + found;
        if seen > MAX_FULL_WEIGHT_SAMPLES {
            seen /= 2;
            present /= 2;
        }
        self.seen = u16::try_from(seen).expect("of one call at most");
        self.present = u16::try_from(present).expect("no more than were seen");
    }

    /// The number of `pages` that are believed to be in memory.
    pub(crate) fn of(self, pages: u32) -> u32 {
        if u32::from(self.seen) < MIN_SAMPLES.min(pages) {
            return pages;
        }
        let share = f64::from(self.present) / f64::from(self.seen);
        convert::narrow(convert::count(f64::from(pages) * share + 0.5))
    }

    /// The number of `pages` in memory by the samples taken, however few; 0 without any.
    pub(crate) fn seen_of(self, pages: u32) -> u32 {
        let present = u64::from(pages) * u64::from(self.present);
        convert::narrow(present.checked_div(u64::from(self.seen)).unwrap_or(0))
    }

    /// Whether any sample found nothing.
    pub(crate) fn has_any_hole(self) -> bool {
        self.present < self.seen
    }

    /// Whether an eighth or more of the samples found nothing.
    pub(crate) fn has_holes(self) -> bool {
        has_holes(u32::from(self.present), u32::from(self.seen))
    }
}

/// Whether an eighth or more of `seen` is missing.
pub(crate) fn has_holes(present: u32, seen: u32) -> bool {
    u64::from(present) * 8 < u64::from(seen) * 7
}

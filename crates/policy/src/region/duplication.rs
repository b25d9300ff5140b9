//! The share of a region that has partners, estimated from few samples (UKSM's duplication ratio).
//!
//! # Problem
//! A region is promoted if more than V_dup of its pages have partners. But a sample finds its
//! partner only if the partner has been sampled, too: two clones sampled at a hundredth each meet
//! in a ten-thousandth, so hits ÷ samples means "no duplicates" for a region that consists of them.
//!
//! # Approach
//! Two kinds of hits are counted apart. A *sure* hit is with contents that are known to have
//! partners: a frame, the zero page, or a hash that met before. Its chance is the share of
//! duplicates. A *met* hit is with a page that was sampled before; its chance is that share times
//! the *coverage*, the part of the possible partners that is indexed. Both pages of a meeting are
//! credited, the older one too, so that hits ÷ (samples × coverage) is unbiased at the coverage of
//! the moment, in any order of sampling. An index that keeps only some hashes lowers the coverage
//! and nothing else: it keeps both pages of a pair or neither.
//!
//! The decision is sequential: each sample moves the log of the likelihood of "V_dup" against "a
//! quarter of it"; at [`STEP`] the region climbs a level, at [`LEAP`] it leaps to the top. The sums
//! never fall below [`MIN_EVIDENCE`], so that a region that was unique for a day is noticed as fast
//! as a new one (Page's cumulative sum). Shared samples at equal offsets only make hits likelier.
//!
//! # Units
//! Natural logarithms of likelihood ratios, in 2^32nds: two are added for every page sampled, and
//! sums of whole numbers are equal on all machines. Shares 0 to 1.
//!
//! # Source
//! UKSM §5.2, §5.3; Wald, "Sequential Analysis"; Page, "Continuous inspection schemes".

use crate::convert;

/// A natural logarithm of 1.
const UNIT: i64 = 1 << 32;
/// One false promotion in a hundred.
const STEP: i64 = 46 * UNIT / 10;
/// One false promotion in ten thousand: no level in between is needed for more evidence.
const LEAP: i64 = 2 * STEP;
/// Limit of the evidence for a region: there is no decision beyond.
const MAX_EVIDENCE: i64 = 1000 * UNIT;
/// Limit of the evidence against a region.
const MIN_EVIDENCE: i64 = -2 * UNIT;
/// From this on the case against a region is closed.
const CLOSED_EVIDENCE: i64 = MIN_EVIDENCE + UNIT / 100;
/// Counts are halved beyond this, so that the estimate follows changes.
const MAX_COUNT: u32 = 4096;

/// The weights of a hit and a miss of each kind, at one coverage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    sure_miss: i64,
    met_miss: i64,
    hit: i64,
    coverage: f64,
    v_dup: f64,
}

impl Scale {
    /// For regions that are promoted above `v_dup`, while `coverage` of the partners is indexed.
    pub(crate) fn new(v_dup: f64, coverage: f64) -> Scale {
        let coverage = coverage.clamp(1e-6, 1.0);
        Scale {
            sure_miss: miss(v_dup),
            met_miss: miss(v_dup * coverage),
            hit: fixed(4.0f64.ln()),
            coverage,
            v_dup,
        }
    }
}

/// Log likelihood ratio of a miss, for chance `high` against a quarter of it: below 0.
fn miss(high: f64) -> i64 {
    let high = high.min(0.999);
    fixed(((1.0 - high) / (1.0 - high / 4.0)).ln())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "logarithms of chances are small"
)]
fn fixed(logarithm: f64) -> i64 {
    (logarithm * UNIT as f64).round() as i64
}

/// What to do with the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on sampling.
    Open,
    /// Up a level.
    Step,
    /// To the top.
    Leap,
    /// Not worth this level.
    Below,
}

/// The samples of one region since it came to its level.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DuplicationEstimate {
    for_sure: i64,
    for_met: i64,
    /// At most [`MAX_COUNT`].
    samples: u16,
    /// Hits of them, and of pages that were met by others. Hits beyond the range do not count.
    sure: u16,
    met: u16,
}

impl DuplicationEstimate {
    /// `count` candidates were sampled. A call for the kind of hit follows for each hit.
    pub(crate) fn sampled(&mut self, count: u32, scale: &Scale) {
        let misses = i64::from(count);
        self.for_sure = (self.for_sure + misses * scale.sure_miss).max(MIN_EVIDENCE);
        self.for_met = (self.for_met + misses * scale.met_miss).max(MIN_EVIDENCE);
        let mut samples = u32::from(self.samples).saturating_add(count);
        while samples > MAX_COUNT {
            samples /= 2;
            self.sure /= 2;
            self.met /= 2;
        }
        self.samples = u16::try_from(samples).expect("at most MAX_COUNT");
    }

    /// The sample equals contents that are known to have partners.
    pub(crate) fn sure(&mut self, scale: &Scale) {
        self.for_sure = (self.for_sure + scale.hit - scale.sure_miss).min(MAX_EVIDENCE);
        self.sure = self.sure.saturating_add(1);
    }

    /// The sample, or an earlier one, met an indexed page.
    pub(crate) fn met(&mut self, scale: &Scale) {
        self.for_met = (self.for_met + scale.hit - scale.met_miss).min(MAX_EVIDENCE);
        self.met = self.met.saturating_add(1);
    }

    /// A hit turned out false: the contents differed.
    pub(crate) fn refute(&mut self, scale: &Scale, sure: bool) {
        if sure {
            self.for_sure = (self.for_sure - scale.hit).max(MIN_EVIDENCE);
            self.sure = self.sure.saturating_sub(1);
        } else {
            self.for_met = (self.for_met - scale.hit).max(MIN_EVIDENCE);
            self.met = self.met.saturating_sub(1);
        }
    }

    /// Candidates sampled.
    pub(crate) fn samples(&self) -> u32 {
        u32::from(self.samples)
    }

    /// Those of them that had a partner, and met ones.
    pub(crate) fn hits(&self) -> u32 {
        u32::from(self.sure) + u32::from(self.met)
    }

    /// The share of the region's pages with partners, 0 to 1.
    pub(crate) fn estimate(&self, scale: &Scale) -> f64 {
        if self.samples == 0 {
            return 0.0;
        }
        let samples = f64::from(self.samples);
        let share = f64::from(self.sure) / samples + f64::from(self.met) / samples / scale.coverage;
        share.min(1.0)
    }

    /// The decision so far.
    pub(crate) fn verdict(&self, scale: &Scale) -> Verdict {
        let best = self.for_sure.max(self.for_met);
        if best >= LEAP {
            Verdict::Leap
        } else if best >= STEP {
            Verdict::Step
        } else if (self.for_sure <= CLOSED_EVIDENCE && self.for_met <= CLOSED_EVIDENCE)
            || (self.samples >= 256 && self.estimate(scale) < scale.v_dup)
        {
            Verdict::Below
        } else {
            Verdict::Open
        }
    }

    /// Forgets everything, as on another level.
    pub(crate) fn reset(&mut self) {
        *self = DuplicationEstimate::default();
    }
}

/// The part of `candidates` pages that is among `indexed`.
pub(crate) fn coverage(indexed: u64, candidates: u64) -> f64 {
    if candidates == 0 {
        1.0
    } else {
        convert::ratio(indexed, candidates).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::SplitMix64;
    use proptest::prelude::*;

    /// Two regions of `pages`; each page of one has its partner in the other with chance `share`.
    /// They are sampled at densities `a` and `b`, at independent offsets, interleaved, and the
    /// index keeps the part `kept` of all hashes. Returns the estimate for the first at the end.
    fn estimate(pages: u64, share: f64, (a, b): (f64, f64), kept: f64, seed: u64) -> f64 {
        let mut random = SplitMix64::new(seed);
        let chance =
            |p: f64| move |r: &mut SplitMix64| (r.below(1 << 30) as f64) < p * (1u64 << 30) as f64;
        let (twin, first, second) = (chance(share), chance(a), chance(b));
        let is_kept = chance(kept);
        let scale = Scale::new(0.1, b * kept);
        let mut duplication = DuplicationEstimate::default();
        for _ in 0..pages {
            let (is_twin, in_first, in_second) =
                (twin(&mut random), first(&mut random), second(&mut random));
            if in_first {
                duplication.sampled(1, &scale);
                // The second page meets the first; both are credited.
                if is_twin && in_second && is_kept(&mut random) {
                    duplication.met(&scale);
                }
            }
        }
        duplication.estimate(&scale)
    }

    #[test]
    fn estimate_of_clones_is_unbiased_at_any_densities_and_choices() {
        for (share, a, b, kept) in [
            (1.0, 0.01, 0.01, 1.0),
            (0.5, 0.02, 0.01, 1.0),
            (0.5, 0.01, 0.05, 1.0),
            (0.2, 0.05, 0.02, 1.0),
            (0.3, 0.03, 0.5, 1.0),
            (0.5, 0.05, 0.2, 0.1),
            (0.3, 0.2, 1.0, 0.05),
        ] {
            let runs = 200;
            let mean: f64 = (0..runs)
                .map(|seed| estimate(100_000, share, (a, b), kept, seed))
                .sum::<f64>()
                / runs as f64;
            let tolerance = if share > 0.9 { 0.35 } else { 0.12 };
            assert!(
                (mean / share - 1.0).abs() < tolerance,
                "{mean} for {share} at {a}, {b}, {kept}"
            );
        }
    }

    #[test]
    fn plain_ratio_would_miss_clones() {
        // The same clones, with the coverage left out: a hundredth of the truth.
        let mut duplication = DuplicationEstimate::default();
        let scale = Scale::new(0.1, 1.0);
        for sample in 0..1000 {
            duplication.sampled(1, &scale);
            if sample % 100 == 0 {
                duplication.met(&scale);
            }
        }
        assert_eq!(duplication.verdict(&scale), Verdict::Below);
        let right = Scale::new(0.1, 0.01);
        assert!((duplication.estimate(&right) - 1.0).abs() < 0.01);
    }

    #[test]
    fn eight_hits_in_a_row_leap_to_the_top() {
        let scale = Scale::new(0.1, 0.01);
        let mut duplication = DuplicationEstimate::default();
        let mut verdicts = vec![];
        for _ in 0..8 {
            duplication.sampled(1, &scale);
            duplication.met(&scale);
            verdicts.push(duplication.verdict(&scale));
        }
        assert_eq!(verdicts[2], Verdict::Open, "three are no proof");
        assert!(verdicts.contains(&Verdict::Step));
        assert_eq!(verdicts[7], Verdict::Leap);
    }

    #[test]
    fn a_long_unique_past_does_not_delay_new_duplicates() {
        let scale = Scale::new(0.1, 1.0);
        let mut duplication = DuplicationEstimate::default();
        for _ in 0..1_000_000 {
            duplication.sampled(1, &scale);
        }
        assert_eq!(duplication.verdict(&scale), Verdict::Below);
        for _ in 0..9 {
            duplication.sampled(1, &scale);
            duplication.sure(&scale);
        }
        assert_eq!(duplication.verdict(&scale), Verdict::Leap);
    }

    #[test]
    fn refuted_hits_do_not_promote() {
        let scale = Scale::new(0.1, 0.1);
        let mut duplication = DuplicationEstimate::default();
        for _ in 0..100 {
            duplication.sampled(1, &scale);
            duplication.met(&scale);
            duplication.refute(&scale, false);
        }
        assert!(!matches!(
            duplication.verdict(&scale),
            Verdict::Step | Verdict::Leap
        ));
        assert_eq!((duplication.sure, duplication.met), (0, 0));
    }

    proptest! {
        #[test]
        fn regions_far_below_v_dup_seldom_rise(seed: u64) {
            let scale = Scale::new(0.1, 1.0);
            let mut random = SplitMix64::new(seed);
            let mut duplication = DuplicationEstimate::default();
            let mut steps = 0;
            for _ in 0..10_000 {
                duplication.sampled(1, &scale);
                if random.below(100) == 0 {
                    duplication.sure(&scale);
                }
                if matches!(duplication.verdict(&scale), Verdict::Step | Verdict::Leap) {
                    steps += 1;
                    duplication.reset();
                }
            }
            prop_assert!(steps <= 5, "{steps} false promotions at a tenth of V_dup");
        }

        #[test]
        fn regions_full_of_duplicates_rise(seed: u64, coverage in 0.001f64..1.0) {
            let scale = Scale::new(0.1, coverage);
            let mut random = SplitMix64::new(seed);
            let mut duplication = DuplicationEstimate::default();
            let mut samples = 0u64;
            while duplication.verdict(&scale) != Verdict::Leap {
                duplication.sampled(1, &scale);
                if (random.below(1 << 30) as f64) < coverage * (1u64 << 30) as f64 {
                    duplication.met(&scale);
                }
                samples += 1;
                prop_assert!(samples as f64 * coverage < 40.0, "40 partners sampled in failed_promotions");
            }
        }
    }
}

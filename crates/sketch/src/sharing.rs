//! The number of pages that merging would save: within one process, and between several.
//!
//! # Problem
//! The savings of a group are its pages less its distinct contents. A difference of two large
//! estimates is mostly error.
//!
//! # Approach
//! Savings have two parts, and each is estimated by itself:
//! - *self-sharing*: the copies within one process, beyond the first of each content. It is
//!   estimated from the process's own sketch, and exact for a small process. Frequent contents are
//!   counted, not sampled.
//! - *inter-sharing*: for each content, the processes that have it, beyond the first. It is
//!   estimated below the lowest of their bounds, where all sketches are complete.
//!
//! The savings of a group are the sum. The same is done for the pages that are shared already, by
//! fork or by earlier merges; each content of these is assumed to be one frame.
//!
//! Processes may have been read in part. If two have a content once, the probability that both
//! pages were met is the product of the parts read, so one such pair stands for the inverse of it.
//! A content met in three processes or more is assumed to be met in at least one pair, and each of
//! its processes stands for the inverse of its part. So contents that lie in many processes, or
//! several times in one, are overestimated, by at most some times; self-sharing of contents that
//! occur only a few times is underestimated.
//!
//! # Units
//! Pages.
//!
//! # Source
//! Self-sharing and inter-sharing as in S. Barker and others, "An empirical study of memory sharing
//! in virtual machines", USENIX ATC'12.

use crate::content::Hash;
use crate::estimate::{Estimate, SampledSum};
use crate::sketch::{Sketch, lower, probability};
use crate::tally::Tally;

/// The pages that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Those that are shared already, by fork or because they were merged.
    SharedAlready,
}

impl Which {
    fn count(self, tally: Tally) -> u64 {
        match self {
            Which::All => tally.pages,
            Which::SharedAlready => tally.shared,
        }
    }
}

/// The self-sharing of a process.
#[must_use]
pub fn within(sketch: &Sketch, which: Which) -> Estimate {
    let part = sketch.part_read();
    let copies = |pages: f64| (pages / part - 1.0).max(0.0);
    // A content met once is no evidence of copies.
    let excess = |tally: Tally| match which.count(tally) {
        0 | 1 => 0.0,
        pages => copies(pages as f64),
    };
    let probability = probability(sketch.bound());
    // With all contents kept, frequent ones are counted already.
    let mut frequent = match sketch.bound() {
        Some(_) => sketch.frequent().sure(),
        None => Default::default(),
    };
    let mut sampled = SampledSum::new(probability);
    let mut counted = Estimate::default();
    for (hash, tally) in sketch.kept() {
        if frequent.remove(&hash).is_some() {
            counted = counted + Estimate::exact(excess(tally));
        } else {
            sampled.add(excess(tally), probability);
        }
    }
    let lacking = sketch.frequent().lost() as f64 / 2.0;
    for tally in frequent
        .into_values()
        .filter(|&tally| which.count(tally) > 0)
    {
        counted = counted
            + Estimate {
                pages: copies(which.count(tally) as f64 + lacking),
                error: lacking / part,
            };
    }
    let all = sampled.estimate() + counted;
    all.at_most((sketch.pages() - 1.0).max(0.0))
}

/// A content that one process has, or several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptContent {
    /// The number of contents it stands for, because others were not met.
    pub(crate) weight: f64,
    /// The number of processes that have it, each with its weight.
    pub(crate) processes: f64,
}

/// The distinct contents of one process, or of several together.
#[derive(Debug, Clone)]
pub struct Joint {
    /// Each content that was kept, by hash.
    kept: Vec<(Hash, KeptContent)>,
    bound: Option<Hash>,
    pages: f64,
    /// The part that was read, the least of several.
    part: f64,
}

impl Joint {
    /// The contents of a process.
    #[must_use]
    pub fn of(sketch: &Sketch, which: Which) -> Joint {
        let part = sketch.part_read();
        let weight = |tally| match which.count(tally) {
            0 => None,
            1 => Some(1.0 / part),
            _ => Some(1.0),
        };
        let single = |weight| KeptContent {
            weight,
            processes: weight,
        };
        let kept = sketch.kept();
        Joint {
            kept: kept
                .filter_map(|(hash, tally)| Some((hash, single(weight(tally)?))))
                .collect(),
            bound: sketch.bound(),
            pages: sketch.pages(),
            part,
        }
    }

    /// The contents of both together.
    #[must_use]
    pub fn with(&self, other: &Joint) -> Joint {
        let bound = lower(self.bound, other.bound);
        let mut kept: Vec<(Hash, KeptContent)> =
            Vec::with_capacity(self.kept.len() + other.kept.len());
        kept.extend(below(&self.kept, bound));
        kept.extend(below(&other.kept, bound));
        kept.sort_by_key(|&(hash, _)| hash);
        kept.dedup_by(|(hash, this), (before, first)| {
            let same = hash == before;
            if same {
                // Met by chance in either: missed only if missed in both.
                let missed = (1.0 - 1.0 / this.weight) * (1.0 - 1.0 / first.weight);
                first.weight = 1.0 / (1.0 - missed);
                first.processes += this.processes;
            }
            same
        });
        Joint {
            kept,
            bound,
            pages: self.pages + other.pages,
            part: self.part.min(other.part),
        }
    }

    /// Their pages, copies included, without those of zeros.
    #[must_use]
    pub fn pages(&self) -> f64 {
        self.pages
    }

    /// Each content that was kept, by hash.
    pub(crate) fn kept(&self) -> &[(Hash, KeptContent)] {
        &self.kept
    }

    /// Contents from here on were not kept.
    pub(crate) fn bound(&self) -> Option<Hash> {
        self.bound
    }

    /// The part that was read, the least of several.
    pub(crate) fn part(&self) -> f64 {
        self.part
    }
}

/// The inter-sharing of several processes.
#[must_use]
pub fn among(joints: &[&Joint]) -> Estimate {
    let bound = joints
        .iter()
        .fold(None, |bound, joint| lower(bound, joint.bound));
    let probability = probability(bound);
    let kept = joints.iter().flat_map(|joint| below(&joint.kept, bound));
    let mut kept: Vec<(Hash, KeptContent)> = kept.collect();
    kept.sort_by_key(|&(hash, _)| hash);
    let mut parts: Vec<f64> = joints.iter().map(|joint| joint.part).collect();
    parts.sort_by(f64::total_cmp);
    let [one, other, ..] = parts[..] else {
        return Estimate::default();
    };
    let mut sampled = SampledSum::new(probability * one * other);
    for content in kept.chunk_by(|one, other| one.0 == other.0) {
        match content {
            [] | [_] => {}
            [one, other] => sampled.add(1.0, probability / (one.1.weight * other.1.weight)),
            several => {
                let processes: f64 = several.iter().map(|(_, kept)| kept.weight).sum();
                sampled.add(processes - 1.0, probability);
            }
        }
    }
    let pages = joints.iter().map(|joint| joint.pages);
    let most = pages.clone().sum::<f64>() - pages.fold(0.0, f64::max);
    sampled.estimate().at_most(most)
}

fn below(
    kept: &[(Hash, KeptContent)],
    bound: Option<Hash>,
) -> impl Iterator<Item = (Hash, KeptContent)> + '_ {
    let end = match bound {
        Some(bound) => kept.partition_point(|&(hash, _)| hash < bound),
        None => kept.len(),
    };
    kept[..end].iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Content, Salt};

    fn sketch(contents: impl IntoIterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch::default();
        for number in contents {
            sketch.add(Content::Hashed(Salt::new(9).mix([number, 0])), false);
        }
        sketch
    }

    fn joint(contents: impl IntoIterator<Item = u64>) -> Joint {
        Joint::of(&sketch(contents), Which::All)
    }

    #[test]
    fn small_processes_are_counted() {
        let (a, b, c) = (joint(0..100), joint(50..150), joint(90..110));
        assert_eq!(among(&[&a, &b]), Estimate::exact(50.0));
        assert_eq!(among(&[&a.with(&b), &c]), Estimate::exact(20.0));
        // 50 to 89 and 100 to 109 twice, 90 to 99 three times.
        assert_eq!(among(&[&a, &b, &c]), Estimate::exact(70.0));
        let copies = sketch((0..100).chain(0..30).chain(0..10));
        assert_eq!(within(&copies, Which::All), Estimate::exact(40.0));
        assert_eq!(within(&copies, Which::SharedAlready), Estimate::default());
    }

    #[test]
    fn a_pattern_of_half_the_memory_is_counted_though_it_is_hardly_ever_kept() {
        let filled = (0..200_000).map(|page| if page % 2 == 0 { 1 << 40 } else { page });
        let estimate = within(&sketch(filled), Which::All);
        let off = (estimate.pages - 99_999.0).abs();
        assert!(
            off <= 2.0 * estimate.error + 1.0 && off < 1000.0,
            "{estimate:?}"
        );
    }

    #[test]
    fn pages_that_are_shared_already_are_told() {
        let mut forked = sketch(0..10);
        (20..50).for_each(|number| {
            forked.add(Content::Hashed(Salt::new(9).mix([number, 0])), true);
        });
        let already = Joint::of(&forked, Which::SharedAlready);
        assert_eq!(among(&[&already, &already]), Estimate::exact(30.0));
    }

    #[test]
    fn of_what_was_read_in_part_a_pair_stands_for_many() {
        // Every second page of each, by chance: a quarter of the 4000 pairs is met.
        let read = |salt: u64| {
            let met = move |number: &u64| Salt::new(salt).mix([*number, 1]).is_multiple_of(2);
            let mut sketch = sketch((0..4000).filter(met));
            sketch.set_present(4000);
            Joint::of(&sketch, Which::All)
        };
        let estimate = among(&[&read(1), &read(2)]);
        let off = (estimate.pages - 4000.0).abs();
        assert!(
            off < 3.0 * estimate.error && estimate.error < 150.0,
            "{estimate:?}"
        );
    }
}

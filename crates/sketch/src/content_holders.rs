//! The sets that have a content, and so the overlap of one more set with each of them.
//!
//! # Problem
//! Intersecting each set with each other takes time for all their contents, though most pairs share
//! little.
//!
//! # Approach
//! For each kept content, the sets that have it are recorded. A new set is looked up content by
//! content, and its overlaps with all others are added up on the way: the time is proportional to
//! the overlaps.
//!
//! # Units
//! Pages. Sets are numbers.

use std::collections::HashMap;

use crate::content::Hash;
use crate::estimate::{Estimate, SampledSum};
use crate::sharing::{Joint, KeptContent};
use crate::sketch::{lower, probability};

/// A set that has a content.
#[derive(Debug, Clone, Copy)]
struct Holder {
    set: usize,
    kept: KeptContent,
}

/// The properties of a set besides its contents.
#[derive(Debug, Clone, Copy)]
struct SetFacts {
    bound: Option<Hash>,
    part: f64,
    pages: f64,
}

impl From<&Joint> for SetFacts {
    fn from(joint: &Joint) -> SetFacts {
        SetFacts {
            bound: joint.bound(),
            part: joint.part(),
            pages: joint.pages(),
        }
    }
}

/// The overlap of a set with another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    /// The other set.
    pub(crate) set: usize,
    /// Contents that both have: the gain of joining them.
    pub(crate) gain: Estimate,
    /// The share of the smaller one's pages whose contents the other has. A content counts for each
    /// process that has it.
    pub(crate) share: f64,
}

/// The sums for two sets.
#[derive(Debug, Clone, Copy)]
struct Sum {
    set: usize,
    probability: f64,
    gain: SampledSum,
    /// Pages of the new set and of the recorded one that have a partner on the other side.
    partners: [f64; 2],
}

/// The sets by content.
#[derive(Debug, Default)]
pub(crate) struct ContentHolders {
    /// Used for lookups only: its order decides nothing.
    of: HashMap<Hash, Vec<Holder>>,
    sets: HashMap<usize, SetFacts>,
}

impl ContentHolders {
    /// Adds a set.
    pub(crate) fn enter(&mut self, set: usize, joint: &Joint) {
        self.sets.insert(set, joint.into());
        for &(hash, kept) in joint.kept() {
            self.of.entry(hash).or_default().push(Holder { set, kept });
        }
    }

    /// Removes a set.
    pub(crate) fn leave(&mut self, set: usize, joint: &Joint) {
        self.sets.remove(&set);
        for (hash, _) in joint.kept() {
            let Some(holders) = self.of.get_mut(hash) else {
                continue;
            };
            if let Some(place) = holders.iter().position(|holder| holder.set == set) {
                holders.swap_remove(place);
            }
        }
    }

    /// The overlaps of a set that was not added with those that were, without empty ones.
    pub(crate) fn common(&self, joint: &Joint) -> Vec<Overlap> {
        let own = SetFacts::from(joint);
        let mut sums: Vec<Sum> = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        for (hash, kept) in joint.kept() {
            for holder in self.of.get(hash).into_iter().flatten() {
                let place = *places.entry(holder.set).or_insert_with(|| {
                    let there = &self.sets[&holder.set];
                    let probability = probability(lower(own.bound, there.bound));
                    sums.push(Sum {
                        set: holder.set,
                        probability,
                        gain: SampledSum::new(probability * own.part * there.part),
                        partners: [0.0; 2],
                    });
                    sums.len() - 1
                });
                let sum = &mut sums[place];
                let (here, there) = (kept, &holder.kept);
                let seen = sum.probability / (here.weight * there.weight);
                sum.gain.add(1.0, seen);
                sum.partners[0] += here.processes * there.weight / sum.probability;
                sum.partners[1] += there.processes * here.weight / sum.probability;
            }
        }
        let finish = |sum: Sum| {
            let there = self.sets[&sum.set].pages;
            let (pages, partners) = if own.pages <= there {
                (own.pages, sum.partners[0])
            } else {
                (there, sum.partners[1])
            };
            Overlap {
                set: sum.set,
                gain: sum.gain.estimate().at_most(pages),
                share: partners / pages.max(1.0),
            }
        };
        sums.into_iter().map(finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Content, Salt};
    use crate::sharing::Which;
    use crate::sketch::Sketch;

    fn joint(contents: std::ops::Range<u64>) -> Joint {
        let mut sketch = Sketch::default();
        for number in contents {
            sketch.add(Content::Hashed(Salt::new(2).mix([number, 0])), false);
        }
        Joint::of(&sketch, Which::All)
    }

    #[test]
    fn what_is_in_common_is_added_up_until_a_set_leaves() {
        let (a, b, c) = (joint(0..100), joint(50..250), joint(240..280));
        let mut holders = ContentHolders::default();
        holders.enter(0, &a);
        holders.enter(1, &b);
        let common = |holders: &ContentHolders, joint: &Joint| -> Vec<(usize, f64, f64)> {
            let mut common = holders.common(joint);
            common.sort_by_key(|overlap| overlap.set);
            let row = |overlap: &Overlap| (overlap.set, overlap.gain.pages, overlap.share);
            common.iter().map(row).collect()
        };
        assert_eq!(common(&holders, &c), [(1, 10.0, 0.25)]);
        // A content of two clones counts twice on their side, and once for the gain of joining.
        let clones = a.with(&a);
        assert_eq!(common(&holders, &clones), [(0, 100.0, 1.0), (1, 50.0, 0.5)]);
        holders.leave(1, &b);
        assert_eq!(common(&holders, &c), []);
    }
}

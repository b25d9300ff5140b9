//! Proposals of groups of processes.
//!
//! # Problem
//! One group of all saves most: no page that two processes share is lost. But each process of a
//! group can learn the contents of the others, each is searched for partners it does not have, and
//! a worker takes memory. So a group should consist of processes that share much.
//!
//! # Approach
//! Agglomeration: each process begins alone, and the two sets whose joining gains most are joined,
//! over and over, as long as a share of the smaller one's memory has partners in the other, and the
//! gain is more than chance. The gain itself is no measure for that: for two sets of clones it is
//! one copy, at any size of the sets. A set that saves less than a group costs is no group, and its
//! processes are left alone. The same sketches give the same groups: among equal gains the first
//! processes win.
//!
//! Only pairs that have a content in common are examined; a content that n processes have is
//! examined n² times.
//!
//! # Units
//! Pages. Processes are numbers in the slice of sketches.
//!
//! # Source
//! Euro-Par'11 §5.2: groups by "sharing opportunities", from fingerprints of memory; and §5.1: a
//! group of one is of use where copies lie within one machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::content_holders::{ContentHolders, Overlap};
use crate::estimate::Estimate;
use crate::sharing::{Joint, Which, among, within};
use crate::sketch::Sketch;

/// The minimum worth of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    /// Two sets are joined if this share of the pages of the smaller one has partners in the other.
    pub least_share: f64,
    /// A group saves at least this many pages.
    pub least_pages: f64,
}

/// A group that is proposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its processes, ascending.
    pub members: Vec<usize>,
    /// Pages of all of them, copies included, without those of zeros.
    pub pages: f64,
    /// Total savings.
    pub saved: Estimate,
    /// Savings within single processes.
    pub within: Estimate,
    /// Savings that exist already, by fork or by earlier merges.
    pub already: Estimate,
}

/// The proposal for the processes of one boundary.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Proposal {
    /// The groups, the one that saves most first.
    pub groups: Vec<Group>,
    /// The processes in no group, ascending.
    pub alone: Vec<usize>,
    /// Savings of one group of all beyond these groups.
    pub lost: Estimate,
}

/// A set of processes on its way to a group.
struct Set {
    members: Vec<usize>,
    joint: Joint,
}

/// Two sets that could be joined, ordered by gain, then the first ones.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// The bits of a nonnegative float, which sort like the float.
    gain: u64,
    sets: Reverse<(usize, usize)>,
}

/// Proposes groups of the processes with these sketches.
#[must_use]
pub fn propose(sketches: &[Sketch], worth: Worth) -> Proposal {
    let mut sets = join(sketches, worth);
    let own: Vec<Estimate> = sketches.iter().map(|one| within(one, Which::All)).collect();
    let mut proposal = Proposal::default();
    // The contents of each group, and of each process in none: sharing between these is lost.
    let mut apart = Vec::new();
    for Set { mut members, joint } in sets.drain(..) {
        members.sort_unstable();
        let group = described(sketches, &own, members, joint.pages());
        if group.saved.pages >= worth.least_pages && group.saved.is_sure() {
            proposal.groups.push(group);
            apart.push(joint);
        } else {
            proposal.alone.extend(group.members);
        }
    }
    proposal.alone.sort_unstable();
    for &alone in &proposal.alone {
        proposal.lost = proposal.lost + own[alone];
        apart.push(Joint::of(&sketches[alone], Which::All));
    }
    proposal.lost = proposal.lost + among(&apart.iter().collect::<Vec<_>>());
    let pages = |group: &Group| group.saved.pages;
    proposal.groups.sort_by(|a, b| {
        let by_pages = pages(b).total_cmp(&pages(a));
        by_pages.then_with(|| a.members.cmp(&b.members))
    });
    proposal
}

fn described(sketches: &[Sketch], own: &[Estimate], members: Vec<usize>, pages: f64) -> Group {
    let between = |which| {
        let joints = members.iter().map(|&one| Joint::of(&sketches[one], which));
        let joints: Vec<Joint> = joints.collect();
        among(&joints.iter().collect::<Vec<_>>())
    };
    let inside: Estimate = members.iter().map(|&one| own[one]).sum();
    let saved = inside + between(Which::All);
    let already = members
        .iter()
        .map(|&one| within(&sketches[one], Which::SharedAlready));
    let already = already.sum::<Estimate>() + between(Which::SharedAlready);
    Group {
        pages,
        saved,
        within: inside,
        already: already.at_most(saved.pages),
        members,
    }
}

/// Joins sets until no two are worth it.
fn join(sketches: &[Sketch], worth: Worth) -> Vec<Set> {
    let mut sets: Vec<Option<Set>> = Vec::new();
    let mut holders = ContentHolders::default();
    let mut pairs = BinaryHeap::new();
    let add = |set: Set, sets: &mut Vec<Option<Set>>, holders: &mut ContentHolders| {
        let number = sets.len();
        let worth_it = holders.common(&set.joint).into_iter();
        let worth_it = worth_it.filter(|common| is_worth(common, worth));
        let found = worth_it.map(|common| Pair {
            gain: common.gain.pages.to_bits(),
            sets: Reverse((common.set, number)),
        });
        holders.enter(number, &set.joint);
        sets.push(Some(set));
        found.collect::<Vec<Pair>>()
    };
    for (number, sketch) in sketches.iter().enumerate() {
        let single = Set {
            members: vec![number],
            joint: Joint::of(sketch, Which::All),
        };
        pairs.extend(add(single, &mut sets, &mut holders));
    }
    while let Some(Pair { sets: joined, .. }) = pairs.pop() {
        let Reverse((one, other)) = joined;
        // One of them may be part of a larger set by now.
        if sets[one].is_none() || sets[other].is_none() {
            continue;
        }
        let (Some(first), Some(second)) = (sets[one].take(), sets[other].take()) else {
            continue;
        };
        holders.leave(one, &first.joint);
        holders.leave(other, &second.joint);
        let mut members = first.members;
        members.extend(second.members);
        let joint = first.joint.with(&second.joint);
        pairs.extend(add(Set { members, joint }, &mut sets, &mut holders));
    }
    sets.into_iter().flatten().collect()
}

/// Whether two sets are to be joined.
fn is_worth(overlap: &Overlap, worth: Worth) -> bool {
    overlap.gain.is_sure() && overlap.share >= worth.least_share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Content, Salt};

    const WORTH: Worth = Worth {
        least_share: 0.05,
        least_pages: 32.0,
    };

    fn sketch(contents: impl IntoIterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch::default();
        for number in contents {
            sketch.add(Content::Hashed(Salt::new(4).mix([number, 0])), false);
        }
        sketch
    }

    fn members(proposal: &Proposal) -> Vec<&[usize]> {
        proposal
            .groups
            .iter()
            .map(|group| group.members.as_slice())
            .collect()
    }

    #[test]
    fn those_that_share_are_joined_and_others_left() {
        let sketches = [
            sketch((0..100).chain(1000..1064)),
            sketch(5000..5500),
            sketch((0..100).chain(2000..2064)),
            sketch((7000..7200).chain(9000..9010)),
            sketch((0..100).chain(3000..3064)),
            sketch((7000..7200).chain(5000..5010)),
        ];
        let proposal = propose(&sketches, WORTH);
        assert_eq!(members(&proposal), [[0, 2, 4].as_slice(), &[3, 5]]);
        assert_eq!(proposal.groups[0].saved, Estimate::exact(200.0));
        assert_eq!(proposal.groups[0].pages, 492.0);
        assert_eq!(proposal.groups[1].saved, Estimate::exact(200.0));
        assert_eq!(proposal.alone, [1]);
        assert_eq!(proposal.lost, Estimate::exact(10.0));
    }

    #[test]
    fn copies_within_one_process_make_a_group_of_one() {
        let sketches = [
            sketch((0..100).chain(0..40)),
            sketch((500..600).chain(500..520)),
        ];
        let proposal = propose(&sketches, WORTH);
        assert_eq!(members(&proposal), [[0].as_slice()]);
        assert_eq!(proposal.groups[0].within, Estimate::exact(40.0));
        assert_eq!(
            (proposal.alone, proposal.lost),
            (vec![1], Estimate::exact(20.0))
        );
    }

    #[test]
    fn a_little_in_common_joins_nobody() {
        let sketches = [sketch(0..1000), sketch(960..2000), sketch([])];
        let proposal = propose(&sketches, WORTH);
        assert_eq!((members(&proposal), proposal.alone.len()), (vec![], 3));
        assert_eq!(proposal.lost, Estimate::exact(40.0));
        let lenient = Worth {
            least_share: 0.01,
            ..WORTH
        };
        assert_eq!(members(&propose(&sketches, lenient)), [[0, 1].as_slice()]);
    }

    #[test]
    fn many_clones_are_one_group_though_two_halves_of_it_gain_one_copy() {
        let clone = |number: u64| sketch((0..40).chain(number * 1000..number * 1000 + 60));
        let clones: Vec<Sketch> = (1..41).map(clone).collect();
        let proposal = propose(&clones, WORTH);
        assert_eq!((proposal.groups.len(), proposal.alone.len()), (1, 0));
        assert_eq!(proposal.groups[0].saved, Estimate::exact(39.0 * 40.0));
    }

    #[test]
    fn groups_and_what_is_lost_are_what_one_group_would_save() {
        let ranges = [0..300u64, 100..250, 200..500, 450..470, 600..700, 650..660];
        let sketches: Vec<Sketch> = ranges
            .iter()
            .map(|r| sketch((r.clone()).chain(r.start..r.start + 7)))
            .collect();
        let pages: u64 = ranges.iter().map(|range| range.end - range.start + 7).sum();
        let distinct = 500.0 + 100.0;
        for least_share in [0.0, 0.05, 0.4, 0.9] {
            let proposal = propose(
                &sketches,
                Worth {
                    least_share,
                    least_pages: 10.0,
                },
            );
            let saved: Estimate = proposal.groups.iter().map(|group| group.saved).sum();
            assert_eq!(
                saved + proposal.lost,
                Estimate::exact(pages as f64 - distinct),
                "{least_share}"
            );
        }
    }
}

//! The levels of the ladder, their members, and the walks of their rounds (UKSM §5.2, §5.3).
//!
//! # Problem
//! Each level samples all its regions at an even interval within its round time and CPU share,
//! whatever the cost of a sample; members come and go in the middle of a round; one level may have
//! 60,000 members and another a single one.
//!
//! # Approach
//! A level is one flat space of its members' weights. A round takes `n = t · p / s` samples, s
//! being measured as it runs, kernel time and merging included, and walks the members once; each
//! gets its part of n, and fractions are carried on from one to the next. The carry starts at
//! another point each round (multiples of the golden ratio), so that members too small for a sample
//! a round get theirs in turn.
//!
//! Levels do not wait for each other: each has its own clock and share, and the share of the
//! governor holds for all together. So the seconds in which the bottom level rests are not lost to
//! the top, an empty level takes no time, and a level whose round ends early starts its next round
//! when that is due. But the cost of a sweep is known only while it is under way: if a round of the
//! top level was given too few samples for all its pages, and ends early, the next round follows at
//! once.
//!
//! A member that leaves is struck out, and the list is closed up at the start of a round.
//!
//! # Units
//! Weights are pages; times nanoseconds. 8 bytes a member.
//!
//! # Source
//! UKSM §5.3, "Sampling time control".

use crate::accounts::budget::CpuBudget;
use crate::accounts::page_cost::PageCost;
use crate::command::Nanos;
use crate::convert;
use crate::frugal_vec;
use crate::ids::RegionId;
use crate::params::Params;
use crate::report::LevelReport;

/// Marks a member that was struck out.
const NO_REGION: RegionId = RegionId(u32::MAX);
/// Cost of a sample, in nanoseconds, assumed until it is measured.
const FIRST_COST: f64 = 2000.0;

#[derive(Debug, Clone, Copy)]
struct Member {
    region: RegionId,
    weight: u32,
}

/// The progress of a round.
#[derive(Debug, Clone, Copy)]
struct RoundProgress {
    /// The next member.
    at: usize,
    /// Samples of this round, and the weight they are spread over.
    samples: u64,
    total: u64,
    carry: u64,
}

/// The rest of a member's part of the round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    pub(super) region: RegionId,
    pub(super) pages: u32,
    pub(super) blocks: u32,
}

/// One level.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    budget: CpuBudget,
    round_time: Nanos,
    /// The part of the samples of a round that are taken.
    part: f64,
    /// Its members are swept, as it is the top level.
    is_swept: bool,
    members: Vec<Member>,
    struck: usize,
    total: u64,
    walk: Option<RoundProgress>,
    next_round: Nanos,
    /// Cost of a sample with the work on it, in nanoseconds.
    cost: PageCost,
    /// Cost of working through answers and of merging since the last samples.
    working: Nanos,
    rounds: u64,
    sampled: u64,
}

impl Level {
    /// The levels of `params`, bottom first.
    pub(crate) fn all(params: &Params) -> Vec<Level> {
        let mut levels: Vec<Level> = params
            .shares()
            .into_iter()
            .zip(params.rounds())
            .map(|(share, round_time)| Level {
                budget: CpuBudget::new(share, params.sleep),
                round_time,
                part: 1.0,
                is_swept: false,
                members: vec![],
                struck: 0,
                total: 0,
                walk: None,
                next_round: 0,
                // A batch of a thousand decides nearly alone, one of ten changes little.
                cost: PageCost::new(FIRST_COST, 20.0, 500.0),
                working: 0,
                rounds: 0,
                sampled: 0,
            })
            .collect();
        if let Some(top) = levels.last_mut() {
            top.is_swept = true;
        }
        levels
    }

    /// Its share of the processor.
    pub(crate) fn budget(&mut self) -> &mut CpuBudget {
        &mut self.budget
    }

    /// The next rounds take this part of the samples that the share pays for.
    pub(super) fn set_part(&mut self, part: f64) {
        self.part = part;
    }

    /// Its figures, as the level of this number, with the pages of its members.
    pub(crate) fn report(&self, level: u64, pages: u64) -> LevelReport {
        LevelReport {
            level,
            share: self.budget.share(),
            round_seconds: convert::seconds(self.round_time),
            regions: self.len() as u64,
            pages,
            rounds: self.rounds,
            sampled: self.sampled,
            used_seconds: convert::seconds(self.budget.used()),
        }
    }

    /// Number of pages sampled for it.
    pub(crate) fn sampled(&self) -> u64 {
        self.sampled
    }

    /// The time from which its share allows its next work; none without work.
    pub(crate) fn ready_at(&self, now: Nanos) -> Option<Nanos> {
        let due = self.due_at(now)?;
        Some(due.max(self.budget.ready_at(now)))
    }

    /// The time from which its share allows any work.
    pub(crate) fn share_ready_at(&self, now: Nanos) -> Nanos {
        self.budget.ready_at(now)
    }

    /// Its round time.
    pub(crate) fn round_time(&self) -> Nanos {
        self.round_time
    }

    /// Memory used by its list of members, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.members.capacity() * size_of::<Member>()
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len() - self.struck
    }

    /// The weights of all members.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Its members, in the order of their arrival.
    pub(crate) fn members(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.members
            .iter()
            .map(|member| member.region)
            .filter(|&region| region != NO_REGION)
    }

    /// Takes a member in; returns its slot. An idle level begins a round with it.
    pub(crate) fn insert(&mut self, region: RegionId, weight: u32) -> u32 {
        frugal_vec::push(&mut self.members, Member { region, weight });
        self.total += u64::from(weight);
        if self.walk.is_none() {
            self.next_round = 0;
        }
        convert::narrow(self.members.len() as u64 - 1)
    }

    /// Strikes the member in this slot out.
    pub(crate) fn remove(&mut self, level_slot: u32) {
        let member = &mut self.members[convert::index(level_slot)];
        assert!(member.region != NO_REGION, "slot {level_slot} is empty");
        self.total -= u64::from(member.weight);
        *member = Member {
            region: NO_REGION,
            weight: 0,
        };
        self.struck += 1;
    }

    /// Sets the weight of the member in this slot.
    pub(crate) fn set_weight(&mut self, level_slot: u32, weight: u32) {
        let member = &mut self.members[convert::index(level_slot)];
        self.total = self.total - u64::from(member.weight) + u64::from(weight);
        member.weight = weight;
    }

    /// The beginning of its next round, if it has members.
    pub(crate) fn due_at(&self, now: Nanos) -> Option<Nanos> {
        if self.len() == 0 && self.walk.is_none() {
            return None;
        }
        Some(if self.walk.is_some() {
            now
        } else {
            self.next_round.max(now)
        })
    }

    /// Begins a round if one is due; calls `moved` with the new slot of every member that moved.
    pub(crate) fn begin(&mut self, now: Nanos, mut moved: impl FnMut(RegionId, u32)) {
        if self.walk.is_some() || self.len() == 0 || now < self.next_round {
            return;
        }
        if self.struck > 0 {
            self.members.retain(|member| member.region != NO_REGION);
            self.struck = 0;
            for (level_slot, member) in self.members.iter().enumerate() {
                moved(member.region, convert::narrow(level_slot as u64));
            }
        }
        // A round shorter than a sleep takes place once a sleep, and must make up for it.
        let samples = self.affordable(self.round_time.max(self.budget.period()));
        let samples = convert::count(convert::float(samples) * self.part).max(1);
        let total = self.total.max(1);
        // 2^64 divided by the golden ratio: its multiples fall evenly.
        let phase = self.rounds.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.walk = Some(RoundProgress {
            at: 0,
            samples: samples.min(total),
            total,
            carry: convert::high_product(phase, total),
        });
        self.next_round = now + self.round_time;
    }

    /// The next member of the round and the number of its samples; none when the round is over.
    pub(crate) fn next(&mut self) -> Option<(RegionId, u32)> {
        let walk = self.walk.as_mut()?;
        while let Some(member) = self.members.get(walk.at) {
            walk.at += 1;
            walk.carry += u64::from(member.weight) * walk.samples;
            if walk.carry < walk.total {
                continue;
            }
            let samples = walk.carry / walk.total;
            walk.carry %= walk.total;
            if member.region != NO_REGION {
                return Some((member.region, convert::narrow(samples)));
            }
        }
        let is_partial = walk.samples < walk.total;
        self.walk = None;
        self.rounds += 1;
        if self.is_swept && is_partial {
            self.hasten();
        }
        None
    }

    /// Whether a round is under way.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// The next round begins as soon as the level's share allows.
    pub(crate) fn hasten(&mut self) {
        self.next_round = 0;
    }

    /// Gives up the round under way and begins another at once.
    pub(crate) fn restart(&mut self) {
        if self.walk.take().is_some() {
            self.hasten();
        }
    }

    /// Number of samples that the level can pay for in one stretch of activity.
    pub(crate) fn stretch(&self) -> u64 {
        self.affordable(self.budget.period())
    }

    /// Number of samples that the level's share pays for in this time.
    fn affordable(&self, time: Nanos) -> u64 {
        convert::count(convert::float(time) * self.budget.share() / self.cost.each())
    }

    /// Working through samples, and merging the finds, has cost this much.
    pub(crate) fn worked(&mut self, cost: Nanos) {
        self.working += cost;
    }

    /// `samples` were taken for `cost`.
    pub(crate) fn measured(&mut self, samples: u64, cost: Nanos) {
        self.sampled += samples;
        if samples == 0 {
            return;
        }
        let cost = cost + std::mem::take(&mut self.working);
        self.cost.measured(samples, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Governor, SECOND};
    use proptest::prelude::*;

    fn level(weights: &[u32]) -> Level {
        let mut level = Level::all(&Params::governor(Governor::Full)).remove(0);
        for (region, &weight) in weights.iter().enumerate() {
            level.insert(RegionId(convert::narrow(region as u64)), weight);
        }
        level
    }

    fn round(level: &mut Level, now: Nanos) -> Vec<(RegionId, u32)> {
        level.begin(now, |_, _| {});
        std::iter::from_fn(|| level.next()).collect()
    }

    proptest! {
        #[test]
        fn a_round_takes_its_samples_and_no_member_starves(
            weights in prop::collection::vec(1u32..5000, 1..200),
        ) {
            let mut level = level(&weights);
            let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
            let n = 500u64.min(total);
            let mut got = vec![0u64; weights.len()];
            let rounds = 400u64;
            for r in 0..rounds {
                let taken: u64 = round(&mut level, r * SECOND)
                    .into_iter()
                    .map(|(region, samples)| {
                        got[region.index()] += u64::from(samples);
                        u64::from(samples)
                    })
                    .sum();
                prop_assert!(taken.abs_diff(n) <= 1, "{taken} of {n}");
            }
            for (weight, got) in weights.iter().zip(got) {
                let due = rounds as f64 * n as f64 * f64::from(*weight) / total as f64;
                prop_assert!((got as f64 - due).abs() <= due * 0.1 + 4.0, "{got} of {due}");
            }
        }
    }

    #[test]
    fn rounds_keep_their_distance_and_newcomers_do_not_wait() {
        let mut level = level(&[10]);
        assert_eq!(round(&mut level, 0).len(), 1);
        assert_eq!(
            level.due_at(SECOND / 4),
            Some(SECOND / 2),
            "its pages were all seen"
        );
        level.insert(RegionId(1), 10);
        assert_eq!(level.due_at(SECOND / 4), Some(SECOND / 4));
    }

    #[test]
    fn sweeps_that_cost_less_than_was_thought_go_on_at_once_and_samples_do_not() {
        let mut levels = Level::all(&Params::governor(Governor::Full));
        for (number, is_due_at_once) in [(0, false), (3, true)] {
            let level = &mut levels[number];
            level.insert(RegionId(0), 1 << 20);
            assert_eq!(round(level, 0).len(), 1);
            let due = if is_due_at_once { 1 } else { SECOND / 2 };
            assert_eq!(level.due_at(1), Some(due), "level {number}");
        }
        // A level swept in full waits for its round.
        let top = &mut Level::all(&Params::governor(Governor::Full))[3];
        top.insert(RegionId(0), 1000);
        assert_eq!(round(top, 0), [(RegionId(0), 1000)]);
        assert_eq!(top.due_at(1), Some(SECOND / 2));
    }

    #[test]
    fn members_keep_their_slots_or_learn_the_new_one() {
        let mut level = level(&[1, 1, 1, 1]);
        level.remove(1);
        level.remove(2);
        let mut slots = vec![];
        level.begin(0, |region, level_slot| slots.push((region.0, level_slot)));
        assert_eq!(slots, vec![(0, 0), (3, 1)]);
        assert_eq!((level.len(), level.total()), (2, 2));
    }

    #[test]
    fn samples_follow_their_cost() {
        let mut level = level(&[1 << 20]);
        level.measured(1_000_000, 1_000_000 * 1000);
        let n: u32 = round(&mut level, 0).iter().map(|&(_, n)| n).sum();
        assert!(
            (990..=1010).contains(&n),
            "0.5 s at 0.2 % and 1 µs are 1000 samples, not {n}"
        );
    }
}

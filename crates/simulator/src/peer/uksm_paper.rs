//! UKSM as it was published.
//!
//! # Problem
//! The changes to UKSM in this project should be seen next to the original.
//!
//! # Approach
//! A region is a whole mapping. Regions stand on four levels; a new one begins at the bottom. The
//! samples of a level's round fill its share of time, at an even distance over all its regions; the
//! pages of a region are taken in an order of its own. A sample is hashed over as many words as the
//! strength, and looked up among frames, then among the pages of this global round. After each
//! global round a region goes up if more than a tenth of its samples had partners, else down: hits
//! by samples, independent of the index. The strength climbs towards the larger benefit, in steps
//! that double. Not modelled: the filters by COW-broken pages and by lifetime, and huge pages (they
//! are split).
//!
//! # Units
//! Strength counts words of 4 bytes, 1 to 1024. Sixteen of them are a line.
//!
//! # Source
//! UKSM §5.1 to §5.3, §6.1 and §7 (FAST'18).

use std::collections::BTreeMap;

use uksm_policy::command::{Lines, Nanos, PageState, SpaceId};
use uksm_policy::hash::LineHash;
use uksm_policy::params::{Governor, Params};

use crate::host::in_kernel::{Stretch, address};
use crate::memory::PageAddress;
use crate::world::{Deduplicator, Turn};
use crate::{Content, Host, PaperCosts};

/// Levels of the ladder.
const LEVELS: usize = 4;
/// Share of a core that the bottom level may use (UKSM §7).
const BOTTOM: f64 = 0.002;
/// Share of samples with partners above which a region goes up (V_dup).
const V_DUP: f64 = 0.1;
/// Sleep of a sleep-scan cycle (T_s).
const SLEEP: Nanos = 20_000_000;
/// Words of a page, and of a line.
const WORDS: u64 = 1024;
const LINE_WORDS: u64 = 16;
/// The largest step of the strength.
const MAX_DELTA: u64 = 128;
/// Limit of the samples in one turn.
const TURN_SAMPLES: u64 = 200;
/// Mappings of a frame.
const MAX_SHARERS: u32 = 256;
/// Bytes of a page's node in a tree.
const NODE_BYTES: u64 = 64;

/// A region.
#[derive(Debug, Clone, Copy)]
struct Region {
    stretch: Stretch,
    level: usize,
    /// The next page in the region's order, and the distance to the one after it.
    next: u64,
    step: u64,
    sampled: u64,
    duplicates: u64,
    /// The global round in which its mapping was seen last.
    seen: u64,
}

/// The search for the best strength.
#[derive(Debug, Clone, Copy)]
struct Climb {
    words: u64,
    is_up: bool,
    delta: u64,
    benefit: f64,
}

/// The UKSM of the paper on a simulated host.
#[derive(Debug)]
pub struct PaperUksm {
    costs: PaperCosts,
    shares: [f64; LEVELS],
    level_round: Nanos,
    hash: LineHash,
    regions: BTreeMap<PageAddress, Region>,
    /// The regions of the current level, with the pages up to their end.
    line: Vec<(u64, PageAddress)>,
    level: usize,
    /// Samples of this round of the level, and the number taken so far.
    points: u64,
    taken: u64,
    /// Time worked since the last sleep.
    worked: Nanos,
    /// The mean cost of a sample.
    sample_cost: f64,
    frames: Vec<(u32, Content)>,
    stable: BTreeMap<u64, Vec<u32>>,
    unstable: BTreeMap<u64, PageAddress>,
    climb: Climb,
    samples: u64,
    false_matches: u64,
    rounds: u64,
}

impl PaperUksm {
    /// The scanner before its first round, under a governor.
    #[must_use]
    pub fn new(governor: Governor, seed: u64, costs: PaperCosts) -> PaperUksm {
        let params = Params::governor(governor);
        let mut shares = [BOTTOM; LEVELS];
        for (above, share) in shares.iter_mut().rev().enumerate() {
            let halves = i32::try_from(above).expect("few levels");
            *share = (params.cpu / 2f64.powi(halves)).max(BOTTOM);
        }
        shares[0] = BOTTOM;
        PaperUksm {
            costs,
            shares,
            level_round: params.round / LEVELS as u64,
            hash: LineHash::new(seed),
            regions: BTreeMap::new(),
            line: vec![],
            level: LEVELS,
            points: 0,
            taken: 0,
            worked: 0,
            sample_cost: 10.0 * costs.sample as f64,
            frames: vec![],
            stable: BTreeMap::new(),
            unstable: BTreeMap::new(),
            climb: Climb {
                words: WORDS / 2,
                is_up: false,
                delta: 1,
                benefit: 0.0,
            },
            samples: 0,
            false_matches: 0,
            rounds: 0,
        }
    }

    /// Global rounds completed.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Words that are hashed at present.
    #[must_use]
    pub fn strength(&self) -> u64 {
        self.climb.words
    }

    /// Memory of its trees.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let nodes = self.frames.len() + self.unstable.len() + self.regions.len();
        nodes as u64 * NODE_BYTES
    }

    fn hash_of(&self, content: Content) -> u64 {
        let lines = self.climb.words.div_ceil(LINE_WORDS);
        let to = u16::try_from(lines).expect("lines of a page");
        content.hash(Lines { from: 0, to }, &self.hash)
    }

    /// Adds new mappings, and removes those that went.
    fn find_regions(&mut self, host: &Host) {
        let mut at = (SpaceId(0), 0);
        while let Some(stretch) = host.mapping_behind(at) {
            let place = (stretch.space, stretch.mapping);
            let step = (stretch.pages / 2 + stretch.pages / 8) | 1;
            let known = self.regions.entry(place).or_insert(Region {
                stretch,
                level: 0,
                next: 0,
                step,
                sampled: 0,
                duplicates: 0,
                seen: 0,
            });
            if known.stretch.pages != stretch.pages {
                known.stretch = stretch;
                known.step = coprime(step, stretch.pages);
            }
            known.step = coprime(known.step, stretch.pages);
            known.seen = self.rounds + 1;
            at = (stretch.space, address(stretch, stretch.pages));
        }
        let now = self.rounds + 1;
        self.regions.retain(|_, region| region.seen == now);
    }

    /// Begins the next level's round, or after the last level the next global round.
    fn next_level(&mut self, host: &Host) -> Nanos {
        let mut cost = 0;
        self.level += 1;
        if self.level >= LEVELS {
            cost += self.end_round(host);
            self.level = 0;
        }
        self.line.clear();
        let mut pages = 0;
        for (&place, region) in &self.regions {
            if region.level == self.level {
                pages += region.stretch.pages;
                self.line.push((pages, place));
            }
        }
        let time = self.level_round as f64 * self.shares[self.level];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of samples"
        )]
        let affordable = (time / self.sample_cost) as u64;
        self.points = affordable.max(1).min(pages);
        self.taken = 0;
        cost + self.costs.sample
    }

    /// Moves regions and the strength, and empties the tree of pages.
    fn end_round(&mut self, host: &Host) -> Nanos {
        for region in self.regions.values_mut().filter(|one| one.sampled > 0) {
            let ratio = region.duplicates as f64 / region.sampled as f64;
            region.level = if ratio > V_DUP {
                (region.level + 1).min(LEVELS - 1)
            } else {
                region.level.saturating_sub(1)
            };
            (region.sampled, region.duplicates) = (0, 0);
        }
        self.unstable.clear();
        self.find_regions(host);
        self.rounds += 1;
        let before = self.climb.words;
        self.climb(host);
        let changed = self.climb.words.abs_diff(before);
        changed * self.costs.word * self.frames.len() as u64
    }

    fn climb(&mut self, host: &Host) {
        if self.samples == 0 {
            return;
        }
        let profit = (WORDS - self.climb.words) * self.costs.word;
        let penalty = self.false_matches * self.costs.compare / self.samples;
        let benefit = profit as f64 - penalty as f64;
        (self.samples, self.false_matches) = (0, 0);
        if benefit >= self.climb.benefit {
            self.climb.delta = (self.climb.delta * 2).min(MAX_DELTA);
        } else {
            self.climb.is_up = !self.climb.is_up;
            self.climb.delta = 1;
        }
        self.climb.benefit = benefit;
        let words = if self.climb.is_up {
            self.climb.words + self.climb.delta
        } else {
            self.climb.words.saturating_sub(self.climb.delta)
        };
        self.climb.words = words.clamp(1, WORDS);
        self.frames
            .retain(|&(frame, _)| host.frame(frame).is_some());
        self.stable.clear();
        for (frame, content) in self.frames.clone() {
            let hash = self.hash_of(content);
            self.stable.entry(hash).or_default().push(frame);
        }
    }

    /// Takes the next sample of the level.
    fn sample(&mut self, host: &mut Host) -> Nanos {
        let (total, _) = *self.line.last().expect("a level with pages");
        let point = self.taken * total / self.points;
        self.taken += 1;
        let at = self.line.partition_point(|&(end, _)| end <= point);
        let place = self.line[at].1;
        let region = self.regions.get_mut(&place).expect("of this level");
        let page = region.next;
        region.next = (region.next + region.step) % region.stretch.pages;
        let here = (place.0, address(region.stretch, page));
        let mut cost = self.costs.sample;
        let slot = host.look(here);
        let Some(slot) = slot.filter(|slot| slot.state == PageState::Anon && !slot.pinned) else {
            return cost;
        };
        region.sampled += 1;
        self.samples += 1;
        cost += self.costs.word * self.climb.words;
        let hash = self.hash_of(slot.content);
        cost += self.descent(self.frames.len()) + self.descent(self.unstable.len());
        cost += self.merge(host, here, hash, slot.content, place);
        cost
    }

    /// Merges a page with an equal frame or an equal page of this round, if there is one.
    fn merge(
        &mut self,
        host: &mut Host,
        here: PageAddress,
        hash: u64,
        content: Content,
        region: PageAddress,
    ) -> Nanos {
        let mut cost = 0;
        for &frame in self.stable.get(&hash).into_iter().flatten() {
            let Some(held) = host.frame(frame) else {
                continue;
            };
            if held.content != content {
                self.false_matches += 1;
                cost += self.costs.compare;
            } else if held.sharers < MAX_SHARERS {
                host.merge_with(here, frame);
                self.hit(region);
                return cost + self.costs.merge;
            }
        }
        let Some(twin) = self
            .unstable
            .insert(hash, here)
            .filter(|twin| *twin != here)
        else {
            return cost;
        };
        let other = host.look(twin);
        let Some(other) = other.filter(|other| other.state == PageState::Anon) else {
            return cost;
        };
        if other.content != content {
            self.false_matches += 1;
            return cost + self.costs.compare;
        }
        self.unstable.remove(&hash);
        let frame = host.merge_pair([twin, here]);
        self.frames.push((frame, content));
        self.stable.entry(hash).or_default().push(frame);
        self.hit(region);
        let its = self
            .regions
            .range(..=twin)
            .next_back()
            .map(|(&place, _)| place);
        if let Some(its) = its {
            self.hit(its);
        }
        cost + 2 * self.costs.merge
    }

    fn hit(&mut self, region: PageAddress) {
        if let Some(region) = self.regions.get_mut(&region) {
            region.duplicates += 1;
        }
    }

    fn descent(&self, nodes: usize) -> Nanos {
        let levels = (nodes + 1).next_power_of_two().ilog2();
        self.costs.tree_step * u64::from(levels)
    }
}

/// The next number that is coprime to `pages`: steps of it reach every page.
fn coprime(mut step: u64, pages: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    while divisor(step, pages) > 1 {
        step += 1;
    }
    step
}

impl Deduplicator for PaperUksm {
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn {
        let mut cost = 0;
        if self.taken >= self.points {
            cost += self.next_level(host);
        } else {
            let mut taken = 0;
            while taken < TURN_SAMPLES && self.taken < self.points {
                cost += self.sample(host);
                taken += 1;
            }
            let mean = cost as f64 / taken as f64;
            self.sample_cost += (mean - self.sample_cost) / 8.0;
        }
        let share = self.shares[self.level];
        self.worked += cost;
        let active = SLEEP as f64 * share / (1.0 - share);
        let mut next = now + cost;
        if self.worked as f64 >= active {
            cost += self.costs.wake;
            let pause = self.worked as f64 * (1.0 - share) / share;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a pause of seconds at most"
            )]
            let pause = pause as Nanos;
            next = now + cost + pause.max(SLEEP);
            self.worked = 0;
        }
        Turn {
            cost,
            next,
            ends: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::StaticMixed;
    use crate::world::{Alone, World};
    use crate::{Costs, Workload};

    #[test]
    fn the_identical_half_of_a_process_is_merged_and_the_random_half_is_sampled_thinly() {
        let mixed: Box<dyn Workload> = Box::new(StaticMixed {
            identical_first: false,
            pages: 4096,
            seed: 1,
        });
        let costs = Costs::default();
        let world = World::new(Host::new(1, costs), vec![mixed]);
        let published = PaperUksm::new(Governor::Full, 1, costs.published);
        let mut alone = Alone::new(world, published);
        while alone.now() < 60_000_000_000 {
            alone.turn();
        }
        let host = &alone.world.host;
        assert!(host.saved() >= 3900, "{}", host.saved());
        assert_eq!(host.audit().wrong, None);
        assert!(alone.deduplicator.strength() < WORDS / 2);
    }

    #[test]
    fn every_page_of_a_region_is_reached() {
        for pages in [1, 2, 10, 512, 1000] {
            let step = coprime((pages / 2 + pages / 8) | 1, pages);
            let mut seen: Vec<u64> = (0..pages).map(|n| n * step % pages).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..pages).collect::<Vec<u64>>());
        }
    }
}

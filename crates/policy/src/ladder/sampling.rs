//! Which pages to read next.
//!
//! # Problem
//! A call must be large enough to be cheap, small enough not to hold up what is more urgent, and
//! sorted, whatever mixture of one-page samples and sweeps a level wants.
//!
//! # Approach
//! A level that is dense (the top, and whoever gets a quarter of its pages in a round) is swept in
//! 2 MiB blocks; others are sampled page by page. Calls are bounded by what they are expected to
//! cost. The bottom level also reads what nobody else does: anchors of newcomers (at most half of
//! a call), pages merged on trial, pages of regions whose kind dies young, and expanses.
//!
//! # Units
//! Pages, nanoseconds.
//!
//! # Source
//! UKSM §5.3.

use std::ops::Bound;

use super::Engine;
use crate::accounts::payer::Payer;
use crate::command::{Command, Lines, Nanos, Run, SpaceId};
use crate::convert;
use crate::params::MILLISECOND;
use crate::region::{BLOCK_PAGES, State};

/// What one call may cost.
const CALL: Nanos = 5 * MILLISECOND;
/// Runs of one call, as the contract bounds them.
const MOST_RUNS: usize = 4096;
/// Pages of one call: half of what the contract allows.
const MOST_PAGES: u64 = 8192;
/// Fewer pages are not worth a call.
const LEAST_PAGES: u64 = 256;
/// Anchors of one region looked at before it is the next one's turn.
const ANCHORS_IN_TURN: u64 = 8;
/// How often the anchors of a region with holes are looked at again.
const MOST_FILLINGS: u32 = 6;
/// Regions on trial that are asked for pages in one call.
const TRIALS_IN_TURN: usize = 64;
/// Looks at expanses in one call.
const SPARSE_PROBES: usize = 64;
/// Looks at regions that may die young in one call.
const YOUNG_PROBES: usize = 64;

/// What a pick is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One page of a region.
    Page,
    /// A whole block, or the part of it that is in the region.
    Block,
    /// One page that was merged on trial.
    Trial,
    /// Whether the region is still there.
    Alive,
    /// Whether there is anything here in an expanse of the space in a slot.
    SparseMapping,
}

/// Pages of one run. `region` is a slot of a space if the purpose is an expanse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick {
    pub(super) region: u32,
    pub(super) page: u32,
    pub(super) count: u32,
    pub(super) purpose: Purpose,
}

/// What a member has left of its part of the round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    region: u32,
    pages: u32,
    blocks: u32,
}

impl Engine {
    /// The next call for a level, if it may and has something to read.
    pub(super) fn sample(&mut self, level: usize) -> Option<Command> {
        let limit = self.call_limit(level);
        let mut picks = vec![];
        if level == 0 && self.discovery.may_sample_newcomers(self.now) {
            self.pick_anchors(&mut picks, limit);
        }
        let newcomers = !picks.is_empty();
        if !newcomers {
            if !self.levels[level].budget.is_ready(self.now) {
                return None;
            }
            self.pick_round(level, &mut picks, limit);
        }
        if picks.is_empty() {
            if std::mem::take(&mut self.work.round_over) {
                let scale = self.scale();
                self.round_over(level, &scale);
            }
            return None;
        }
        picks.sort_by_key(|(run, _)| (run.space, run.start));
        let runs = picks.iter().map(|&(run, _)| run).collect();
        let payer = if newcomers {
            Payer::Newcomers
        } else {
            Payer::level(level)
        };
        self.work.begin(
            level,
            payer,
            picks.into_iter().map(|(run, pick)| (run.start, pick)),
        );
        Some(Command::Sample {
            runs,
            lines: Lines {
                from: 0,
                to: self.strength,
            },
        })
    }

    /// Pages that a call for this level may have.
    fn call_limit(&self, level: usize) -> u64 {
        let affordable = convert::count(convert::float(CALL) / self.sample_cost);
        let limit = affordable
            .clamp(LEAST_PAGES, MOST_PAGES)
            .min(self.levels[level].stretch().max(LEAST_PAGES));
        match &self.control {
            Some(control) if level > 0 && control.is_searching() => {
                limit.min(control.samples_wanted().max(u64::from(BLOCK_PAGES)))
            }
            _ => limit,
        }
    }

    /// As much of the level's round as `limit` allows, and what only the bottom level reads.
    fn pick_round(&mut self, level: usize, picks: &mut Vec<(Run, Pick)>, limit: u64) {
        if level == 0 {
            self.pick_extras(picks, limit / 2);
        }
        let regions = &mut self.regions;
        self.levels[level].begin(self.now, |region, level_slot| {
            regions[region].level_slot = level_slot
        });
        let mut pages = picks.len() as u64;
        while pages < limit && picks.len() < MOST_RUNS {
            let Some(count) = self.pick(level, picks) else {
                break;
            };
            pages += count;
        }
    }

    /// One more pick of the level's round; the number of its pages, or none if the round is over.
    fn pick(&mut self, level: usize, picks: &mut Vec<(Run, Pick)>) -> Option<u64> {
        loop {
            if self.quotas[level].is_none() {
                if !self.levels[level].is_walking() {
                    return None;
                }
                let Some((region, samples)) = self.levels[level].next() else {
                    self.work.round_over = true;
                    return None;
                };
                self.quotas[level] = Some(self.quota(level, region, samples));
            }
            let quota = self.quotas[level].as_mut()?;
            let number = quota.region;
            let is_here = self.regions.find(number, 0).is_some_and(|region| {
                region.state == State::Ranked && usize::from(region.level) == level
            });
            if !is_here || (quota.pages == 0 && quota.blocks == 0) {
                self.quotas[level] = None;
                continue;
            }
            let region = &mut self.regions[number];
            let (page, count, purpose) = if quota.blocks > 0 {
                quota.blocks -= 1;
                let (block, done) = region.next_block(&self.permutations);
                if done {
                    self.work.swept.push(number);
                    quota.blocks = 0;
                }
                let (page, count) = region.block_pages(block);
                if let Some(huge_blocks) = &mut region.huge_blocks {
                    huge_blocks.begin(block);
                }
                (page, count, Purpose::Block)
            } else {
                quota.pages -= 1;
                let (page, _) = region.next_page(&self.permutations);
                (page, 1, Purpose::Page)
            };
            let start = region.address(page);
            let space = self.discovery.space(region.space).id;
            picks.push((
                Run {
                    start,
                    space,
                    count,
                    stride: 1,
                },
                Pick {
                    region: number,
                    page,
                    count,
                    purpose,
                },
            ));
            return Some(u64::from(count));
        }
    }

    fn quota(&self, level: usize, number: u32, samples: u32) -> Quota {
        let region = &self.regions[number];
        let is_dense =
            level == self.top() || (level > 0 && u64::from(samples) * 4 >= u64::from(region.pages));
        if !is_dense {
            return Quota {
                region: number,
                pages: samples.min(region.pages),
                blocks: 0,
            };
        }
        let left = region.blocks() - region.sweep.blocks;
        let blocks = if samples >= region.weight() {
            left
        } else {
            samples.div_ceil(BLOCK_PAGES).clamp(1, left.max(1))
        };
        Quota {
            region: number,
            pages: 0,
            blocks,
        }
    }

    /// What only the bottom level reads.
    fn pick_extras(&mut self, picks: &mut Vec<(Run, Pick)>, limit: u64) {
        self.pick_trials(picks);
        self.pick_anchors(picks, limit);
        if self.now < self.probes_due {
            return;
        }
        self.probes_due = self.now + self.levels[0].round_time();
        self.pick_young(picks);
        self.pick_sparse(picks);
    }

    /// Anchors of newcomers, a few of each in turn: enough for clones to show, whoever came first.
    fn pick_anchors(&mut self, picks: &mut Vec<(Run, Pick)>, limit: u64) {
        let mut left = limit;
        while left > 0
            && let Some(number) = self.newcomers.pop_front()
        {
            let is_ranked = self
                .regions
                .find(number, 0)
                .is_some_and(|region| region.state == State::Ranked);
            let turn = if is_ranked {
                left.min(ANCHORS_IN_TURN)
            } else {
                0
            };
            let mut taken = 0;
            while taken < turn
                && let Some(page) = self.regions[number].next_anchor(&self.permutations)
            {
                self.push_page(picks, number, page, Purpose::Page);
                taken += 1;
            }
            left -= taken;
            if is_ranked && taken == turn {
                self.newcomers.push_back(number);
            } else if is_ranked {
                self.await_filling(number);
            }
        }
    }

    /// A region is mapped before it is filled, and may be swept before it is full: if there are
    /// holes by then, its anchors are looked at again, each time after twice as long.
    pub(super) fn await_filling(&mut self, number: u32) {
        let region = &mut self.regions[number];
        if region.fillings >= MOST_FILLINGS {
            return;
        }
        region.filling = self.now + (self.discovery.shortest() << region.fillings);
        self.calendar.insert((region.filling, number));
    }

    /// Pages on trial, of so many regions in turn: some must wait long for pages.
    pub(super) fn pick_trials(&mut self, picks: &mut Vec<(Run, Pick)>) {
        let (now, round) = (self.now, self.round);
        let behind = (Bound::Excluded(self.trial_turn), Bound::Unbounded);
        let numbers: Vec<u32> = self
            .trials
            .range(behind)
            .chain(self.trials.range(..=self.trial_turn))
            .copied()
            .take(TRIALS_IN_TURN)
            .collect();
        let Some(&last) = numbers.last() else {
            return;
        };
        self.trial_turn = last;
        for number in numbers {
            let pages = self.regions[number].cow.trial_due(now, round);
            if !pages.is_empty() {
                self.trials.remove(&number);
            }
            for page in pages
                .into_iter()
                .filter(|&page| page < self.regions[number].pages)
            {
                self.push_page(picks, number, page, Purpose::Trial);
            }
        }
    }

    fn pick_young(&mut self, picks: &mut Vec<(Run, Pick)>) {
        let numbers: Vec<u32> = self
            .calendar
            .iter()
            .map(|&(_, number)| number)
            .take(4 * YOUNG_PROBES)
            .filter(|&number| {
                self.regions.find(number, 0).is_some_and(|region| {
                    region.state == State::Young && self.lifetimes.is_suspect(region.lifetime_class)
                })
            })
            .take(YOUNG_PROBES)
            .collect();
        for number in numbers {
            self.push_page(picks, number, 0, Purpose::Alive);
        }
    }

    /// Looks into expanses: of one space after the other, and of each into one after the other.
    fn pick_sparse(&mut self, picks: &mut Vec<(Run, Pick)>) {
        if self.sparse_mappings == 0 {
            return;
        }
        let slots: Vec<(SpaceId, u32)> = self
            .discovery
            .all_after(self.sparse_turn)
            .filter(|&(_, slot)| !self.discovery.space(slot).sparse_mappings.is_empty())
            .take(SPARSE_PROBES)
            .collect();
        let each = SPARSE_PROBES / slots.len().max(1);
        for (id, slot) in slots {
            self.sparse_turn = id;
            let space = self.discovery.space_mut(slot);
            for _ in 0..each {
                let at = space.sparse_turn % space.sparse_mappings.len();
                space.sparse_turn = at + 1;
                let Some(start) = space.sparse_mappings[at].next_probe() else {
                    continue;
                };
                picks.push((
                    Run {
                        start,
                        space: id,
                        count: 1,
                        stride: 1,
                    },
                    Pick {
                        region: slot,
                        page: 0,
                        count: 1,
                        purpose: Purpose::SparseMapping,
                    },
                ));
            }
        }
    }

    fn push_page(&self, picks: &mut Vec<(Run, Pick)>, number: u32, page: u32, purpose: Purpose) {
        let region = &self.regions[number];
        let space = self.discovery.space(region.space).id;
        let start = region.address(page);
        picks.push((
            Run {
                start,
                space,
                count: 1,
                stride: 1,
            },
            Pick {
                region: number,
                page,
                count: 1,
                purpose,
            },
        ));
    }
}

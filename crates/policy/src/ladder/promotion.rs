//! Up and down the ladder.
//!
//! # Problem
//! Time belongs to regions where pages can be merged and stay merged. Evidence comes in the middle
//! of rounds and is sometimes wrong; a region that was swept must not be swept again for the same
//! duplicates.
//!
//! # Approach
//! Strong evidence promotes at once, very strong evidence to the top; weak or none demotes when
//! the round is over. A region swept in full returns to the bottom, whatever was found, unless
//! much of it was busy: then it is swept again, [`MOST_SWEEPS`] times in all; or unless more than
//! V_dup of it is broken a round and the COW filter is off: then it is swept at once, for as long as
//! that goes on. If a rise led to no merges the next one must wait, each time twice as long.
//! Regions whose merged pages are broken too fast fall to the bottom and are closed by their COW
//! filter.
//!
//! # Units
//! Levels count from 0 at the bottom. Shares 0 to 1.
//!
//! # Source
//! UKSM §5.2.

use super::Engine;
use crate::convert;
use crate::region::cow::Permission;
use crate::region::duplication::{Scale, Verdict};
use crate::region::{State, Sweep, has_holes};
use crate::report::Standing;

/// Sweeps in a row of one region.
const MOST_SWEEPS: u32 = 2;
/// The longest wait after vain rises is 2^this rounds.
const MOST_BACKOFF: u32 = 7;

impl Engine {
    /// Something was learnt about the region: promotes it if that is strong enough.
    pub(super) fn consider(&mut self, number: u32, scale: &Scale) {
        let (now, round, v_cow) = (self.now, self.round, self.params.v_cow);
        let top = self.top();
        let region = &mut self.regions[number];
        if region.state != State::Ranked {
            return;
        }
        if region.cow.decide(v_cow, now, round) {
            self.promotions.cow_broken += 1;
            region.standing = Standing::CowBroken;
            region.duplication.reset();
            self.trials.remove(&number);
            self.move_to(number, 0);
            return;
        }
        let level = usize::from(region.level);
        if level == top || self.permission(number) != Permission::Open {
            return;
        }
        let region = &mut self.regions[number];
        let target = match region.duplication.verdict(scale) {
            Verdict::Leap => top,
            Verdict::Step => level + 1,
            Verdict::Open | Verdict::Below => return,
        };
        if level == 0 && !self.may_promote(number) {
            return;
        }
        self.last_promotion = now;
        self.promotions.promoted += 1;
        self.promotions.leapt += u64::from(target > level + 1);
        self.regions[number].standing = Standing::Rising;
        self.move_to(number, target);
    }

    /// Whether the region's last rise was worth it, or long enough ago.
    fn may_promote(&mut self, number: u32) -> bool {
        let (now, round, v_dup) = (self.now, self.round, self.params.v_dup);
        let region = &mut self.regions[number];
        if let Some(merges) = region.merges_at_promotion.take() {
            let gained = convert::float(region.merges - merges);
            let worth = v_dup / 4.0 * f64::from(region.resident().max(1));
            if gained < worth {
                region.failed_promotions = (region.failed_promotions + 1).min(MOST_BACKOFF);
                region.backoff_until = now + (round << region.failed_promotions);
            } else {
                region.failed_promotions = 0;
            }
        }
        if now < region.backoff_until {
            region.duplication.reset();
            return false;
        }
        region.merges_at_promotion = Some(region.merges);
        true
    }

    /// The last block of the region's sweep has been worked through.
    pub(super) fn swept(&mut self, number: u32) {
        let v_dup = self.params.v_dup;
        let Some(region) = self.regions.find(number, 0) else {
            return;
        };
        if region.state != State::Ranked || region.level == 0 {
            return;
        }
        let sweep = region.sweep;
        let share = |pages: u32| convert::ratio(u64::from(pages), u64::from(sweep.pages.max(1)));
        let (now, round) = (self.now, convert::float(self.round));
        let region = &mut self.regions[number];
        let since = now - std::mem::replace(&mut region.swept_at, now);
        // Whoever turned the filter off wants such pages merged, again and again.
        let rewritten = share(sweep.broken) * round / convert::float(since.max(1));
        let is_rewritten = self.params.v_cow.is_none() && rewritten > v_dup;
        region.was_busy = share(sweep.failed) > v_dup;
        if is_rewritten || (region.was_busy && sweep.completed < MOST_SWEEPS) {
            region.standing = Standing::Swept;
            region.sweep = Sweep {
                completed: sweep.completed,
                ..Sweep::default()
            };
            let level = usize::from(region.level);
            if is_rewritten {
                self.levels[level].hasten();
            }
            return;
        }
        self.promotions.finished += 1;
        region.standing = if region.merges > 0 {
            Standing::Finished
        } else {
            Standing::Sparse
        };
        if has_holes(sweep.pages, region.pages) {
            region.fillings = 0;
            if !region.grown {
                // It was swept too early, which was not in vain.
                region.merges_at_promotion = None;
            }
            self.await_filling(number);
        }
        self.move_to(number, 0);
    }

    /// A level's round is over: those who do not belong there go down, and some one up.
    pub(super) fn round_over(&mut self, level: usize, scale: &Scale) {
        if level == 0 || level == self.top() {
            return;
        }
        let members: Vec<u32> = self.levels[level].members().collect();
        for number in members {
            let region = &self.regions[number];
            if region.duplication.verdict(scale) == Verdict::Below
                || (region.duplication.samples() >= 32
                    && region.duplication.estimate(scale) < self.params.v_dup)
            {
                self.promotions.demoted += 1;
                self.regions[number].standing = if level == 1 {
                    Standing::Sparse
                } else {
                    Standing::Rising
                };
                self.move_to(number, level - 1);
            }
        }
    }

    fn move_to(&mut self, number: u32, level: usize) {
        let region = &mut self.regions[number];
        region.duplication.reset();
        region.sweep = Sweep::default();
        if usize::from(region.level) == level {
            return;
        }
        self.levels[usize::from(region.level)].remove(region.level_slot);
        region.level = u8::try_from(level).expect("at most 8 levels");
        region.level_slot = self.levels[level].insert(number, region.weight());
    }
}

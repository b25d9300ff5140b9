//! Moves up and down the ladder.
//!
//! # Problem
//! Time belongs to regions where pages can be merged and stay merged. The results of a region's
//! samples come in the middle of rounds and are sometimes wrong; a region that was swept must not
//! be swept again for the same duplicates.
//!
//! # Approach
//! A strong estimate of duplicates promotes a region at once, a very strong one to the top; a weak
//! one demotes it when the round is over. A region that was swept in full returns to the bottom,
//! unless its sweep shows that it is to be swept again. If a promotion led to no merges the next
//! one must wait, each time twice as long. A region whose merged pages are broken too fast falls to
//! the bottom, and its COW filter closes it.
//!
//! # Units
//! Levels count from 0 at the bottom. Shares are 0 to 1.
//!
//! # Source
//! UKSM §5.2.

use super::Ladder;
use crate::clock::Moment;
use crate::command::Nanos;
use crate::ids::RegionId;
use crate::region::cow::{Permission, Ruling};
use crate::region::duplication::{Scale, Verdict};
use crate::region::{Region, Regions, State, SweepEnd};
use crate::report::Standing;

/// Samples of a region that are enough to demote it by their estimate alone.
const MIN_SAMPLES: u32 = 32;

impl Ladder {
    /// There are new results about the region: moves it if they are reason enough.
    pub(crate) fn consider(
        &mut self,
        id: RegionId,
        regions: &mut Regions,
        scale: &Scale,
        at: Moment<'_>,
    ) {
        let v_cow = at.params.v_cow;
        let region = &mut regions[id];
        // A first sweep is not interrupted: it reads the same pages as a sweep of the top level.
        if region.state() != State::Ranked || region.is_first_sweep_under_way() {
            return;
        }
        if region.ends_ban(v_cow, at.now) {
            region.try_again();
            self.read_anchors(id);
        }
        match regions[id].rule(at) {
            Ruling::Closed { until } => {
                self.counts.cow_broken += 1;
                let region = &mut regions[id];
                region.set_standing(Standing::CowBroken);
                region.duplication_mut().reset();
                self.calendar.insert(until, id);
                if region.cow().may_end_early() {
                    self.look_at(id, at.now);
                }
                self.move_to(id, 0, regions);
                return;
            }
            Ruling::Opened => {
                // The trial read the region, and merged the pages that may be on trial.
                regions[id].open();
                self.sweep_again(id);
            }
            Ruling::Nothing => {}
        }
        let region = &mut regions[id];
        let (level, top) = (region.level(), self.top());
        if level == top || region.permission(v_cow, at.now) != Permission::Open {
            return;
        }
        let to = match region.duplication().verdict(scale) {
            Verdict::Leap => top,
            Verdict::Step => level + 1,
            Verdict::Open | Verdict::Below => return,
        };
        if level == 0 && !region.may_promote(at.params.v_dup, at.now, at.round) {
            return;
        }
        self.counts.promoted += 1;
        self.has_news = true;
        self.counts.leapt += u64::from(to > level + 1);
        region.set_standing(Standing::Rising);
        self.move_to(id, to, regions);
    }

    /// The last block of the region's sweep has been worked through. `shortest` is the time until
    /// the next look if the region was not full.
    pub(crate) fn end_sweep(
        &mut self,
        id: RegionId,
        regions: &mut Regions,
        shortest: Nanos,
        at: Moment<'_>,
    ) {
        let is_over = |region: &Region| region.is_sweep_over();
        if !regions.find_ranked(id, 0).is_some_and(is_over) {
            return;
        }
        let region = &mut regions[id];
        let is_first = region.level() == 0;
        let end = region.end_sweep(at.now, at.round, at.params.v_dup, at.params.v_cow.is_none());
        match end {
            SweepEnd::Again if is_first => self.sweep_again(id),
            SweepEnd::Again => {
                let level = region.level();
                self.levels[level].hasten();
                return;
            }
            SweepEnd::Unfilled => self.await_filling(id, regions, at.now, shortest),
            SweepEnd::Done => {}
        }
        self.counts.finished += u64::from(!is_first);
        self.move_to(id, 0, regions);
        self.check_later(id, regions, at.now);
    }

    /// A level's round is over: the members that do not belong there go down.
    pub(crate) fn end_round(
        &mut self,
        level: usize,
        regions: &mut Regions,
        scale: &Scale,
        v_dup: f64,
    ) {
        if level == 0 {
            self.end_bottom_round();
            return;
        }
        if level == self.top() {
            return;
        }
        let members: Vec<RegionId> = self.levels[level].members().collect();
        for id in members {
            let duplication = regions[id].duplication();
            if duplication.verdict(scale) == Verdict::Below
                || (duplication.samples() >= MIN_SAMPLES && duplication.estimate(scale) < v_dup)
            {
                self.counts.demoted += 1;
                regions[id].set_standing(if level == 1 {
                    Standing::Sparse
                } else {
                    Standing::Rising
                });
                self.move_to(id, level - 1, regions);
            }
        }
    }

    fn move_to(&mut self, id: RegionId, level: usize, regions: &mut Regions) {
        let region = &mut regions[id];
        region.forget_samples();
        if region.level() == level {
            return;
        }
        self.levels[region.level()].remove(region.level_slot());
        let level_slot = self.levels[level].insert(id, region.weight());
        region.set_level(level, level_slot);
        if level == 0 {
            self.sweep_again(id);
        }
    }
}

//! The first sweep: new regions are read once in unused time.
//!
//! # Problem
//! Thin samples find regions with much in common at the same places. They seldom meet where a
//! twentieth of the pages is equal, or where equal pages lie at other offsets in each region: two
//! samples of a hundredth each have a chance of one in ten thousand. In-kernel KSM, which reads all
//! pages, finds such duplicates.
//!
//! # Approach
//! UKSM's shares are upper bounds. The part of the governor's share that all levels leave reads
//! each region once in full, so that every page of it is indexed: of two equal pages, the one that
//! is read later meets the other. The newest region goes first, so that a newcomer never waits for
//! old regions; and its anchors go first, because a clone shows by them and is then swept by the
//! top level. A page costs about half a microsecond once. A region is read again when clearly more
//! of it is in memory, and in a new era of the hash, in which the old index does not count. Without
//! new regions, this costs nothing.
//!
//! # Source
//! UKSM §5.3 (shares are bounds); design: a ladder that conserves work.

use super::sampling::{Selection, Sources, has_room_for_block, push_block};
use super::{Ladder, MAX_IN_STEP};
use crate::accounts::payer::Payer;
use crate::clock::Moment;
use crate::ids::RegionId;
use crate::region::Region;
use crate::region::cow::Permission;

impl Ladder {
    /// Queues the region for another sweep behind all new ones, if it is due then.
    pub(crate) fn sweep_again(&mut self, id: RegionId) {
        self.unswept.insert(0, id);
        self.has_news = true;
    }

    /// The pages of a call in unused time: waiting anchors, then blocks of regions without a first
    /// sweep.
    pub(crate) fn select_spare(
        &mut self,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) -> Option<Selection> {
        let limit = self.call_limit(self.top());
        let mut selection = Selection::new(0, Payer::Spare);
        self.pick_anchors(&mut selection.picks, limit, from, at.now);
        if !selection.picks.is_empty() {
            // The results of anchors decide about sweeps of the top level.
            return selection.finish();
        }
        if let Some(watched) = self.select_watched(from, at) {
            return Some(watched);
        }
        let mut pages = 0;
        for _ in 0..MAX_IN_STEP {
            if pages >= limit || !has_room_for_block(&selection.picks) {
                break;
            }
            let Some(id) = self.unswept.last() else {
                break;
            };
            let region = from.regions.find_ranked(id, 0);
            let is_read = region.is_some_and(Region::is_sweep_over);
            if is_read && selection.swept.contains(&id) {
                // The region waits twice. The results of this call must be known before its next
                // sweep.
                break;
            }
            let is_due = region.is_some_and(|region| {
                let may_sweep = match region.permission(at.params.v_cow, at.now) {
                    Permission::Open => true,
                    // A sweep under way is completed: until then nothing is decided about it.
                    Permission::Trial => {
                        region.is_first_sweep_under_way() || !region.cow().has_enough_on_trial()
                    }
                    Permission::Closed => false,
                };
                region.level() == 0 && region.is_sweep_due() && may_sweep
            });
            if !is_due {
                self.unswept.drop_last();
                continue;
            }
            let (count, is_last) = push_block(&mut selection, from, id, &self.permutations, at);
            if is_last {
                self.unswept.drop_last();
            }
            pages += count;
        }
        selection.finish().or_else(|| self.select_checks(from, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::params::{Governor, Params};
    use crate::region::Regions;
    use crate::spaces::Spaces;
    use crate::spaces::region_lifetimes::RegionLifetimes;

    #[test]
    fn regions_that_are_not_due_are_passed_over_in_several_steps() {
        let params = Params::governor(Governor::Full);
        let mut ladder = Ladder::new(&params, 1);
        for number in 0..20_000 {
            ladder.sweep_again(RegionId(number));
        }
        let mut step = || {
            let mut from = Sources {
                regions: &mut Regions::default(),
                spaces: &mut Spaces::new(1),
                lifetimes: &RegionLifetimes::new(params.v_life),
                shortest: 0,
            };
            let clock = Clock::new(params.global_round());
            assert!(
                ladder
                    .select_spare(&mut from, clock.moment(&params))
                    .is_none()
            );
            ladder.unswept.len()
        };
        assert_eq!(step(), 20_000 - MAX_IN_STEP);
        assert_eq!(step(), 0);
    }
}

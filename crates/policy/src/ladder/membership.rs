//! Regions enter the ladder, leave it, and wait for their time.
//!
//! # Problem
//! A region may be sampled only once it is old enough; a region without its mapping, or with
//! refused pages, must cost nothing; and time decides about each.
//!
//! # Approach
//! A calendar of waiting regions: for their age, for another try after a refusal or after their
//! merged pages were broken, for being filled, or for being counted as grown. An entry may be out
//! of date when its time comes: the region's own state decides. A region whose mapping was found
//! gone waits for a mapping list that was read later.
//!
//! Without the wait for being filled: equal pages of memory that fills slowly are merged 5.1 s
//! after the last page under medium, instead of 2.0.
//!
//! # Source
//! UKSM §5.1, §5.2.

use super::calendar::Note;
use super::{Ladder, MAX_IN_STEP};
use crate::clock::Moment;
use crate::command::Nanos;
use crate::ids::RegionId;
use crate::region::{Regions, State};
use crate::spaces::region_lifetimes::{MIN_LONG_LIFE, RegionLifetimes};

/// Rounds after which refused pages are tried again.
const REFUSED_ROUNDS: u64 = 64;

impl Ladder {
    /// A region was found, which may be sampled from `ready` on.
    pub(crate) fn await_age(&mut self, id: RegionId, ready: Nanos) {
        self.calendar.insert(ready, id);
    }

    /// Puts a region on the bottom level.
    fn enter(&mut self, id: RegionId, regions: &mut Regions) {
        let region = &mut regions[id];
        let level_slot = self.levels[0].insert(id, region.weight());
        region.enter_ladder(level_slot);
        if !region.is_grown() {
            self.calendar.insert(region.reaches(MIN_LONG_LIFE), id);
        }
        self.read_anchors(id);
    }

    fn leave(&mut self, id: RegionId, regions: &Regions) {
        let region = &regions[id];
        if region.state() == State::Ranked {
            self.levels[region.level()].remove(region.level_slot());
        }
    }

    /// The region is about to go.
    pub(crate) fn forget(&mut self, id: RegionId, regions: &Regions) {
        if regions[id].state() == State::Young {
            self.counts.died_young += 1;
        }
        self.leave(id, regions);
    }

    /// The region's mapping seems to be gone: nothing of it is sampled until a mapping list has it.
    pub(crate) fn lose(&mut self, id: RegionId, regions: &mut Regions, now: Nanos) {
        if matches!(regions[id].state(), State::Ranked | State::Young) {
            self.leave(id, regions);
            regions[id].lose(now);
        }
    }

    /// A mapping list read at `read_at` has the region's mapping.
    pub(crate) fn found_again(&mut self, id: RegionId, regions: &mut Regions, read_at: Nanos) {
        if regions[id].is_lost_before(read_at) {
            self.enter(id, regions);
        }
    }

    /// The region's pages are refused: nothing of it is sampled for a long time.
    pub(crate) fn refuse(&mut self, id: RegionId, regions: &mut Regions, at: Moment<'_>) {
        if regions[id].state() == State::Ranked {
            self.leave(id, regions);
            let until = at.now + REFUSED_ROUNDS * at.round;
            regions[id].refuse(until);
            self.calendar.insert(until, id);
        }
    }

    /// Passes the region's present weight on to its level.
    pub(crate) fn reweigh(&mut self, id: RegionId, regions: &Regions) {
        let region = &regions[id];
        if region.state() == State::Ranked {
            self.levels[region.level()].set_weight(region.level_slot(), region.weight());
        }
    }

    /// Queues the region's anchors to be read.
    pub(crate) fn read_anchors(&mut self, id: RegionId) {
        self.arrivals += 1;
        self.has_news = true;
        self.newcomers.push_back(Note::new(self.arrivals, id));
    }

    /// A new era of the hash: all regions are to be read again, their anchors first.
    pub(crate) fn read_all_again(&mut self, ids: impl Iterator<Item = RegionId>) {
        self.newcomers.clear();
        self.unswept = super::calendar::Calendar::default();
        ids.for_each(|id| self.read_anchors(id));
    }

    /// All sweeps and rounds above the bottom start over.
    pub(crate) fn restart_rounds(&mut self, regions: &mut Regions) {
        for (level, quota) in self.levels.iter_mut().zip(&mut self.quotas).skip(1) {
            for id in level.members() {
                regions[id].restart_sweep();
            }
            level.restart();
            *quota = None;
        }
    }

    /// If the region may still be filled, its anchors are read again, after `shortest` at first.
    pub(super) fn await_filling(
        &mut self,
        id: RegionId,
        regions: &mut Regions,
        now: Nanos,
        shortest: Nanos,
    ) {
        if let Some(due) = regions[id].await_filling(now, shortest) {
            self.calendar.insert(due, id);
        }
    }

    /// Acts on due entries, up to a limit, and the next steps on the rest: all regions that came
    /// together are due together.
    pub(crate) fn read_calendar(
        &mut self,
        regions: &mut Regions,
        lifetimes: &mut RegionLifetimes,
        now: Nanos,
    ) {
        for _ in 0..MAX_IN_STEP {
            let Some((due, id)) = self.calendar.pop_due(now) else {
                break;
            };
            if regions.find(id, 0).is_none() {
                continue;
            }
            let region = &mut regions[id];
            let class = region.lifetime_class();
            match region.state() {
                State::Young => {
                    let ready = region.reaches(lifetimes.threshold(class));
                    if ready > now {
                        self.counts.held_young += 1;
                        self.calendar.insert(ready, id);
                    } else {
                        self.enter(id, regions);
                    }
                }
                // Entries from before the refusal do not end it.
                State::Refused if region.is_refusal_over(now) => self.enter(id, regions),
                State::Ranked => match region.is_filling_due(due) {
                    Some(true) => self.read_anchors(id),
                    Some(false) => {}
                    None if region.cow().was_closed_until(due) => {
                        region.try_again();
                        self.read_anchors(id);
                    }
                    None if !region.is_grown() && region.age(now) >= MIN_LONG_LIFE => {
                        region.set_grown();
                        lifetimes.survived(class);
                    }
                    None => {}
                },
                State::Refused | State::Lost | State::Vacant => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Governor, Params};

    #[test]
    fn what_is_due_together_is_acted_on_in_several_steps() {
        let params = Params::governor(Governor::Full);
        let mut ladder = Ladder::new(&params, 1);
        for number in 0..20_000 {
            ladder.await_age(RegionId(number), 5);
        }
        let mut step = |now| {
            let mut lifetimes = RegionLifetimes::new(params.v_life);
            ladder.read_calendar(&mut Regions::default(), &mut lifetimes, now);
            ladder.calendar.len()
        };
        assert_eq!(step(4), 20_000, "nothing is due");
        assert_eq!(step(5), 20_000 - MAX_IN_STEP);
        assert_eq!(step(5), 0);
    }
}

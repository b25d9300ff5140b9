//! Regions come, grow up and go.
//!
//! Problem: what surveys say must become regions on the ladder, but only once they are old
//! enough, and their deaths must teach. Approach: a calendar of regions that wait: for their
//! age, for another try after a refusal, or to be called grown. Units: nanoseconds. Source: UKSM
//! §5.1, §5.2.

use super::Engine;
use crate::command::{Mapping, Nanos, PAGE_SIZE, SpaceArrival, SpaceId};
use crate::expanse::Expanse;
use crate::hash::mix;
use crate::lifetime::{self, GROWN};
use crate::number;
use crate::region::{Region, State};
use crate::report::Standing;
use crate::survey::{self, Change, Known};

/// Rounds until pages that were refused are tried again.
const REFUSED_ROUNDS: u64 = 64;

/// Pages by which a space must have grown to have its holes looked into: 2 MiB.
const LEAST_GROWTH: u64 = 512;

impl Engine {
    pub(super) fn on_census(&mut self, arrived: &[SpaceArrival], left: &[SpaceId]) {
        for &space in left {
            if let Some(slot) = self.discovery.slot(space) {
                self.drop_regions(slot);
                self.discovery.leave(slot);
            }
            self.breaks.retain(|breaking| breaking.space != space);
        }
        for arrival in arrived {
            let born = self.now.saturating_sub(arrival.age);
            self.discovery
                .arrive(arrival.space, arrival.kind, born, self.now);
        }
        self.discovery
            .counted(!arrived.is_empty() || !left.is_empty(), self.now);
        if !left.is_empty() {
            self.frames.stir(self.now);
        }
    }

    /// A space that has grown holds pages where there were holes, in mappings that may be as old as
    /// the process: a guest's memory, a heap. Regions with holes are looked at again.
    pub(super) fn on_resident(&mut self, space: SpaceId, pages: u64) {
        let Some(slot) = self.discovery.slot(space) else {
            return;
        };
        let space = self.discovery.space_mut(slot);
        let grown = pages.saturating_sub(space.resident);
        if grown > 0 && grown < LEAST_GROWTH.max(space.resident / 64) {
            return;
        }
        space.resident = pages;
        if grown == 0 || space.stopped {
            return;
        }
        for &number in &space.regions {
            let region = &mut self.regions[number];
            let waits = region.has_anchors_left();
            if region.state == State::Ranked && region.has_any_hole() && !waits {
                region.fillings = 0;
                region.anchor_again();
                region.forget_disappointment();
                self.fresh.push_back(number);
            }
        }
    }

    pub(super) fn on_survey(&mut self, slot: u32, id: SpaceId, mappings: &[Mapping]) {
        if self.discovery.slot(id) != Some(slot) {
            return;
        }
        let fingerprint = fingerprint(mappings);
        let space = self.discovery.space(slot);
        let doubtful = space
            .regions
            .iter()
            .any(|&region| self.regions[region].state == State::Lost);
        let changed = !space.surveyed || space.fingerprint != fingerprint;
        if space.stopped {
            self.discovery.surveyed(slot, false, self.now);
            return;
        }
        if changed || doubtful {
            self.apply_survey(slot, mappings);
            self.fit_index();
            if mappings.is_empty() {
                self.discovery.doubt_census(self.now);
            }
        }
        self.discovery.space_mut(slot).fingerprint = fingerprint;
        self.discovery.surveyed(slot, changed, self.now);
    }

    fn apply_survey(&mut self, slot: u32, mappings: &[Mapping]) {
        let space = self.discovery.space_mut(slot);
        // What the first survey finds may be as old as the process, later finds are new.
        let born = if space.surveyed { self.now } else { space.born };
        space.expanses.retain(|expanse| {
            mappings
                .iter()
                .any(|m| m.kind == expanse.kind && m.start <= expanse.start && expanse.end <= m.end)
        });
        let vast: Vec<_> = space.expanses.iter().map(|e| (e.start, e.end)).collect();
        let numbers = std::mem::take(&mut space.regions);
        let kind = space.kind;
        let known: Vec<Known> = numbers
            .iter()
            .map(|&number| {
                let region = &self.regions[number];
                Known {
                    start: region.start,
                    end: region.end(),
                    kind: region.mapping_kind,
                    region: number,
                }
            })
            .collect();
        let mut next = Vec::with_capacity(numbers.len());
        for change in survey::changes(
            &known,
            mappings,
            &vast,
            self.params.region_bytes,
            survey::MOST_PIECES,
        ) {
            match change {
                Change::Keep(number) => {
                    next.push(number);
                    self.found_again(number);
                }
                Change::Resize { region, end } => {
                    next.push(region);
                    self.found_again(region);
                    self.resize(region, end);
                }
                Change::Drop(number) => self.drop_region(number),
                Change::Found {
                    start,
                    end,
                    kind: mapping_kind,
                } => {
                    next.push(self.found(slot, kind, start, end, mapping_kind, born));
                }
                Change::Vast { start, end, kind } => {
                    let seed = mix(self.seed ^ start);
                    let plot = self.params.region_bytes;
                    let expanse = Expanse::new(start, end, kind, born, plot, seed);
                    self.discovery.space_mut(slot).expanses.push(expanse);
                }
            }
        }
        next.sort_by_key(|&number| self.regions[number].start);
        self.discovery.space_mut(slot).regions = next;
    }

    /// Makes a region of a part of an expanse in which something was found.
    pub(super) fn settle_expanse(&mut self, slot: u32, address: u64) {
        let space = self.discovery.space_mut(slot);
        let kind = space.kind;
        let Some(expanse) = space
            .expanses
            .iter_mut()
            .find(|expanse| expanse.contains(address))
        else {
            return;
        };
        let (mapping_kind, born) = (expanse.kind, expanse.born);
        let Some((start, end)) = expanse.settle(address) else {
            return;
        };
        let at = space
            .regions
            .partition_point(|&number| self.regions[number].start < start);
        let is_free = space
            .regions
            .get(at)
            .is_none_or(|&number| self.regions[number].start >= end);
        if is_free {
            let number = self.found(slot, kind, start, end, mapping_kind, born);
            self.discovery.space_mut(slot).regions.insert(at, number);
            self.fit_index();
        }
    }

    fn found(
        &mut self,
        slot: u32,
        space_kind: u64,
        start: u64,
        end: u64,
        mapping_kind: u64,
        born: Nanos,
    ) -> u32 {
        let pages = number::narrow((end - start) / PAGE_SIZE);
        let kin = lifetime::kin(space_kind, mapping_kind, pages);
        let number = self
            .regions
            .insert(Region::new(slot, start, pages, mapping_kind, kin, born));
        self.calendar
            .insert((born + self.lives.threshold(kin), number));
        number
    }

    fn found_again(&mut self, number: u32) {
        if self.regions[number].state == State::Lost {
            self.admit(number);
        }
    }

    fn resize(&mut self, number: u32, end: u64) {
        let region = &self.regions[number];
        let before = u64::from(region.merged_now);
        let pages = number::narrow((end - region.start) / PAGE_SIZE);
        self.regions.resize(number, pages);
        self.merged_now = self.merged_now - before + u64::from(self.regions[number].merged_now);
        self.reweigh(number);
    }

    pub(super) fn reweigh(&mut self, number: u32) {
        let region = &self.regions[number];
        if region.state == State::Ranked {
            self.levels[usize::from(region.level)].reweigh(region.seat, region.weight());
        }
    }

    /// Drops all regions of a space.
    pub(super) fn drop_regions(&mut self, slot: u32) {
        let space = self.discovery.space_mut(slot);
        space.expanses.clear();
        for number in std::mem::take(&mut space.regions) {
            self.drop_region(number);
        }
    }

    fn drop_region(&mut self, number: u32) {
        let region = &self.regions[number];
        let age = self.now - region.born;
        if region.state == State::Young {
            self.moves.died_young += 1;
        }
        self.lives.died(region.kin, age);
        self.merged_now -= u64::from(region.merged_now);
        self.leave_ladder(number);
        self.trials.remove(&number);
        self.regions.remove(number);
        self.frames.stir(self.now);
    }

    fn leave_ladder(&mut self, number: u32) {
        let region = &self.regions[number];
        if region.state == State::Ranked {
            self.levels[usize::from(region.level)].remove(region.seat);
        }
    }

    /// Puts a region on the bottom level.
    fn admit(&mut self, number: u32) {
        let region = &mut self.regions[number];
        assert!(region.state != State::Ranked && region.state != State::Vacant);
        region.state = State::Ranked;
        region.standing = Standing::Sparse;
        region.level = 0;
        region.seat = self.levels[0].insert(number, region.weight());
        region.evidence.reset();
        if !region.grown {
            self.calendar.insert((region.born + GROWN, number));
        }
        self.fresh.push_back(number);
    }

    /// The region's mapping seems to be gone: leave it until a survey tells.
    pub(super) fn lose(&mut self, number: u32) {
        if matches!(self.regions[number].state, State::Ranked | State::Young) {
            self.leave_ladder(number);
            self.regions[number].state = State::Lost;
        }
        self.discovery.doubt(self.regions[number].space, self.now);
    }

    /// The region's pages are refused: leave it for long.
    pub(super) fn refuse(&mut self, number: u32) {
        if self.regions[number].state == State::Ranked {
            self.leave_ladder(number);
            let region = &mut self.regions[number];
            region.state = State::Refused;
            region.standing = Standing::Refused;
            self.calendar
                .insert((self.now + REFUSED_ROUNDS * self.round, number));
        }
    }

    /// Acts on what has become due.
    pub(super) fn read_calendar(&mut self) {
        while let Some(&(due, number)) = self.calendar.first() {
            if due > self.now {
                break;
            }
            self.calendar.pop_first();
            if self.regions.find(number, 0).is_none() {
                continue;
            }
            let region = &mut self.regions[number];
            match region.state {
                State::Young => {
                    let ready = region.born + self.lives.threshold(region.kin);
                    if ready > self.now {
                        self.moves.held_young += 1;
                        self.calendar.insert((ready, number));
                    } else {
                        self.admit(number);
                    }
                }
                State::Refused => self.admit(number),
                State::Ranked if region.filling == due => {
                    region.filling = 0;
                    if region.has_holes() {
                        region.anchor_again();
                        self.fresh.push_back(number);
                    }
                }
                State::Ranked if !region.grown && self.now - region.born >= GROWN => {
                    region.grown = true;
                    let kin = region.kin;
                    self.lives.survived(kin);
                }
                State::Ranked | State::Lost | State::Vacant => {}
            }
        }
    }

    /// Ranges with pages believed to be merged, at most 8 MiB each.
    pub(super) fn merged_ranges(&self, slot: u32) -> Vec<(u64, u64)> {
        const PIECE: u32 = 2048;
        let mut ranges = vec![];
        for &number in &self.discovery.space(slot).regions {
            let region = &self.regions[number];
            if region.merged_now == 0 {
                continue;
            }
            for from in (0..region.pages).step_by(number::index(PIECE)) {
                let to = region.pages.min(from + PIECE);
                if (from..to).any(|page| region.is_merged(page)) {
                    ranges.push((
                        region.address(from),
                        region.address(from) + u64::from(to - from) * PAGE_SIZE,
                    ));
                }
            }
        }
        ranges
    }
}

fn fingerprint(mappings: &[Mapping]) -> u64 {
    mappings.iter().fold(mappings.len() as u64, |sum, mapping| {
        mix(sum ^ mapping.start).wrapping_add(mix(mapping.end ^ mapping.kind.rotate_left(32)))
    })
}

//! Regions come, grow up and go.
//!
//! # Problem
//! What surveys say must become regions on the ladder, but only once they are old enough, and their
//! deaths must teach. A listing can be older than what samples have shown since, or not be had at
//! all. And a process can map more than anybody can follow: thousands of mappings that reserve
//! terabytes and hold nothing.
//!
//! # Approach
//! A calendar of regions that wait: for their age, for another try after a refusal, or to be called
//! grown. A region whose mapping was found gone comes back only by a listing that was read after
//! that. Regions are bounded, for each space and in all. Where a listing would bring more, large
//! mappings become expanses (`expanse.rs`), which are one each until something is found in them;
//! what is beyond the bound even so is left out, counted, and tried again with every survey.
//!
//! # Units
//! Nanoseconds, pages.
//!
//! # Source
//! UKSM §5.1, §5.2.

use super::Engine;
use crate::command::{Mapping, Nanos, PAGE_SIZE, SpaceArrival, SpaceId};
use crate::convert;
use crate::hash::mix;
use crate::region::{Region, State};
use crate::report::Standing;
use crate::spaces::changes::{self, Change, Known};
use crate::spaces::lifetime::{self, GROWN};
use crate::spaces::sparse::SparseMapping;

/// Into how many regions a mapping is cut at most: fewer if there is no room for so many.
const CUTS: [u64; 3] = [changes::MOST_PIECES, 32, 1];

/// Rounds until pages that were refused are tried again.
const REFUSED_ROUNDS: u64 = 64;

/// Pages by which a space must have grown to have its holes looked into: 2 MiB.
const LEAST_GROWTH: u64 = 512;

impl Engine {
    pub(super) fn on_processes(&mut self, arrived: &[SpaceArrival], left: &[SpaceId]) {
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
            self.frames.expect_freed(self.now);
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
                region.forget_failed_promotions();
                self.newcomers.push_back(number);
            }
        }
    }

    /// The mappings of a space, as they were `age` ago.
    pub(super) fn on_mappings(&mut self, slot: u32, id: SpaceId, mappings: &[Mapping], age: Nanos) {
        if self.discovery.slot(id) != Some(slot) {
            return;
        }
        let read_at = self.now.saturating_sub(age);
        let fingerprint = fingerprint(mappings);
        let space = self.discovery.space(slot);
        let is_doubtful = space.left_out > 0
            || space
                .regions
                .iter()
                .any(|&region| self.regions[region].is_lost_before(read_at));
        let changed = !space.surveyed || space.fingerprint != fingerprint;
        if space.stopped {
            self.discovery.surveyed(slot, false, self.now);
            return;
        }
        if changed || is_doubtful {
            self.apply_mappings(slot, mappings, read_at);
            self.fit_index();
            if mappings.is_empty() {
                self.discovery.list_processes_soon(self.now);
            }
        }
        self.discovery.space_mut(slot).fingerprint = fingerprint;
        self.discovery.surveyed(slot, changed, self.now);
    }

    /// The mappings of a space could not be read: what is known of it stays, and they are read
    /// again when that is due, each time later.
    pub(super) fn on_unread(&mut self, slot: u32, id: SpaceId) {
        if self.discovery.slot(id) == Some(slot) {
            self.unread += 1;
            self.discovery.unread(slot, self.now);
        }
    }

    fn apply_mappings(&mut self, slot: u32, mappings: &[Mapping], read_at: Nanos) {
        let space = self.discovery.space_mut(slot);
        // What the first survey finds may be as old as the process, later finds are new.
        let born = if space.surveyed { self.now } else { space.born };
        self.sparse_mappings -= space.sparse_mappings.len();
        space.sparse_mappings.retain(|sparse_mapping| {
            let at = mappings.partition_point(|mapping| mapping.end < sparse_mapping.end);
            mappings
                .get(at)
                .is_some_and(|m| m.kind == sparse_mapping.kind && m.start <= sparse_mapping.start)
        });
        self.sparse_mappings += space.sparse_mappings.len();
        let sparse: Vec<_> = space
            .sparse_mappings
            .iter()
            .map(|e| (e.start, e.end))
            .collect();
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
        let (changes, mut room) = self.changes_with_room(&known, mappings, &sparse);
        let mut next = Vec::with_capacity(numbers.len());
        let mut left_out = 0;
        for change in changes {
            match change {
                Change::Keep(number) => {
                    next.push(number);
                    self.found_again(number, read_at);
                }
                Change::Resize { region, end } => {
                    next.push(region);
                    self.found_again(region, read_at);
                    self.resize(region, end);
                }
                Change::Drop(number) => self.drop_region(number),
                Change::Found { start, end, .. } | Change::Vast { start, end, .. } if room == 0 => {
                    left_out += (end - start) / PAGE_SIZE;
                }
                Change::Found {
                    start,
                    end,
                    kind: mapping_kind,
                } => {
                    room -= 1;
                    next.push(self.found(slot, kind, start, end, mapping_kind, born));
                }
                Change::Vast { start, end, kind } => {
                    room -= 1;
                    let seed = mix(self.seed ^ start);
                    let part = self.params.region_bytes;
                    let sparse_mapping = SparseMapping::new(start, end, kind, born, part, seed);
                    self.discovery
                        .space_mut(slot)
                        .sparse_mappings
                        .push(sparse_mapping);
                    self.sparse_mappings += 1;
                }
            }
        }
        next.sort_by_key(|&number| self.regions[number].start);
        let space = self.discovery.space_mut(slot);
        space
            .sparse_mappings
            .sort_by_key(|sparse_mapping| sparse_mapping.start);
        space.regions = next;
        space.left_out = left_out;
        space.crowded = left_out > 0;
    }

    /// The changes of a survey, with mappings cut into as many regions as there is room for, and
    /// that room.
    fn changes_with_room(
        &self,
        known: &[Known],
        mappings: &[Mapping],
        sparse: &[(u64, u64)],
    ) -> (Vec<Change>, usize) {
        let mut answer = (vec![], 0);
        for most in CUTS {
            let changes = changes::changes(known, mappings, sparse, self.params.region_bytes, most);
            let dropped = |change: &&Change| matches!(change, Change::Drop(_));
            let dropped = changes.iter().filter(dropped).count();
            let staying = known.len() - dropped;
            let others = self.regions.len() + self.sparse_mappings - known.len();
            let room = (self.params.max_process_regions)
                .saturating_sub(staying + sparse.len())
                .min(self.params.max_regions.saturating_sub(others + staying));
            let coming = changes.len() - known.len();
            answer = (changes, room);
            if coming <= room {
                break;
            }
        }
        answer
    }

    /// Makes a region of a part of an expanse in which something was found.
    pub(super) fn populate_sparse(&mut self, slot: u32, address: u64) {
        let space = self.discovery.space_mut(slot);
        let kind = space.kind;
        let at = space
            .sparse_mappings
            .partition_point(|sparse_mapping| sparse_mapping.end <= address);
        let followed = space.regions.len() + space.sparse_mappings.len();
        let Some(sparse_mapping) = space
            .sparse_mappings
            .get_mut(at)
            .filter(|e| e.contains(address))
        else {
            return;
        };
        if self.regions.len() + self.sparse_mappings >= self.params.max_regions
            || followed >= self.params.max_process_regions
        {
            space.crowded = true;
            return;
        }
        let (mapping_kind, born) = (sparse_mapping.kind, sparse_mapping.born);
        let Some((start, end)) = sparse_mapping.settle(address) else {
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
        let pages = convert::narrow((end - start) / PAGE_SIZE);
        let lifetime_class = lifetime::lifetime_class(space_kind, mapping_kind, pages);
        let number = self.regions.insert(Region::new(
            slot,
            start,
            pages,
            mapping_kind,
            lifetime_class,
            born,
        ));
        self.calendar
            .insert((born + self.lifetimes.threshold(lifetime_class), number));
        number
    }

    /// A listing read at `read_at` has the region's mapping.
    fn found_again(&mut self, number: u32, read_at: Nanos) {
        if self.regions[number].is_lost_before(read_at) {
            self.admit(number);
        }
    }

    fn resize(&mut self, number: u32, end: u64) {
        let region = &self.regions[number];
        let before = u64::from(region.merged_now());
        let pages = convert::narrow((end - region.start) / PAGE_SIZE);
        self.regions.resize(number, pages);
        self.merged_now = self.merged_now - before + u64::from(self.regions[number].merged_now());
        self.set_weight(number);
    }

    /// The level hears of what the region weighs now.
    pub(super) fn set_weight(&mut self, number: u32) {
        let region = &self.regions[number];
        if region.state == State::Ranked {
            self.levels[usize::from(region.level)].set_weight(region.level_slot, region.weight());
        }
    }

    /// Drops all regions of a space.
    pub(super) fn drop_regions(&mut self, slot: u32) {
        let space = self.discovery.space_mut(slot);
        self.sparse_mappings -= space.sparse_mappings.len();
        space.sparse_mappings.clear();
        space.left_out = 0;
        space.crowded = false;
        for number in std::mem::take(&mut space.regions) {
            self.drop_region(number);
        }
    }

    fn drop_region(&mut self, number: u32) {
        let region = &self.regions[number];
        let age = self.now - region.born;
        if region.state == State::Young {
            self.promotions.died_young += 1;
        }
        self.lifetimes.died(region.lifetime_class, age);
        self.merged_now -= u64::from(region.merged_now());
        self.leave_ladder(number);
        self.trials.remove(&number);
        self.regions.remove(number);
        self.frames.expect_freed(self.now);
    }

    fn leave_ladder(&mut self, number: u32) {
        let region = &self.regions[number];
        if region.state == State::Ranked {
            self.levels[usize::from(region.level)].remove(region.level_slot);
        }
    }

    /// Puts a region on the bottom level.
    fn admit(&mut self, number: u32) {
        let region = &mut self.regions[number];
        assert!(region.state != State::Ranked && region.state != State::Vacant);
        region.state = State::Ranked;
        region.standing = Standing::Sparse;
        region.level = 0;
        region.level_slot = self.levels[0].insert(number, region.weight());
        region.duplication.reset();
        if !region.grown {
            self.calendar.insert((region.born + GROWN, number));
        }
        self.newcomers.push_back(number);
    }

    /// The region's mapping seems to be gone: leave it until a survey tells.
    pub(super) fn lose(&mut self, number: u32) {
        if matches!(self.regions[number].state, State::Ranked | State::Young) {
            self.leave_ladder(number);
            let region = &mut self.regions[number];
            region.state = State::Lost;
            region.since = self.now;
        }
        self.discovery
            .list_mappings_soon(self.regions[number].space, self.now);
    }

    /// The region's pages are refused: leave it for long.
    pub(super) fn refuse(&mut self, number: u32) {
        if self.regions[number].state == State::Ranked {
            self.leave_ladder(number);
            let region = &mut self.regions[number];
            region.state = State::Refused;
            region.standing = Standing::Refused;
            region.since = self.now + REFUSED_ROUNDS * self.round;
            self.calendar.insert((region.since, number));
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
                    let ready = region.born + self.lifetimes.threshold(region.lifetime_class);
                    if ready > self.now {
                        self.promotions.held_young += 1;
                        self.calendar.insert((ready, number));
                    } else {
                        self.admit(number);
                    }
                }
                // What was noted before the refusal does not end it.
                State::Refused if region.since <= self.now => self.admit(number),
                State::Ranked if region.filling == due => {
                    region.filling = 0;
                    if region.has_holes() {
                        region.anchor_again();
                        self.newcomers.push_back(number);
                    }
                }
                State::Ranked if !region.grown && self.now - region.born >= GROWN => {
                    region.grown = true;
                    let lifetime_class = region.lifetime_class;
                    self.lifetimes.survived(lifetime_class);
                }
                State::Ranked | State::Refused | State::Lost | State::Vacant => {}
            }
        }
    }

    /// Ranges with pages believed to be merged, at most 8 MiB each.
    pub(super) fn merged_ranges(&self, slot: u32) -> Vec<(u64, u64)> {
        const PIECE: u32 = 2048;
        let mut ranges = vec![];
        for &number in &self.discovery.space(slot).regions {
            let region = &self.regions[number];
            if region.merged_now() == 0 {
                continue;
            }
            for from in (0..region.pages).step_by(convert::index(PIECE)) {
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

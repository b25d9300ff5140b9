//! Processes and mappings come and go, and their regions with them.
//!
//! # Problem
//! Mapping lists must become regions on the ladder, without undoing newer results of samples. A
//! list may be older than these, or not available at all.
//!
//! # Approach
//! The spaces compare a list with their mappings; the regions and the ladder are changed here. A
//! region whose mapping was found gone comes back only by a list that was read after that.
//!
//! # Source
//! UKSM §5.1, §5.2.

use super::Engine;
use crate::command::{Mapping, Nanos, PAGE_SIZE, SpaceArrival, SpaceId, SpaceSize};
use crate::convert;
use crate::ids::{RegionId, SpaceSlot};
use crate::region::{NewRegion, Region};
use crate::spaces::changes::{Change, KnownRegion};
use crate::spaces::{fingerprint, region_lifetimes};

impl Engine {
    pub(super) fn on_processes(&mut self, arrived: &[SpaceArrival], left: &[SpaceId]) {
        let now = self.clock.now();
        for &space in left {
            if let Some(slot) = self.spaces.slot(space) {
                self.drop_regions(slot);
                self.spaces.remove(slot);
                self.discovery.remove(slot);
            }
        }
        for arrival in arrived {
            let born = now.saturating_sub(arrival.age);
            if let Some(slot) = self.spaces.add(arrival.space, arrival.kind, born) {
                self.discovery.add(slot, born, now);
            }
        }
        if !left.is_empty() {
            self.lookup.expect_freed(0, now);
        }
    }

    /// An observer of sizes reports that these have changed.
    pub(super) fn on_resized(&mut self, spaces: &[SpaceId]) {
        for &space in spaces {
            if let Some(slot) = self.spaces.slot(space) {
                self.discovery.measure_soon(slot);
            }
        }
    }

    /// The sizes of the spaces that were measured.
    pub(super) fn on_sizes(&mut self, sizes: &[SpaceSize]) {
        for (at, size) in sizes.iter().enumerate() {
            let slot = self.discovery.asked()[at];
            if !size.gone {
                self.on_anon_pages(slot, size.anon_pages);
            }
        }
        self.discovery.measured(sizes, self.clock.now());
    }

    /// A space that has grown holds pages where there were holes, in mappings that may be as old as
    /// the process: a guest's memory, a heap. Regions with holes are read again. One that became
    /// smaller has holes where there were none.
    fn on_anon_pages(&mut self, slot: SpaceSlot, pages: u64) {
        let change = self.spaces.get_mut(slot).compare_size(pages);
        if change.is_eq() {
            return;
        }
        self.discovery.resized(slot);
        let now = self.clock.now();
        for &id in self.spaces.get(slot).regions() {
            self.ladder.check_soon(id, &mut self.regions, now);
            let region = &mut self.regions[id];
            if change.is_lt() {
                region.expect_holes();
            } else if region.expect_growth() {
                self.ladder.read_anchors(id);
            }
        }
    }

    /// The mappings of a space, as they were `age` ago; listing them took `cost`.
    pub(super) fn on_mappings(
        &mut self,
        slot: SpaceSlot,
        id: SpaceId,
        mappings: &[Mapping],
        (age, cost): (Nanos, Nanos),
    ) {
        if self.spaces.slot(id) != Some(slot) {
            return;
        }
        let now = self.clock.now();
        let space = self.spaces.get(slot);
        let read_at = now.saturating_sub(age);
        let fingerprint = fingerprint(mappings);
        let is_news = space.is_news(fingerprint);
        let is_lost = |&id: &RegionId| self.regions[id].is_lost_before(read_at);
        if is_news || space.left_out() > 0 || space.regions().iter().any(is_lost) {
            if mappings.is_empty() {
                self.drop_regions(slot);
                self.discovery.list_processes_soon(now);
            }
            self.apply_mappings(slot, mappings, read_at);
        }
        self.spaces.get_mut(slot).set_listed(fingerprint);
        self.discovery
            .mappings_listed(slot, is_news, (read_at, cost), now);
    }

    /// The mappings of a space could not be read: its regions stay, and the mappings are read again
    /// when that is due, each time later.
    pub(super) fn on_unread(&mut self, slot: SpaceSlot, id: SpaceId) {
        if self.spaces.slot(id) == Some(slot) {
            self.spaces.count_unread();
            self.discovery.mappings_unread(slot, self.clock.now());
        }
    }

    fn apply_mappings(&mut self, slot: SpaceSlot, mappings: &[Mapping], read_at: Nanos) {
        let space = self.spaces.get(slot);
        let born = space.born_of_news(self.clock.now());
        let known: Vec<KnownRegion> = space
            .regions()
            .iter()
            .map(|&id| {
                let region = &self.regions[id];
                KnownRegion {
                    start: region.start(),
                    end: region.end(),
                    kind: region.mapping_kind(),
                    region: id,
                }
            })
            .collect();
        let all = self.regions.len();
        let (changes, mut room) = self
            .spaces
            .changes(slot, &known, mappings, all, &self.params);
        let mut next = Vec::with_capacity(known.len());
        let mut left_out = 0;
        for change in changes {
            match change {
                Change::Keep(id) => {
                    next.push(id);
                    self.ladder.found_again(id, &mut self.regions, read_at);
                }
                Change::Resize { region, end } => {
                    next.push(region);
                    self.ladder.found_again(region, &mut self.regions, read_at);
                    self.resize(region, end);
                }
                Change::Drop(id) => self.drop_region(id),
                Change::Found { start, end, .. } | Change::Sparse { start, end, .. }
                    if room == 0 =>
                {
                    left_out += (end - start) / PAGE_SIZE;
                }
                Change::Found { start, end, kind } => {
                    room -= 1;
                    next.push(self.found(slot, (start, end), kind, born));
                }
                Change::Sparse { start, end, kind } => {
                    room -= 1;
                    let part_bytes = self.params.region_bytes;
                    self.spaces
                        .add_sparse(slot, (start, end), kind, born, part_bytes);
                }
            }
        }
        next.sort_by_key(|&id| self.regions[id].start());
        self.spaces.set_regions(slot, next, left_out);
    }

    /// Makes a region of the part of a sparse mapping in which a page was found.
    pub(super) fn populate_sparse(&mut self, slot: SpaceSlot, address: u64) {
        let all = self.regions.len();
        let Some(part) = self.spaces.find_part(slot, address, all, &self.params) else {
            return;
        };
        let regions = self.spaces.get(slot).regions();
        let at = regions.partition_point(|&id| self.regions[id].start() < part.start);
        let is_free = regions
            .get(at)
            .is_none_or(|&id| self.regions[id].start() >= part.end);
        if is_free {
            let range = (part.start, part.end);
            let id = self.found(slot, range, part.mapping_kind, part.born);
            self.spaces.insert_region(slot, at, id);
        }
    }

    fn found(
        &mut self,
        slot: SpaceSlot,
        (start, end): (u64, u64),
        mapping_kind: u64,
        born: Nanos,
    ) -> RegionId {
        let pages = convert::narrow((end - start) / PAGE_SIZE);
        let class = region_lifetimes::class(self.spaces.get(slot).kind(), mapping_kind, pages);
        let id = self.regions.insert(Region::new(NewRegion {
            start,
            pages,
            space: slot,
            mapping_kind,
            lifetime_class: class,
            born,
        }));
        self.ladder
            .await_age(id, born + self.lifetimes.threshold(class));
        id
    }

    fn resize(&mut self, id: RegionId, end: u64) {
        let pages = convert::narrow((end - self.regions[id].start()) / PAGE_SIZE);
        let is_longer = pages > self.regions[id].pages();
        self.regions.resize(id, pages);
        self.ladder.reweigh(id, &self.regions);
        if is_longer {
            self.ladder.read_anchors(id);
        }
    }

    /// Drops all regions of a space that has left, or whose process has ended.
    fn drop_regions(&mut self, slot: SpaceSlot) {
        let mut merged = 0;
        for id in self.spaces.clear(slot) {
            merged += u64::from(self.regions[id].merged_now());
            self.drop_region(id);
        }
        self.lookup.writes().explain(merged);
    }

    fn drop_region(&mut self, id: RegionId) {
        let now = self.clock.now();
        let region = &self.regions[id];
        self.lifetimes
            .died(region.lifetime_class(), region.age(now));
        self.ladder.forget(id, &self.regions);
        let merged = region.merged_now();
        self.regions.remove(id);
        self.lookup.expect_freed(merged.into(), now);
    }

    /// The region's mapping seems to be gone: it is left alone until a mapping list has it.
    pub(super) fn lose(&mut self, id: RegionId) {
        let now = self.clock.now();
        self.ladder.lose(id, &mut self.regions, now);
        self.discovery
            .list_mappings_soon(self.regions[id].space(), now);
    }

    /// The region's pages are refused: it is left alone for a long time.
    pub(super) fn refuse(&mut self, id: RegionId) {
        let at = self.clock.moment(&self.params);
        self.ladder.refuse(id, &mut self.regions, at);
    }
}

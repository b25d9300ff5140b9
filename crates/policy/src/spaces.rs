//! The followed spaces and their mappings.
//!
//! # Problem
//! A process can map more than can be followed: thousands of mappings that reserve terabytes and
//! hold nothing. The number of followed regions must be bounded, for each space and in all.
//!
//! # Approach
//! [`discovery`] schedules lists, and [`sizes`] finds the spaces that changed. A mapping list is
//! compared with the known regions of the space ([`changes`]). Where it would add more regions than
//! there is room for, large mappings become sparse ones ([`sparse`]), which count as one region
//! each until a page is found in them. Mappings that still exceed the bound are left out, counted,
//! and tried again with every list. The lifetimes of regions are learnt by kind
//! ([`region_lifetimes`]).
//!
//! # Source
//! UKSM §5.1.

pub(crate) mod changes;
pub(crate) mod discovery;
pub(crate) mod region_lifetimes;
pub(crate) mod sizes;
pub(crate) mod sparse;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::command::{Mapping, Nanos, SpaceId};
use crate::convert;
use crate::frugal_vec;
use crate::ids::{RegionId, SpaceSlot};
use crate::mix::mix;
use crate::params::{Params, SECOND};
use crate::report::SpacesReport;
use changes::{Change, KnownRegion};
use sparse::{FoundPart, SparseMapping};

/// Limits of regions per mapping, tried in this order until the regions fit.
const MAX_REGIONS_OF_MAPPING: [u64; 3] = [changes::MAX_PIECES, 32, 1];

/// Pages by which a space must have grown before its holes are read again, or shrunk before all of
/// it is read at its next growth: 256 KiB, or this part of a larger space.
const MIN_CHANGE: u64 = 64;
const CHANGE_DIVISOR: u64 = 64;
/// Limit of that for growth, per region of the space: searching for the pages costs at most twice
/// as many anchors.
const GROWTH_OF_REGION: u64 = 32;
/// Lost hints of a space count at most once in this time.
const LOST_HINTS_INTERVAL: Nanos = 2 * SECOND;
/// Pages by which the size must change to count while the space is being filled.
const LAST_CHANGE: u64 = 16;

/// A followed space.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    id: SpaceId,
    kind: u64,
    /// Birth of its process, as far as known.
    born: Nanos,
    /// By address.
    regions: Vec<RegionId>,
    /// By address, and the index of the one to probe next.
    sparse: Vec<SparseMapping>,
    sparse_turn: usize,
    /// Pages of its mappings that are not followed, because the limit of regions is reached.
    left_out: u64,
    /// Whether anything was left out since its last mapping list, as far as known.
    crowded: bool,
    /// Fingerprint of its last mapping list; none before the first.
    fingerprint: Option<u64>,
    /// Anonymous pages it had when its holes were last read, or fewer.
    anon_pages: u64,
    /// Whether it had grown when that was measured.
    is_filling: bool,
    /// Time of the last loss of its hints that counted.
    lost_hints_at: Option<Nanos>,
    work: Work,
}

/// Work done for a space since its arrival.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Pages of it that were read.
    pub(crate) read: u64,
    /// Processor time of the calls that read its pages or tried to merge them, in proportion to its
    /// share of the pages.
    pub(crate) time: Nanos,
}

/// All followed spaces.
#[derive(Debug)]
pub(crate) struct Spaces {
    slots: Vec<Option<Space>>,
    free: Vec<SpaceSlot>,
    by_id: BTreeMap<SpaceId, SpaceSlot>,
    /// Sparse mappings of all spaces, and the space that was probed last.
    sparse: usize,
    sparse_turn: SpaceId,
    /// Seed of the addresses that are probed in sparse mappings.
    seed: u64,
    /// Mapping lists that could not be read.
    unread: u64,
}

impl Space {
    /// Its id.
    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// The kind of its process.
    pub(crate) fn kind(&self) -> u64 {
        self.kind
    }

    /// Its regions by address.
    pub(crate) fn regions(&self) -> &[RegionId] {
        &self.regions
    }

    /// Pages of its mappings that are not followed.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Its sparse mappings, `(start, end)` by address.
    pub(crate) fn sparse_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.sparse.iter().map(SparseMapping::range)
    }

    /// Whether any page of it is left out, also within sparse mappings.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// The work done for it.
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// A call read `pages` of it, in this time.
    pub(crate) fn was_read(&mut self, pages: u32, time: Nanos) {
        self.work.read += u64::from(pages);
        self.work.time += time;
    }

    /// A call tried to merge pages of it, in this time.
    pub(crate) fn was_tried(&mut self, time: Nanos) {
        self.work.time += time;
    }

    /// Whether its mappings were listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.fingerprint.is_some()
    }

    /// Whether these mappings differ from those of its last list.
    pub(crate) fn is_news(&self, fingerprint: u64) -> bool {
        self.fingerprint != Some(fingerprint)
    }

    /// Its mappings were listed.
    pub(crate) fn set_listed(&mut self, fingerprint: u64) {
        self.fingerprint = Some(fingerprint);
    }

    /// Birth of mappings that appear in this list: those of the first list may be as old as the
    /// process, later ones are new.
    pub(crate) fn born_of_news(&self, now: Nanos) -> Nanos {
        self.fingerprint.map_or(self.born, |_| now)
    }

    /// Hints of it were lost. Returns whether that counts: if so, all its regions are read again.
    pub(crate) fn loses_hints(&mut self, now: Nanos) -> bool {
        let counts = self
            .lost_hints_at
            .is_none_or(|last| now >= last + LOST_HINTS_INTERVAL);
        if counts {
            self.lost_hints_at = Some(now);
        }
        counts
    }

    /// Compares its number of anonymous pages with the last one that counted. Small changes count
    /// once they have added up: a small change is no reason to read holes. While the space is being
    /// filled, a smaller change counts, because its last pages are a small change, too.
    pub(crate) fn compare_size(&mut self, anon_pages: u64) -> Ordering {
        let change = anon_pages.abs_diff(self.anon_pages);
        let part = self.anon_pages / CHANGE_DIVISOR;
        let counts_from = if self.is_filling {
            LAST_CHANGE
        } else if anon_pages > self.anon_pages {
            MIN_CHANGE.max(part.min(GROWTH_OF_REGION * self.regions.len() as u64))
        } else {
            MIN_CHANGE.max(part)
        };
        if change < counts_from {
            self.is_filling = false;
            return Ordering::Equal;
        }
        let change = anon_pages.cmp(&std::mem::replace(&mut self.anon_pages, anon_pages));
        self.is_filling = change.is_gt();
        change
    }
}

impl Spaces {
    /// No space.
    pub(crate) fn new(seed: u64) -> Spaces {
        Spaces {
            slots: vec![],
            free: vec![],
            by_id: BTreeMap::new(),
            sparse: 0,
            sparse_turn: SpaceId(0),
            seed,
            unread: 0,
        }
    }

    /// A mapping list could not be read.
    pub(crate) fn count_unread(&mut self) {
        self.unread += 1;
    }

    /// Whether any space has a sparse mapping.
    pub(crate) fn has_sparse_mappings(&self) -> bool {
        self.sparse > 0
    }

    /// The counts.
    pub(crate) fn report(&self) -> SpacesReport {
        SpacesReport {
            spaces: self.by_id.len() as u64,
            sparse_mappings: self.sparse as u64,
            left_out_pages: self.iter().map(|space| space.left_out).sum(),
            crowded: self.iter().filter(|space| space.crowded).count() as u64,
            unread_mappings: self.unread,
            unlisted: self
                .iter()
                .filter(|space| space.fingerprint.is_none())
                .count() as u64,
        }
    }

    /// Bytes of all spaces without their regions. Costs a pass over the spaces.
    pub(crate) fn bytes(&self) -> usize {
        let ids = self.iter().map(|space| space.regions.capacity());
        ids.sum::<usize>() * size_of::<RegionId>()
            + self.slots.capacity() * size_of::<Option<Space>>()
    }

    /// The slot of a space.
    pub(crate) fn slot(&self, id: SpaceId) -> Option<SpaceSlot> {
        self.by_id.get(&id).copied()
    }

    /// Whether a slot is in use.
    pub(crate) fn is_used(&self, slot: SpaceSlot) -> bool {
        self.slots.get(slot.index()).is_some_and(Option::is_some)
    }

    /// The space in a slot that is in use.
    ///
    /// # Panics
    /// If the slot is not in use.
    pub(crate) fn get(&self, slot: SpaceSlot) -> &Space {
        self.slots[slot.index()]
            .as_ref()
            .expect("a region's space is there")
    }

    /// Like [`Spaces::get`], mutable.
    pub(crate) fn get_mut(&mut self, slot: SpaceSlot) -> &mut Space {
        self.slots[slot.index()]
            .as_mut()
            .expect("a region's space is there")
    }

    /// The space in a slot, if the slot is still in use.
    pub(crate) fn find_mut(&mut self, slot: SpaceSlot) -> Option<&mut Space> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    /// The id of the space in a slot that is in use.
    pub(crate) fn id(&self, slot: SpaceSlot) -> SpaceId {
        self.get(slot).id
    }

    /// Number of slots, in use or not.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// All spaces and their slots, by id.
    pub(crate) fn with_slots(&self) -> impl Iterator<Item = (SpaceSlot, &Space)> {
        self.by_id.values().map(|&slot| (slot, self.get(slot)))
    }

    /// All spaces, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Space> {
        self.by_id.values().map(|&slot| self.get(slot))
    }

    /// The spaces from this id on, by id.
    pub(crate) fn from(&self, id: SpaceId) -> impl Iterator<Item = &Space> {
        self.by_id.range(id..).map(|(_, &slot)| self.get(slot))
    }

    /// Regions of all spaces, by the spaces' ids and by address.
    pub(crate) fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.iter().flat_map(|space| space.regions.iter().copied())
    }

    /// Adds a space; none if it is known already.
    pub(crate) fn add(&mut self, id: SpaceId, kind: u64, born: Nanos) -> Option<SpaceSlot> {
        if self.by_id.contains_key(&id) {
            return None;
        }
        let space = Space {
            id,
            kind,
            born,
            regions: vec![],
            sparse: vec![],
            sparse_turn: 0,
            left_out: 0,
            crowded: false,
            fingerprint: None,
            anon_pages: 0,
            is_filling: false,
            lost_hints_at: None,
            work: Work::default(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            frugal_vec::push(&mut self.slots, None);
            SpaceSlot(convert::narrow(self.slots.len() as u64 - 1))
        });
        self.slots[slot.index()] = Some(space);
        self.by_id.insert(id, slot);
        Some(slot)
    }

    /// Removes a space that has no regions.
    ///
    /// # Panics
    /// If the slot is not in use.
    pub(crate) fn remove(&mut self, slot: SpaceSlot) {
        let space = self.slots[slot.index()].take().expect("it was there");
        self.by_id.remove(&space.id);
        self.free.push(slot);
    }

    /// Removes all regions and sparse mappings of the space; returns the regions.
    pub(crate) fn clear(&mut self, slot: SpaceSlot) -> Vec<RegionId> {
        let space = self.slots[slot.index()].as_mut().expect("it was there");
        self.sparse -= space.sparse.len();
        space.sparse.clear();
        space.left_out = 0;
        space.crowded = false;
        std::mem::take(&mut space.regions)
    }

    /// The changes that this mapping list makes to a space whose regions are `known`, with mappings
    /// cut into as many regions as there is room for, and that room. Sparse mappings that are gone
    /// are dropped. `regions` is the number of regions of all spaces.
    pub(crate) fn changes(
        &mut self,
        slot: SpaceSlot,
        known: &[KnownRegion],
        mappings: &[Mapping],
        regions: usize,
        params: &Params,
    ) -> (Vec<Change>, usize) {
        let space = self.slots[slot.index()].as_mut().expect("it was there");
        self.sparse -= space.sparse.len();
        space.sparse.retain(|sparse| sparse.is_in(mappings));
        self.sparse += space.sparse.len();
        let sparse: Vec<_> = space.sparse.iter().map(SparseMapping::range).collect();
        let mut answer = (vec![], 0);
        for most in MAX_REGIONS_OF_MAPPING {
            let changes = changes::changes(known, mappings, &sparse, params.region_bytes, most);
            let dropped = |change: &&Change| matches!(change, Change::Drop(_));
            let dropped = changes.iter().filter(dropped).count();
            let staying = known.len() - dropped;
            let others = regions + self.sparse - known.len();
            let room = (params.max_process_regions)
                .saturating_sub(staying + sparse.len())
                .min(params.max_regions.saturating_sub(others + staying));
            let coming = changes.len() - known.len();
            answer = (changes, room);
            if coming <= room {
                break;
            }
        }
        answer
    }

    /// Adds a sparse mapping to a space. A call of [`Spaces::set_regions`] must follow.
    pub(crate) fn add_sparse(
        &mut self,
        slot: SpaceSlot,
        (start, end): (u64, u64),
        mapping_kind: u64,
        born: Nanos,
        part_bytes: u64,
    ) {
        let seed = mix(self.seed ^ start);
        let mapping = SparseMapping::new(start, end, mapping_kind, born, part_bytes, seed);
        self.get_mut(slot).sparse.push(mapping);
        self.sparse += 1;
    }

    /// Sets the regions of a space, by address, and the number of pages that are left out.
    pub(crate) fn set_regions(&mut self, slot: SpaceSlot, regions: Vec<RegionId>, left_out: u64) {
        let space = self.get_mut(slot);
        space.sparse.sort_by_key(SparseMapping::range);
        space.regions = regions;
        space.regions.shrink_to_fit();
        space.left_out = left_out;
        space.crowded = left_out > 0;
    }

    /// Inserts a region of the space at this index of the order by address.
    pub(crate) fn insert_region(&mut self, slot: SpaceSlot, at: usize, region: RegionId) {
        let regions = &mut self.get_mut(slot).regions;
        frugal_vec::reserve(regions);
        regions.insert(at, region);
    }

    /// A page was found at this address of a sparse mapping. Returns the part of the mapping that
    /// should become a region, unless it is one already or there is no room. `regions` is the
    /// number of regions of all spaces.
    pub(crate) fn find_part(
        &mut self,
        slot: SpaceSlot,
        address: u64,
        regions: usize,
        params: &Params,
    ) -> Option<FoundPart> {
        let is_full = regions + self.sparse >= params.max_regions;
        let space = self.get_mut(slot);
        let followed = space.regions.len() + space.sparse.len();
        let at = space
            .sparse
            .partition_point(|sparse| sparse.range().1 <= address);
        let mapping = space.sparse.get_mut(at).filter(|s| s.contains(address))?;
        if is_full || followed >= params.max_process_regions {
            space.crowded = true;
            return None;
        }
        mapping.find_part(address)
    }

    /// The next addresses to probe in sparse mappings, at most `most`, with spaces in turn, and in
    /// each space its mappings in turn.
    pub(crate) fn sparse_probes(&mut self, most: usize) -> Vec<(SpaceSlot, SpaceId, u64)> {
        if self.sparse == 0 {
            return vec![];
        }
        let behind = (Bound::Excluded(self.sparse_turn), Bound::Unbounded);
        let spaces: Vec<(SpaceId, SpaceSlot)> = self
            .by_id
            .range(behind)
            .chain(self.by_id.range(..=self.sparse_turn))
            .map(|(&id, &slot)| (id, slot))
            .filter(|&(_, slot)| !self.get(slot).sparse.is_empty())
            .take(most)
            .collect();
        let each = most / spaces.len().max(1);
        let mut probes = vec![];
        for (id, slot) in spaces {
            self.sparse_turn = id;
            let space = self.get_mut(slot);
            for _ in 0..each {
                let at = space.sparse_turn % space.sparse.len();
                space.sparse_turn = at + 1;
                if let Some(address) = space.sparse[at].next_probe() {
                    probes.push((slot, id, address));
                }
            }
        }
        probes
    }
}

/// A hash of a mapping list.
pub(crate) fn fingerprint(mappings: &[Mapping]) -> u64 {
    mappings.iter().fold(mappings.len() as u64, |sum, mapping| {
        mix(sum ^ mapping.start).wrapping_add(mix(mapping.end ^ mapping.kind.rotate_left(32)))
    })
}

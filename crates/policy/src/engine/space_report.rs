//! Why a space is, or is not, being merged.
//!
//! # Problem
//! The answer must give the real reasons, and asking must decide nothing.
//!
//! # Approach
//! Everything here only reads. A region's standing follows from its state and its place on the
//! ladder, in the order in which the choice of pages checks them. Partners of a page are looked for
//! in the same places as by matching: the zero page, frames, unmerged pages; nothing is entered. A
//! space with tens of thousands of regions is reported in parts.
//!
//! # Units
//! Nanoseconds from now.

use super::Engine;
use crate::command::{Nanos, PAGE_SIZE, SpaceId};
use crate::convert;
use crate::ids::RegionId;
use crate::lookup::RegionPage;
use crate::params::Contents;
use crate::region::cow::Permission;
use crate::region::{Region, State};
use crate::report::{Circumstances, KnownPartner, MAX_SPARSE, RegionReport, SpaceReport, Standing};

/// Frames of one hash that are checked for room for a page.
const MAX_FRAMES: usize = 4;

impl Engine {
    /// Why each region of a space is, or is not, being merged; none if the space is not followed.
    #[must_use]
    pub fn explain(&self, space: SpaceId) -> Option<SpaceReport> {
        self.explain_from(space, 0, usize::MAX)
    }

    /// The same for at most `most` regions, from the first that ends beyond this address.
    #[must_use]
    pub fn explain_from(&self, space: SpaceId, from: u64, most: usize) -> Option<SpaceReport> {
        let slot = self.spaces.slot(space)?;
        let space = self.spaces.get(slot);
        let all = space.regions();
        let first = all.partition_point(|&id| self.regions[id].end() <= from);
        let end = first.saturating_add(most).min(all.len());
        let regions = all[first..end].iter();
        let next = all.get(end).map(|&id| self.regions[id].start());
        let is_here =
            |&(start, end): &(u64, u64)| end > from && next.is_none_or(|next| start < next);
        let sparse = space.sparse_ranges().filter(is_here);
        Some(SpaceReport {
            space: space.id(),
            regions: regions.map(|&id| self.explain_region(id)).collect(),
            next,
            is_listed: space.is_listed(),
            sparse: sparse.take(MAX_SPARSE).collect(),
            left_out_pages: space.left_out(),
            is_crowded: space.is_crowded(),
        })
    }

    /// The circumstances of all regions.
    #[must_use]
    pub fn circumstances(&self) -> Circumstances {
        let now = self.clock.now();
        Circumstances {
            coverage: self.coverage(),
            lines: self.hash.strength(),
            no_frames_left: left(self.merge.no_frames_until(), now),
            round: self.clock.moment(&self.params).round,
        }
    }

    /// The parameters in force.
    #[must_use]
    pub fn params(&self) -> &crate::params::Params {
        &self.params
    }

    /// Possible partners of pages with these hashes, in the strength in use, each at its address;
    /// none for pages in no region. A hash is no proof: the module compares.
    #[must_use]
    pub fn partners(&self, space: SpaceId, pages: &[(u64, u64)]) -> Vec<Option<KnownPartner>> {
        let Some(slot) = self.spaces.slot(space) else {
            return vec![None; pages.len()];
        };
        let all = self.spaces.get(slot).regions();
        let region_at = |address: u64| {
            let at = all.partition_point(|&id| self.regions[id].end() <= address);
            let id = *all.get(at)?;
            (self.regions[id].start() <= address).then_some(id)
        };
        let partner = |&(address, hash): &(u64, u64)| {
            let region = region_at(address)?;
            let page = convert::narrow((address - self.regions[region].start()) / PAGE_SIZE);
            Some(self.partner(space, RegionPage { region, page }, hash))
        };
        pages.iter().map(partner).collect()
    }

    /// Whether pages with this hash are known to differ: it does not show which pages are equal.
    #[must_use]
    pub fn collides(&self, hash: u64) -> bool {
        self.collisions.has(hash)
    }

    fn partner(&self, space: SpaceId, place: RegionPage, hash: u64) -> KnownPartner {
        let region = &self.regions[place.region];
        let is_zero = hash == self.hash.zero() && region.takes_zero_page();
        // Nearly all of such a block was merged with the zero page before.
        if is_zero && region.leaves_zeros(place.page, self.clock.now()) {
            return KnownPartner::HugeAgain;
        }
        // Nor do all pages that look like zeros hold zeros.
        if self.collides(hash) {
            return KnownPartner::Nothing;
        }
        if is_zero {
            return KnownPartner::Zero;
        }
        if self.params.merge == Contents::Zero {
            return KnownPartner::Nothing;
        }
        let mut is_own = false;
        for frame in self.lookup.frames_of(hash).take(MAX_FRAMES) {
            if self.lookup.may_join(frame, space) {
                return KnownPartner::Frame;
            }
            is_own = true;
        }
        let round = self.clock.moment(&self.params).round_number;
        let mut others: Vec<SpaceId> = vec![];
        for rung in 0..self.lookup.rungs() {
            let Some(other) = self.lookup.find_unmerged(hash, rung, round) else {
                continue;
            };
            let region = self.regions.find_ranked(other.region, other.page);
            let Some(region) = region.filter(|region| !region.is_merged(other.page)) else {
                continue;
            };
            if other == place {
                continue;
            }
            let of = self.spaces.id(region.space());
            if of == space {
                is_own = true;
            } else if !others.contains(&of) {
                others.push(of);
            }
        }
        let needed = convert::index(self.params.spaces_needed());
        let is_between = self.params.merge == Contents::Between;
        match others.len() {
            0 if is_own && needed <= 1 => KnownPartner::Page,
            0 if is_own && is_between => KnownPartner::OwnSpace,
            0 if is_own => KnownPartner::TooFew,
            0 => KnownPartner::Nothing,
            count if count + 1 >= needed => KnownPartner::Page,
            _ => KnownPartner::TooFew,
        }
    }

    fn explain_region(&self, id: RegionId) -> RegionReport {
        let now = self.clock.now();
        let region = &self.regions[id];
        let (standing, left) = self.standing(region, now);
        RegionReport {
            start: region.start(),
            end: region.end(),
            level: region.level() + 1,
            standing,
            left,
            age: region.age(now),
            resident: u64::from(region.resident()),
            merged: u64::from(region.merged_now()),
            read_in_full: region.was_swept(),
            sampled: u64::from(region.duplication().samples()),
            hits: u64::from(region.duplication().hits()),
            duplicates: region.duplication().estimate(&self.scale()),
            broken: region.cow().share(),
            strikes: u64::from(region.cow().strikes()),
            busy: region.busy(),
            busy_left: region.busy_until().and_then(|until| self::left(until, now)),
            huge_again_left: self::left(region.blocks_left_alone(now).1, now),
        }
    }

    /// The reason for the region's place, and the time that it still holds.
    fn standing(&self, region: &Region, now: Nanos) -> (Standing, Option<Nanos>) {
        let class = region.lifetime_class();
        match region.state() {
            State::Young => {
                let ready = region.reaches(self.lifetimes.threshold(class));
                let is_old_enough = region.age(now) >= self.params.v_life;
                let standing = if is_old_enough && self.lifetimes.is_suspect(class) {
                    Standing::ShortLived
                } else {
                    Standing::Young
                };
                return (standing, left(ready, now));
            }
            State::Refused => return (Standing::Refused, left(region.refused_until(), now)),
            State::Lost | State::Vacant => return (Standing::Lost, None),
            State::Ranked => {}
        }
        match region.permission(self.params.v_cow, now) {
            Permission::Closed => {
                let until = region.cow().closed_until();
                return (Standing::CowBroken, left(until, now));
            }
            Permission::Trial => return (Standing::OnTrial, None),
            Permission::Open => {}
        }
        let is_read = region.was_swept() || region.duplication().samples() > 0;
        let standing = if self.ladder.is_on_top(region) || region.is_first_sweep_under_way() {
            Standing::Swept
        } else if !is_read && region.merged_now() == 0 {
            Standing::Unread
        } else {
            match region.standing() {
                // The standing from before the ban, or from the way to the top.
                Standing::CowBroken | Standing::Swept => Standing::Sparse,
                standing => standing,
            }
        };
        (standing, None)
    }
}

/// The time from now until then; none if that is past.
fn left(until: Nanos, now: Nanos) -> Option<Nanos> {
    until.checked_sub(now).filter(|&left| left > 0)
}

#[cfg(test)]
mod tests;

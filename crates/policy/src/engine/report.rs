//! What the engine has done, and why a space is or is not being merged.
//!
//! Each part counts for itself; what is counted over all regions is summed up here, which costs a
//! pass over them.

use super::Engine;
use crate::command::SpaceId;
use crate::convert;
use crate::ids::RegionId;
use crate::region::State;
use crate::region::cow::Permission;
use crate::report::{RegionReport, Report, SpaceReport, Standing};
use crate::spaces::Space;

/// Samples of a region that say something about its duplicates.
const ENOUGH: u32 = 8;

impl Engine {
    /// Everything that was counted. Costs a pass over all regions.
    #[must_use]
    pub fn report(&self) -> Report {
        let scale = self.scale();
        let (mut young, mut resident, mut duplicates) = (0, 0, 0.0);
        for region in self.regions.iter() {
            resident += u64::from(region.resident());
            match region.state() {
                State::Young => young += 1,
                State::Ranked => {
                    let left = region.resident().saturating_sub(region.merged_now());
                    if region.duplication().samples() >= ENOUGH {
                        duplicates += region.duplication().estimate(&scale) * f64::from(left);
                    }
                }
                State::Vacant | State::Lost | State::Refused => {}
            }
        }
        let levels = self.ladder.report_levels(&self.regions);
        let (thp_split, thp_kept) = self.merge.report_huge();
        Report {
            now: self.clock.now(),
            spaces: self.spaces.len() as u64,
            regions: self.regions.len() as u64,
            sparse_mappings: self.spaces.sparse_mappings() as u64,
            left_out: self.spaces.iter().map(Space::left_out).sum(),
            crowded: self
                .spaces
                .iter()
                .filter(|space| space.is_crowded())
                .count() as u64,
            unread: self.discovery.unread(),
            shortages: self.retry.shortages(),
            young,
            resident,
            sampled: levels.iter().map(|level| level.sampled).sum(),
            levels,
            strength: self.hash.strength(),
            strength_changes: self.hash.changes(),
            duplicates: convert::count(duplicates),
            merged: self.merge.report_merged(),
            merged_now: self.regions.merged(),
            frames: self.lookup.report_frames(),
            outcomes: self.merge.outcomes(),
            thp_split,
            thp_kept,
            promotions: self.ladder.report_promotions(),
            used: self.accounts.used(),
            elapsed: self.clock.elapsed(),
            budget: self.params.cpu,
            recent_share: self.accounts.recent_share(),
            discovery_used: self.discovery.used(),
            broken: self.breaks.broken(),
            breaks_stopped: self.breaks.stopped(),
            index_entries: self.lookup.indexed(),
            index_bytes: self.lookup.bytes() as u64,
            region_bytes: self.regions.bytes() as u64,
        }
    }

    /// Why each region of a space is, or is not, being merged; none if the space is not followed.
    #[must_use]
    pub fn explain(&self, space: SpaceId) -> Option<SpaceReport> {
        let slot = self.spaces.slot(space)?;
        let space = self.spaces.get(slot);
        let regions = space.regions().iter();
        Some(SpaceReport {
            space: space.id(),
            stopped: space.is_stopped(),
            sparse_mappings: space.sparse_mappings() as u64,
            regions: regions.map(|&id| self.explain_region(id)).collect(),
        })
    }

    fn explain_region(&self, id: RegionId) -> RegionReport {
        let now = self.clock.now();
        let region = &self.regions[id];
        let permission = region.permission(self.params.v_cow, now);
        let standing = match region.state() {
            State::Young => Standing::Young,
            State::Refused => Standing::Refused,
            _ if permission == Permission::Closed => Standing::CowBroken,
            _ if self.ladder.is_on_top(region) => Standing::Swept,
            _ => region.standing(),
        };
        RegionReport {
            start: region.start(),
            end: region.end(),
            level: region.level() + 1,
            standing,
            age: region.age(now),
            resident: u64::from(region.resident()),
            merged: u64::from(region.merged_now()),
            sampled: u64::from(region.duplication().samples()),
            duplicates: region.duplication().estimate(&self.scale()),
            broken: region.cow().share(),
            busy: region.busy(),
        }
    }
}

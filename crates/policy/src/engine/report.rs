//! What the engine has done, and why a space is or is not being merged.
//!
//! Each part counts for itself and has a report of its own; here they are put together.

use super::Engine;
use crate::command::SpaceId;
use crate::ids::RegionId;
use crate::region::State;
use crate::region::cow::Permission;
use crate::report::{
    CpuReport, MergedPages, RegionReport, Report, SpaceReport, Standing, StrengthReport,
};

impl Engine {
    /// Everything that was counted. Costs passes over all regions.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            spaces: self.spaces.report(),
            regions: self.regions.report(),
            duplicates: self.regions.report_duplicates(&self.scale()),
            region_memory: self
                .regions
                .report_memory(self.ladder.bytes() + self.spaces.bytes() + self.discovery.bytes()),
            levels: self.ladder.report_levels(&self.regions),
            promotions: self.ladder.report_promotions(),
            sampling: self.ladder.report_sampling(),
            hints: self.hints.report(),
            index: self.lookup.report_memory(),
            frames: self.lookup.report_frames(),
            merged: self.merged(),
            outcomes: self.merge.outcomes(),
            huge: self.merge.report_huge(),
            strength: StrengthReport {
                read_in_full: self.collisions.pages_read(),
                ..self.hash.report()
            },
            cpu: self.cpu(),
            retry: self.retry.report(),
        }
    }

    /// Pages merged: [`Report::merged`] alone, without a pass over regions.
    #[must_use]
    pub fn merged(&self) -> MergedPages {
        self.merge.report_merged(self.regions.merged())
    }

    /// CPU time: [`Report::cpu`] alone, without a pass over regions.
    #[must_use]
    pub fn cpu(&self) -> CpuReport {
        self.accounts.report(self.discovery.used())
    }

    /// Why each region of a space is, or is not, being merged; none if the space is not followed.
    #[must_use]
    pub fn explain(&self, space: SpaceId) -> Option<SpaceReport> {
        let slot = self.spaces.slot(space)?;
        let space = self.spaces.get(slot);
        let regions = space.regions().iter();
        Some(SpaceReport {
            space: space.id(),
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

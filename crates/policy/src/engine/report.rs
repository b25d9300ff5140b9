//! The report of the engine.
//!
//! Each part counts for itself and has a report of its own; here they are put together.

use super::Engine;
use crate::report::{CpuReport, HugeReport, MergedReport, Report, StrengthReport};

impl Engine {
    /// All counts. Costs passes over all regions.
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
            frames_by_node: self.lookup.frames_by_node().to_vec(),
            merged: self.merged(),
            outcomes: self.merge.outcomes(),
            huge: HugeReport {
                left_alone: self.regions.blocks_left_alone(self.clock.now()),
                ..self.merge.report_huge()
            },
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
    pub fn merged(&self) -> MergedReport {
        MergedReport {
            now: self.regions.merged(),
            written: self.lookup.written(),
            ..self.merge.report_merged()
        }
    }

    /// CPU time: [`Report::cpu`] alone, without a pass over regions.
    #[must_use]
    pub fn cpu(&self) -> CpuReport {
        self.accounts.report(self.discovery.used())
    }
}

//! Reports: what the engine has done, and why a space is not being merged.
//!
//! Problem: see `report.rs`. Approach: counts kept anyway are copied, sums over regions are made
//! here and cost a pass over all of them. Units: pages, nanoseconds.

use super::Engine;
use crate::command::{PAGE_SIZE, SpaceId};
use crate::convert;
use crate::region::cow::Permission;
use crate::region::{Region, State};
use crate::report::{LevelReport, RegionReport, Report, SpaceReport, Standing};

impl Engine {
    /// Everything that was counted. Costs a pass over all regions.
    #[must_use]
    pub fn report(&self) -> Report {
        let scale = self.scale();
        let mut pages = vec![0u64; self.levels.len()];
        let (mut young, mut resident, mut duplicates) = (0, 0, 0.0);
        for region in self.regions.iter() {
            resident += u64::from(region.resident());
            match region.state {
                State::Young => young += 1,
                State::Ranked => {
                    pages[usize::from(region.level)] += u64::from(region.pages);
                    let left = region.resident().saturating_sub(region.merged_now());
                    if region.duplication.samples() >= 8 {
                        duplicates += region.duplication.estimate(&scale) * f64::from(left);
                    }
                }
                State::Vacant | State::Lost | State::Refused => {}
            }
        }
        let spaces = || self.discovery.all().map(|slot| self.discovery.space(slot));
        let levels = self
            .levels
            .iter()
            .zip(pages)
            .map(|(level, pages)| LevelReport {
                share: level.budget.share(),
                round: level.round_time(),
                regions: level.len() as u64,
                pages,
                rounds: level.rounds,
                sampled: level.sampled,
                used: level.budget.used(),
            })
            .collect();
        Report {
            now: self.now,
            spaces: self.discovery.len() as u64,
            regions: self.regions.len() as u64,
            sparse_mappings: self.sparse_mappings as u64,
            left_out: spaces().map(|space| space.left_out).sum(),
            crowded: spaces().filter(|space| space.crowded).count() as u64,
            unread: self.unread,
            shortages: self.shortages,
            young,
            resident,
            levels,
            strength: self.strength,
            strength_changes: self.strength_changes,
            duplicates: convert::count(duplicates),
            merged: self.merged_pages,
            merged_now: self.merged_now,
            frames: self.frames.report(),
            outcomes: self.outcomes,
            thp_split: self.thp_split,
            thp_kept: self.thp_kept,
            sampled: self.sampled,
            promotions: self.promotions,
            used: self.total.used(),
            elapsed: self.now - self.started.unwrap_or(self.now),
            budget: self.params.cpu,
            recent_share: self.recent.share,
            discovery_used: self.discovery.used(),
            broken: self.broken,
            breaks_stopped: self.breaks_stopped,
            index_entries: self.unmerged.len(),
            index_bytes: (self.unmerged.bytes() + self.merged.bytes()) as u64,
            region_bytes: self.regions.bytes() as u64,
        }
    }

    /// Why each region of a space is, or is not, being merged; none if the space is not followed.
    #[must_use]
    pub fn explain(&self, space: SpaceId) -> Option<SpaceReport> {
        let slot = self.discovery.slot(space)?;
        let space = self.discovery.space(slot);
        Some(SpaceReport {
            space: space.id,
            stopped: space.stopped,
            sparse_mappings: space.sparse_mappings.len() as u64,
            regions: space
                .regions
                .iter()
                .map(|&number| self.tell(number))
                .collect(),
        })
    }

    /// The parameters it runs with.
    #[must_use]
    pub fn params(&self) -> &crate::params::Params {
        &self.params
    }

    fn tell(&self, number: u32) -> RegionReport {
        let scale = self.scale();
        let region: &Region = &self.regions[number];
        let standing = match region.state {
            State::Young => Standing::Young,
            State::Refused => Standing::Refused,
            _ if self.permission(number) == Permission::Closed => Standing::CowBroken,
            _ if usize::from(region.level) == self.top() => Standing::Swept,
            _ => region.standing,
        };
        RegionReport {
            start: region.start,
            end: region.start + u64::from(region.pages) * PAGE_SIZE,
            level: usize::from(region.level) + 1,
            standing,
            age: self.now - region.born,
            resident: u64::from(region.resident()),
            merged: u64::from(region.merged_now()),
            sampled: u64::from(region.duplication.samples()),
            duplicates: region.duplication.estimate(&scale),
            broken: region.cow.share(),
            busy: region.busy,
        }
    }
}

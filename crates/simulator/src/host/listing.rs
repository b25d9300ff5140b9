//! Process lists, mapping lists and FRAMES on the simulated host.

use uksm_policy::command::{
    Frame, FrameId, Lines, Mapping, Nanos, Observation, PageState, SpaceArrival, SpaceId, SpaceSize,
};

use super::Host;
use crate::Content;
use crate::memory::Area;

impl Host {
    pub(super) fn list_processes(&mut self) -> (Observation, Nanos) {
        let mut arrived = vec![];
        for (&space, process) in &mut self.processes {
            if !std::mem::replace(&mut process.reported, true) {
                let age = self.now.saturating_sub(process.born);
                arrived.push(SpaceArrival {
                    space,
                    kind: process.kind,
                    age,
                });
            }
        }
        let searched = if self.told {
            0
        } else {
            self.processes.len() as u64
        };
        let cost = self.costs.list_processes + self.costs.process * searched;
        (
            Observation::Processes {
                arrived,
                left: std::mem::take(&mut self.left),
                more: false,
                told: self.told,
            },
            cost,
        )
    }

    pub(super) fn measure_spaces(&self, spaces: &[SpaceId]) -> (Observation, Nanos) {
        let size = |&space: &SpaceId| {
            let areas = self.processes.get(&space).map(|process| &process.areas);
            let slots = areas.into_iter().flatten().flat_map(Area::slots);
            let (pages, anon_pages) = slots.fold((0, 0), |(pages, anon_pages), slot| {
                let is_there = slot.state != PageState::None;
                (pages + 1, anon_pages + u64::from(is_there))
            });
            SpaceSize {
                space,
                gone: areas.is_none(),
                mappings: areas.map_or(0, |areas| areas.len() as u64),
                pages,
                anon_pages,
            }
        };
        let sizes = spaces.iter().map(size).collect();
        let cost = self.costs.call + self.costs.size * spaces.len() as u64;
        (Observation::Sizes(sizes), cost)
    }

    pub(super) fn list_mappings(&mut self, space: SpaceId) -> (Observation, Nanos) {
        if self.unreadable {
            return (Observation::Unread { space }, self.costs.list_mappings);
        }
        if let Some((read_at, mappings)) = self.mapping_lists.get(&space)
            && self.now - read_at < self.mapping_list_life
        {
            let (mappings, age) = (mappings.clone(), self.now - read_at);
            let listed = Observation::Mappings {
                space,
                mappings,
                age,
            };
            return (listed, self.costs.list_mappings);
        }
        let mappings: Vec<Mapping> = self.processes.get(&space).map_or(vec![], |process| {
            let areas = process.areas.iter();
            areas
                .map(|a| Mapping {
                    start: a.start,
                    end: a.end(),
                    kind: a.kind,
                })
                .collect()
        });
        let cost = self.costs.list_mappings + self.costs.mapping * mappings.len() as u64;
        self.mapping_lists
            .insert(space, (self.now, mappings.clone()));
        let listed = Observation::Mappings {
            space,
            mappings,
            age: 0,
        };
        (listed, cost)
    }

    pub(super) fn list_frames(
        &mut self,
        cursor: u32,
        count: u32,
        lines: Lines,
        reap: bool,
    ) -> (Observation, Nanos) {
        let count = usize::try_from(count).expect("bounded");
        let listed: Vec<(u32, (Content, u32))> = self
            .frames
            .range(cursor..)
            .take(count)
            .map(|(&frame, &known)| (frame, known))
            .collect();
        let cursor = match listed.last() {
            Some(&(last, _)) if listed.len() == count => last + 1,
            _ => 0,
        };
        let frames: Vec<Frame> = listed
            .iter()
            .map(|&(frame, (content, sharers))| Frame {
                hash: content.hash(lines, &self.hash),
                frame: FrameId(frame),
                sharers,
            })
            .collect();
        if reap {
            frames
                .iter()
                .filter(|frame| frame.sharers == 0)
                .for_each(|frame| {
                    self.frames.remove(&frame.frame.0);
                });
        }
        let lines = u64::from(lines.to - lines.from) * self.costs.line;
        let cost = self.costs.call + (self.costs.frame + lines) * frames.len() as u64;
        (Observation::Frames { frames, cursor }, cost)
    }
}

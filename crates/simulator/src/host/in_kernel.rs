//! A deduplicator inside the kernel on the simulated host: it walks mappings, reads pages without a
//! call, and merges them two by two.

use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};

use super::Host;
use crate::memory::{PageAddress, Slot};

/// Part of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) space: SpaceId,
    /// Start of the mapping.
    pub(crate) mapping: u64,
    /// Pages of the mapping.
    pub(crate) pages: u64,
}

impl Host {
    /// The first mapping that ends behind a place and may be merged; spaces are in the order of
    /// their starts.
    pub(crate) fn mapping_behind(&self, (space, address): PageAddress) -> Option<Stretch> {
        let spaces = self.processes.from(space);
        let mut mappings = spaces.flat_map(|(at, process)| {
            let first = if at == space {
                process.areas.partition_point(|area| area.end() <= address)
            } else {
                0
            };
            process.areas[first..].iter().map(move |area| (at, area))
        });
        let (space, area) = mappings.find(|(_, area)| !area.refused)?;
        Some(Stretch {
            space,
            mapping: area.start,
            pages: area.pages,
        })
    }

    /// The first present page of a mapping from an index on, and its index.
    pub(crate) fn page_from(&self, stretch: Stretch, first: u64) -> Option<(u64, Slot)> {
        let process = self.processes.get(stretch.space)?;
        let area = &process.areas[process.area(stretch.mapping)?];
        area.first_from(first)
    }

    /// The page at a place, if something is mapped there.
    pub(crate) fn look(&self, (space, address): PageAddress) -> Option<Slot> {
        self.processes.get(space)?.slot(address)
    }

    /// Makes a frame of two equal pages.
    pub(crate) fn merge_pair(&mut self, pages: [PageAddress; 2]) -> u32 {
        let slot = self.look(pages[0]).expect("it was looked at");
        let frame = self.frames.hold(slot.content, 0, 0);
        for page in pages {
            self.merge_with(page, frame);
        }
        frame
    }

    /// Merges a page with a frame of the same contents.
    pub(crate) fn merge_with(&mut self, (space, address): PageAddress, frame: u32) {
        let slot = self.look((space, address)).expect("it was looked at");
        assert!(slot.state == PageState::Anon, "it is no page of its own");
        let held = self.frames.get(frame).expect("it is held");
        assert!(held.content == slot.content, "contents differ");
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        if let Some(block) = area.large_at(address) {
            area.large[block] = false;
            self.splits += 1;
        }
        self.merged += 1;
        let state = PageState::Frame;
        self.put(
            space,
            address,
            Slot {
                state,
                frame,
                ..slot
            },
        );
    }

    /// Marks a page read-only, until it is written.
    pub(crate) fn guard(&mut self, place: PageAddress) {
        self.guards.pages.insert(place);
    }

    /// The marked pages that were written since the last call, in the order of the writes.
    pub(crate) fn take_faults(&mut self) -> Vec<PageAddress> {
        std::mem::take(&mut self.guards.written)
    }

    /// Frees a frame if nothing maps it; returns whether it is still held.
    pub(crate) fn is_mapped(&mut self, frame: u32) -> bool {
        match self.frames.get(frame) {
            None => false,
            Some(held) if held.sharers > 0 => true,
            Some(_) => {
                self.frames.free(frame);
                false
            }
        }
    }
}

/// The address of a page of a mapping.
pub(crate) fn address(stretch: Stretch, page: u64) -> u64 {
    stretch.mapping + page * PAGE_SIZE
}

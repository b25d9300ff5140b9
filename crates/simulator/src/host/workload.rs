//! What a workload does on the simulated host: processes, mappings, writes and pins.
//!
//! A write gives a page its own copy, as a fault does; what ends gives up its mappings of frames.

use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};

use super::Host;
use crate::memory::{Area, Process, Slot};
use crate::{Content, Fill};

impl Host {
    /// A process begins.
    pub fn spawn(&mut self, kind: u64) -> SpaceId {
        let space = SpaceId(self.next_space);
        self.next_space += 1;
        let process = Process {
            kind,
            born: self.now,
            areas: vec![],
            reported: false,
        };
        self.processes.insert(space, process);
        space
    }

    /// A process ends.
    pub fn exit(&mut self, space: SpaceId) {
        let process = self.processes.remove(&space).expect("no such process");
        for area in &process.areas {
            self.release(area);
        }
        if process.reported {
            self.left.push(space);
        }
    }

    /// A process splits in two that share every page until it is written.
    pub fn fork(&mut self, parent: SpaceId) -> SpaceId {
        let child = self.spawn(self.processes[&parent].kind);
        let areas = self.processes[&parent].areas.clone();
        for slot in areas.iter().flat_map(Area::slots) {
            if slot.state == PageState::Frame {
                self.frames.get_mut(&slot.frame).expect("it is mapped").1 += 1;
            }
        }
        self.processes.get_mut(&child).expect("just made").areas = areas;
        child
    }

    /// Maps `pages` at `start`.
    pub fn map(&mut self, space: SpaceId, start: u64, pages: u64, kind: u64, fill: &Fill<'_>) {
        let areas = &mut self
            .processes
            .get_mut(&space)
            .expect("no such process")
            .areas;
        let area = Area::new(start, pages, kind, fill);
        let at = areas.partition_point(|other| other.start < start);
        assert!(
            areas.get(at).is_none_or(|next| next.start >= area.end()),
            "mappings overlap"
        );
        areas.insert(at, area);
    }

    /// Makes the mapping at `start` one of a kind that is never merged.
    pub fn refuse(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        process.areas[at].refused = true;
    }

    /// The zero page may not be mapped in the mapping at `start`.
    pub fn refuse_zero(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        process.areas[at].no_zero = true;
    }

    /// Unmaps the mapping at `start`.
    pub fn unmap(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        let area = process.areas.remove(at);
        self.release(&area);
    }

    /// Writes a page: it holds `content` now, alone.
    pub fn write(&mut self, space: SpaceId, address: u64, content: Content) {
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        let page = (address - area.start) / PAGE_SIZE;
        let old = area.get(page);
        area.set(
            page,
            Slot {
                pinned: old.pinned,
                ..Slot::anon(content)
            },
        );
        self.unshare(&old);
    }

    /// Pins a page, or lets it go.
    pub fn pin(&mut self, space: SpaceId, address: u64, pinned: bool) {
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        let page = (address - area.start) / PAGE_SIZE;
        let slot = area.get(page);
        area.set(page, Slot { pinned, ..slot });
    }

    fn release(&mut self, area: &Area) {
        for slot in area.slots() {
            self.unshare(slot);
        }
    }
}

//! Workload actions on the simulated host: processes, mappings, writes and pins.
//!
//! A write gives a page its own copy, as a fault does; a process or mapping that ends gives up its
//! mappings of frames.

use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};

use super::Host;
use crate::memory::{Area, Slot};
use crate::process::{Growth, Process};
use crate::{Content, Fill};

impl Host {
    /// A process begins in the first domain.
    pub fn spawn(&mut self, kind: u64) -> SpaceId {
        self.spawn_in(0, kind)
    }

    /// A process begins in a domain.
    pub fn spawn_in(&mut self, domain: u16, kind: u64) -> SpaceId {
        let looked_at = self.tells_of_arrival(domain);
        self.processes.add(Process {
            kind,
            domain,
            born: self.now,
            areas: vec![],
            reported: false,
            withheld_until: looked_at,
            growth: Growth::default(),
        })
    }

    /// A process ends.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn exit(&mut self, space: SpaceId) {
        let process = self.processes.remove(space).expect("no such process");
        for area in &process.areas {
            self.release(area);
        }
        self.mapping_lists.remove(&space);
        self.tells(process.domain, self.now);
        if process.reported {
            self.left.push((process.domain, space));
        }
    }

    /// A process splits in two.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn fork(&mut self, parent: SpaceId) -> SpaceId {
        let parent = self.processes.get(parent).expect("no such process");
        let (domain, kind, areas) = (parent.domain, parent.kind, parent.areas.clone());
        let growth = parent.growth.forked();
        for (_, slot) in areas.iter().flat_map(Area::slots) {
            match slot.state {
                PageState::Frame => self.frames.share(slot.frame),
                PageState::Zero => self.zero_pages += 1,
                _ => {}
            }
        }
        let child = self.spawn_in(domain, kind);
        let child_process = self.process(child);
        child_process.areas = areas;
        child_process.growth = growth;
        child
    }

    /// A process executes another program: its space ends, and it gets an empty one.
    pub fn exec(&mut self, space: SpaceId, kind: u64) -> SpaceId {
        let domain = self.process(space).domain;
        self.exit(space);
        self.spawn_in(domain, kind)
    }

    /// The domain of a process; none after its end.
    #[must_use]
    pub fn domain_of(&self, space: SpaceId) -> Option<u16> {
        self.processes.get(space).map(|process| process.domain)
    }

    /// Maps `pages` at `start`.
    ///
    /// # Panics
    /// If there is no such process, or something is mapped there.
    pub fn map(&mut self, space: SpaceId, start: u64, pages: u64, kind: u64, fill: &Fill<'_>) {
        let process = self.process(space);
        let areas = &mut process.areas;
        let area = Area::new(start, pages, kind, fill);
        let at = areas.partition_point(|other| other.start < start);
        let is_free = areas.get(at).is_none_or(|next| next.start >= area.end())
            && (at == 0 || areas[at - 1].end() <= start);
        assert!(is_free, "mappings overlap");
        let appear: Vec<u64> = area.slots().map(|(page, _)| page).collect();
        areas.insert(at, area);
        for page in appear {
            self.appears(space, start + page * PAGE_SIZE);
        }
    }

    /// Makes the mapping at `start` longer by empty pages.
    ///
    /// # Panics
    /// If there is no such mapping, or something is mapped behind it.
    pub fn grow(&mut self, space: SpaceId, start: u64, pages: u64) {
        let (process, at) = self.find(space, start);
        process.areas[at].grow(pages);
        let end = process.areas[at].end();
        let next = process.areas.get(at + 1);
        assert!(
            next.is_none_or(|next| next.start >= end),
            "mappings overlap"
        );
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

    /// Locks the mapping at `start` in memory, or unlocks it.
    pub fn lock(&mut self, space: SpaceId, start: u64, locked: bool) {
        let (process, at) = self.find(space, start);
        process.areas[at].locked = locked;
    }

    /// Unmaps the mapping at `start`.
    pub fn unmap(&mut self, space: SpaceId, start: u64) {
        let (process, at) = self.find(space, start);
        let area = process.areas.remove(at);
        process.growth.unmap(&area);
        self.release(&area);
    }

    /// Writes a page: from now on it alone holds `content`. A huge page stays huge.
    pub fn write(&mut self, space: SpaceId, address: u64, content: Content) {
        self.writes += 1;
        let (process, at) = self.find(space, address);
        let area = &mut process.areas[at];
        if let Some((folio, first)) = area.new_folio(address) {
            area.large[folio] = true;
            let (start, pages) = (area.start, area.folio_pages);
            for page in first..first + pages {
                self.put(space, start + page * PAGE_SIZE, Slot::anon(Content::ZERO));
            }
        }
        self.guards.changes((space, address));
        let pinned = self.slot(space, address).pinned;
        let slot = Slot {
            pinned,
            ..Slot::anon(content)
        };
        self.put(space, address, slot);
    }

    /// Pins a page, or unpins it.
    pub fn pin(&mut self, space: SpaceId, address: u64, pinned: bool) {
        let slot = self.slot(space, address);
        self.put(space, address, Slot { pinned, ..slot });
    }

    /// Swaps an ordinary page out; other pages stay.
    pub fn swap_out(&mut self, space: SpaceId, address: u64) {
        let slot = self.slot(space, address);
        if slot.state == PageState::Anon && !slot.pinned {
            let state = PageState::Swap;
            self.put(space, address, Slot { state, ..slot });
        }
    }

    /// Reads a page; a swapped-out page comes back to memory.
    pub fn touch(&mut self, space: SpaceId, address: u64) {
        let slot = self.slot(space, address);
        if slot.state == PageState::Swap {
            self.put(space, address, Slot::anon(slot.content));
        }
    }

    /// Discards a page: nothing is there until it is written.
    pub fn discard(&mut self, space: SpaceId, address: u64) {
        self.guards.changes((space, address));
        self.put(space, address, Slot::NONE);
    }

    fn slot(&mut self, space: SpaceId, address: u64) -> Slot {
        let (process, at) = self.find(space, address);
        let area = &process.areas[at];
        area.get(area.page(address))
    }

    fn release(&mut self, area: &Area) {
        for (_, slot) in area.slots() {
            self.unshare(&slot);
        }
    }
}

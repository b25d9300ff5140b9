//! Processes by their space.

use std::collections::BTreeSet;

use uksm_policy::command::{Nanos, SpaceId};

use crate::memory::{Area, Slot};

/// A process has grown if it has at least this many more pages.
const GROWTH_PAGES: u64 = 256;
/// Shortest time between two reports of growth of one process.
const ONCE_IN: Nanos = 1_000_000_000;
/// Memory that one page table maps.
const TABLE_BYTES: u64 = 2 << 20;

/// A process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) kind: u64,
    pub(crate) domain: u16,
    pub(crate) born: Nanos,
    /// Mappings, in ascending order of addresses.
    pub(crate) areas: Vec<Area>,
    /// Whether the process was reported to the engine.
    pub(crate) reported: bool,
    /// The process is reported from this time on.
    pub(crate) withheld_until: Nanos,
    /// Growth of the process, for hints.
    pub(crate) growth: Growth,
}

/// Growth of a process as `bpf/` sees it: by its new page tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growth {
    /// Pages added since the last report, less the pages that went.
    pages: u64,
    /// Time of the last report.
    reported_at: Option<Nanos>,
    /// Page tables, by the number of the range that each maps.
    tables: BTreeSet<u64>,
}

impl Growth {
    /// The growth of the child of a fork.
    pub(crate) fn forked(&self) -> Growth {
        Growth {
            tables: self.tables.clone(),
            ..Growth::default()
        }
    }

    /// A page at this address appears. Returns whether growth is reported: for a followed process
    /// that takes a new table, after [`GROWTH_PAGES`] pages, and at most once in [`ONCE_IN`].
    pub(crate) fn appears(&mut self, address: u64, is_followed: bool, now: Nanos) -> bool {
        let is_new = self.tables.insert(address / TABLE_BYTES);
        let is_soon = self.reported_at.is_some_and(|at| now < at + ONCE_IN);
        let is_reported = is_followed && is_new && !is_soon && self.pages >= GROWTH_PAGES;
        if is_reported {
            self.pages = 0;
            self.reported_at = Some(now);
        }
        self.pages += 1;
        is_reported
    }

    /// This many pages go.
    pub(crate) fn go(&mut self, pages: u64) {
        self.pages = self.pages.saturating_sub(pages);
    }

    /// The tables of a range go that is no longer mapped.
    pub(crate) fn unmap(&mut self, area: &Area) {
        self.go(area.resident);
        let (from, to) = (area.start / TABLE_BYTES, area.end() / TABLE_BYTES);
        // The tables at the ends of the range may map other pages, too.
        self.tables.retain(|&table| table <= from || to <= table);
    }

    /// From now on the process is followed.
    pub(crate) fn follow(&mut self) {
        self.pages = 0;
    }
}

impl Process {
    /// The mapping at an address.
    pub(crate) fn area(&self, address: u64) -> Option<usize> {
        let at = self.areas.partition_point(|area| area.end() <= address);
        self.areas
            .get(at)
            .is_some_and(|area| area.start <= address)
            .then_some(at)
    }

    /// Pages in memory.
    pub(crate) fn resident(&self) -> u64 {
        self.areas.iter().map(|area| area.resident).sum()
    }

    /// The page at an address, if something is mapped there.
    pub(crate) fn slot(&self, address: u64) -> Option<Slot> {
        let area = &self.areas[self.area(address)?];
        Some(area.get(area.page(address)))
    }
}

/// All processes. Ids are ascending and never reused, so an id is an index.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<Option<Box<Process>>>);

impl Processes {
    /// The space of the next process.
    pub(crate) fn next(&self) -> SpaceId {
        SpaceId(u32::try_from(self.0.len() + 1).expect("fewer processes than ids"))
    }

    /// Adds a process; returns its space.
    pub(crate) fn add(&mut self, process: Process) -> SpaceId {
        let space = self.next();
        self.0.push(Some(Box::new(process)));
        space
    }

    /// Removes a process.
    pub(crate) fn remove(&mut self, space: SpaceId) -> Option<Process> {
        let place = self.0.get_mut(place(space)?)?;
        place.take().map(|process| *process)
    }

    pub(crate) fn get(&self, space: SpaceId) -> Option<&Process> {
        self.0.get(place(space)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, space: SpaceId) -> Option<&mut Process> {
        self.0.get_mut(place(space)?)?.as_deref_mut()
    }

    /// The processes from a space on, in the order of their starts.
    pub(crate) fn from(&self, space: SpaceId) -> impl Iterator<Item = (SpaceId, &Process)> {
        let first = place(space).unwrap_or(0).min(self.0.len());
        let ids = u32::try_from(first + 1).expect("a space has an id")..;
        let numbered = self.0[first..].iter().zip(ids);
        numbered.filter_map(|(process, id)| Some((SpaceId(id), process.as_deref()?)))
    }

    /// All processes, in the order of their starts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SpaceId, &Process)> {
        let numbered = self.0.iter().zip(1..);
        numbered.filter_map(|(process, id)| Some((SpaceId(id), process.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SpaceId, &mut Process)> {
        let numbered = self.0.iter_mut().zip(1..);
        numbered.filter_map(|(process, id)| Some((SpaceId(id), process.as_deref_mut()?)))
    }
}

fn place(space: SpaceId) -> Option<usize> {
    (space.0 as usize).checked_sub(1)
}

//! The true state of the host, independent of its books and the engine.
//!
//! # Problem
//! The number of saveable pages must be known for hosts with tens of millions of pages, without a
//! table that is larger than the host.
//!
//! # Approach
//! The contents are counted in parts: each pass takes the contents whose numbers mix to one part,
//! sorts them and counts equal ones. The number of parts keeps a pass small.

use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};
use uksm_policy::mix::mix;

use super::Host;
use crate::Content;
use crate::frames::FrameView;
use crate::memory::{Area, Slot};

/// Approximate number of contents sorted in one pass.
const PASS: u64 = 1 << 24;

/// The result of a count of all page tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Mappings of each frame, by its id.
    pub sharers: Vec<u32>,
    /// Pages that map the zero page.
    pub zero_pages: u64,
    /// A page that maps a frame that is free, or has other contents or another domain, or that maps
    /// the zero page without holding zeros.
    pub wrong: Option<(SpaceId, u64)>,
}

impl Audit {
    fn count(&mut self, frame: u32) {
        let place = frame as usize;
        if place >= self.sharers.len() {
            self.sharers.resize(place + 1, 0);
        }
        self.sharers[place] += 1;
    }

    /// Pages saved.
    #[must_use]
    pub fn saved(&self) -> u64 {
        let mapped = self.sharers.iter().filter(|&&n| n > 0);
        mapped.map(|&n| u64::from(n) - 1).sum::<u64>() + self.zero_pages
    }
}

impl Host {
    /// Pages in memory.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let processes = self.processes.iter();
        processes.map(|(_, process)| process.resident()).sum()
    }

    /// Pages that would be saved if every page were merged that may share memory with another.
    #[must_use]
    pub fn mergeable(&self) -> u64 {
        let parts = self.resident() / PASS + 1;
        (0..parts).map(|part| self.mergeable_of(part, parts)).sum()
    }

    fn mergeable_of(&self, part: u64, parts: u64) -> u64 {
        let mut contents: Vec<(u16, Content)> = vec![];
        let mut saved = 0;
        for (_, process) in self.processes.iter() {
            let areas = process.areas.iter().filter(|area| !area.refused);
            for (_, slot) in areas.flat_map(Area::slots) {
                if !slot.is_there() {
                    continue;
                }
                if slot.content == Content::ZERO {
                    saved += u64::from(part == 0);
                } else if parts == 1 || mix(slot.content.number()) % parts == part {
                    contents.push((process.domain, slot.content));
                }
            }
        }
        contents.sort_unstable();
        let again = contents.windows(2).filter(|pair| pair[0] == pair[1]);
        saved + again.count() as u64
    }

    /// Pages that are not merged though another page of their domain, and of their node if nodes
    /// are kept, has the same contents and both may be merged: their domain, space, address and
    /// contents.
    #[must_use]
    pub fn duplicates(&self) -> Vec<(u16, Content, SpaceId, u64)> {
        let mut pages = vec![];
        for (space, process) in self.processes.iter() {
            let areas = process.areas.iter();
            for area in areas.filter(|area| !area.refused && !area.locked) {
                for (page, slot) in area.slots().filter(|(_, slot)| !slot.pinned) {
                    let address = area.start + page * PAGE_SIZE;
                    let is_single = slot.state == PageState::Anon;
                    if !matches!(slot.state, PageState::Anon | PageState::Frame) {
                        continue;
                    }
                    let is_huge = area.large_at(address).is_some();
                    let alike = (process.domain, slot.content, self.node(address));
                    let key = (alike, space, address);
                    pages.push((key, is_single, is_huge, area.no_zero));
                }
            }
        }
        pages.sort_unstable();
        let is_equal = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|at| pages.get(at).map(|((alike, ..), ..)| *alike));
            a.is_some() && a == b
        };
        let left = (0..pages.len()).filter(|&at| {
            let (((_, content, _), ..), is_single, is_huge, no_zero) = pages[at];
            let has_twin = is_equal(at, at + 1) || at > 0 && is_equal(at - 1, at);
            let is_zero = content == Content::ZERO && !no_zero;
            is_single && !is_huge && (has_twin || is_zero)
        });
        left.map(|at| {
            let (((domain, content, _), space, address), ..) = pages[at];
            (domain, content, space, address)
        })
        .collect()
    }

    /// All frames that are held.
    pub fn held(&self) -> impl Iterator<Item = (u32, FrameView)> {
        self.frames.from(1)
    }

    /// Counts the mappings in all page tables.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let mut audit = Audit::default();
        for (space, process) in self.processes.iter() {
            for area in &process.areas {
                for (page, slot) in area.slots() {
                    let is_right = match slot.state {
                        PageState::Frame => {
                            audit.count(slot.frame);
                            self.may_map(process.domain, &slot)
                        }
                        PageState::Zero => {
                            audit.zero_pages += 1;
                            slot.content == Content::ZERO
                        }
                        _ => true,
                    };
                    if !is_right {
                        audit.wrong = Some((space, area.start + page * PAGE_SIZE));
                    }
                }
            }
        }
        audit
    }

    fn may_map(&self, domain: u16, slot: &Slot) -> bool {
        let frame = self.frames.get(slot.frame);
        frame.is_some_and(|frame| frame.content == slot.content && frame.domain == domain)
    }
}

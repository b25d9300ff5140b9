//! khugepaged: the kernel makes huge pages of small ones.
//!
//! # Problem
//! Pages merged with the zero page can become memory again without a write of the process.
//!
//! # Approach
//! One pass over all mappings that had huge pages. A range becomes a huge page if no page of it is
//! merged with a frame, pinned or swapped out, at most `max_ptes_none` of its pages are the zero
//! page or not there, and at least one page is there.
//!
//! # Source
//! `hpage_collapse_scan_pmd()` of mm/khugepaged.c.

use uksm_policy::command::{PAGE_SIZE, PageState};

use super::Host;
use crate::memory::{HUGE_PAGES, Slot};

impl Host {
    /// Makes a huge page of each range that may become one; returns their number.
    pub fn collapse(&mut self, max_ptes_none: u64) -> u64 {
        let mut found = vec![];
        for (space, process) in self.processes.iter() {
            let areas = process.areas.iter().enumerate();
            for (at, area) in areas.filter(|(_, area)| area.folio_pages == HUGE_PAGES) {
                let bytes = HUGE_PAGES * PAGE_SIZE;
                let first = area.start.next_multiple_of(bytes);
                let small = area
                    .large
                    .iter()
                    .zip(0u64..)
                    .filter(|(is_huge, _)| !**is_huge);
                for (_, block) in small {
                    let start = first + block * bytes;
                    let pages = (0..HUGE_PAGES).map(|page| area.get(area.page(start) + page));
                    let (mut none, mut is_free) = (0, true);
                    for slot in pages {
                        match slot.state {
                            PageState::None | PageState::Zero => none += 1,
                            PageState::Anon => is_free &= !slot.pinned,
                            _ => is_free = false,
                        }
                    }
                    if is_free && none <= max_ptes_none && none < HUGE_PAGES {
                        found.push((space, at, start));
                    }
                }
            }
        }
        for &(space, at, start) in &found {
            for page in 0..HUGE_PAGES {
                let address = start + page * PAGE_SIZE;
                let content = self.page(space, address).expect("it is mapped").content;
                self.put(space, address, Slot::anon(content));
            }
            let area = &mut self.process(space).areas[at];
            let first = area.start.next_multiple_of(HUGE_PAGES * PAGE_SIZE);
            let block = usize::try_from((start - first) / PAGE_SIZE / HUGE_PAGES);
            area.large[block.expect("a block of the mapping")] = true;
        }
        found.len() as u64
    }
}

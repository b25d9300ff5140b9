//! Chances to share: the time from which pages could be merged, and the time of their merge.
//!
//! # Problem
//! While contents come and go, the value of a deduplicator is the memory saved over time, as a
//! share of the memory that could have been saved, and the time that pages wait for it (XLH §5.1,
//! §5.2). Counting by looks at all pages takes longer than the rest of a simulation, and misses
//! contents that come and go between two looks.
//!
//! # Approach
//! Each change of a page passes here. A page's *chance* begins when another page holds the same
//! contents and the page is not in a frame: at its own write, or, for the first page of these
//! contents, at the write of the second. The chance is taken when the page comes into a frame, and
//! missed when the page or all others are written before that. The saved pages and the saveable
//! pages are added up over time at each change: the latter is the oracle. Contents of new mappings,
//! and processes that end, are not seen: such contents must be those of no other page.

use std::collections::HashMap;

use uksm_policy::command::Nanos;

use crate::Content;
use crate::memory::PageAddress;

/// The results of chances.
#[derive(Debug, Clone, Default)]
pub struct SharingChances {
    /// The pages that hold each of the contents that were written.
    holders: HashMap<Content, Vec<PageAddress>>,
    /// Start of the chance of each page that could be merged and is not.
    open: HashMap<PageAddress, Nanos>,
    /// Waiting times of the merged pages.
    waits: Vec<Nanos>,
    missed: u64,
    /// Pages that could be saved now.
    mergeable: u64,
    /// Time of the last change.
    pub(super) changed: Nanos,
    /// Pages times nanoseconds.
    saved_area: u128,
    mergeable_area: u128,
}

impl SharingChances {
    /// Pages that could be saved now.
    #[must_use]
    pub fn mergeable(&self) -> u64 {
        self.mergeable
    }

    /// Pages that were merged, each time that they were.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.waits.len() as u64
    }

    /// All chances.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.taken() + self.missed + self.open.len() as u64
    }

    /// The median wait of a chance until it is taken; it is infinite for chances that were not
    /// taken.
    #[must_use]
    pub fn median_wait(&self) -> Option<Nanos> {
        let middle = usize::try_from(self.all() / 2).expect("chances are in memory");
        let mut waits = self.waits.clone();
        (middle < waits.len()).then(|| *waits.select_nth_unstable(middle).1)
    }

    /// Pages that were saved, and that could have been, times seconds.
    #[must_use]
    pub fn areas(&self) -> (f64, f64) {
        [self.saved_area, self.mergeable_area]
            .map(|area| area as f64 / 1e9)
            .into()
    }

    /// Adds the time since the last change, at this saving.
    pub(super) fn pass(&mut self, now: Nanos, saved: u64) {
        let time = u128::from(now.saturating_sub(self.changed));
        self.saved_area += time * u128::from(saved);
        self.mergeable_area += time * u128::from(self.mergeable);
        self.changed = now.max(self.changed);
    }

    /// A page comes into a frame.
    pub(super) fn merged(&mut self, place: PageAddress, now: Nanos) {
        if let Some(since) = self.open.remove(&place) {
            self.waits.push(now - since);
        }
    }

    /// A page holds this from now on. `is_shared`: another page is in a frame.
    pub(super) fn comes(
        &mut self,
        place: PageAddress,
        content: Content,
        now: Nanos,
        is_shared: impl Fn(PageAddress) -> bool,
    ) {
        let holders = self.holders.entry(content).or_default();
        holders.push(place);
        if holders.len() == 1 {
            return;
        }
        self.mergeable += 1;
        self.open.insert(place, now);
        if let &[first, _] = &holders[..]
            && !is_shared(first)
        {
            self.open.insert(first, now);
        }
    }

    /// A page no longer holds this.
    pub(super) fn goes(&mut self, place: PageAddress, content: Content) {
        let Some(holders) = self.holders.get_mut(&content) else {
            return;
        };
        let Some(at) = holders.iter().position(|&holder| holder == place) else {
            return;
        };
        holders.swap_remove(at);
        let close = |open: &mut HashMap<PageAddress, Nanos>, page: &PageAddress| {
            u64::from(open.remove(page).is_some())
        };
        self.missed += close(&mut self.open, &place);
        match &holders[..] {
            [] => {
                self.holders.remove(&content);
                return;
            }
            [last] => self.missed += close(&mut self.open, last),
            _ => {}
        }
        self.mergeable -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;
    use crate::{Costs, Fill};
    use uksm_policy::command::PAGE_SIZE;

    const SECOND: Nanos = 1_000_000_000;

    /// A host with two pages that differ, and where they are.
    fn host() -> (Host, [PageAddress; 2]) {
        let mut host = Host::new(1, Costs::default());
        let space = host.spawn(1);
        let start = 1 << 30;
        let contents = |page| Content::new(100 + page);
        host.map(space, start, 2, 1, &Fill::Dense(&contents));
        host.count_chances();
        (host, [(space, start), (space, start + PAGE_SIZE)])
    }

    fn write(host: &mut Host, second: u64, (space, address): PageAddress, content: u64) {
        host.at(second * SECOND);
        host.write(space, address, Content::new(content));
    }

    #[test]
    fn a_chance_begins_with_the_second_page_and_ends_when_both_are_in_a_frame() {
        let (mut host, pages) = host();
        write(&mut host, 1, pages[0], 7);
        write(&mut host, 3, pages[1], 7);
        host.at(5 * SECOND);
        host.merge_pair(pages);
        host.at(9 * SECOND);
        let chances = host.chances().unwrap();
        assert_eq!((chances.all(), chances.taken()), (2, 2));
        assert_eq!(chances.median_wait(), Some(2 * SECOND));
        assert_eq!(chances.areas(), (4.0, 6.0));
        // The frame stays, the chance is over; the other page then comes back to it.
        write(&mut host, 10, pages[1], 8);
        write(&mut host, 20, pages[1], 7);
        let frame = host.frame_of(pages[0].0, pages[0].1).unwrap();
        host.at(24 * SECOND);
        host.merge_with(pages[1], frame);
        host.at(30 * SECOND);
        let chances = host.chances().unwrap();
        assert_eq!((chances.all(), chances.taken()), (3, 3));
        assert_eq!(chances.areas(), (4.0 + 1.0 + 6.0, 6.0 + 1.0 + 10.0));
    }

    #[test]
    fn a_page_that_is_written_before_it_is_merged_is_a_chance_missed() {
        let (mut host, pages) = host();
        write(&mut host, 1, pages[0], 7);
        write(&mut host, 3, pages[1], 7);
        write(&mut host, 4, pages[0], 9);
        host.at(5 * SECOND);
        let chances = host.chances().unwrap();
        assert_eq!((chances.all(), chances.taken()), (2, 0));
        assert_eq!((chances.median_wait(), chances.mergeable()), (None, 0));
        assert_eq!(chances.areas(), (0.0, 1.0));
    }
}

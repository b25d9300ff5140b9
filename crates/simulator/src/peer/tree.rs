//! The unstable tree of in-kernel KSM, unchanged: ordered by the contents of its pages, which
//! change.
//!
//! # Problem
//! A page in this tree may be written at any time. The search compares with the *present* contents
//! of a node's page, so a written page misleads searches, and pages below it may not be found any
//! more, though they have not changed (XLH §4.4, Figure 5). A table in place of the tree does not
//! show that.
//!
//! # Approach
//! A red-black tree over places of pages. A search gets a function that returns the present
//! contents of a page, and goes down as `memcmp` would order the pages; a page that is gone ends
//! it. A page without an equal one is inserted where the search ended, and the tree is balanced by
//! the colours of its nodes alone ([`balance`]), as the kernel's is. A page is removed by its node,
//! wherever that is now: ksmd does so when it comes to the page again.
//!
//! The share of its pages that can still be found is [`UnstableTree::reachability`], the paper's
//! measure: each page is searched for by its present contents, and counts if the search ends at it
//! or at an equal one.
//!
//! # Source
//! `mm/ksm.c` of Linux 6.12: `unstable_tree_search_insert`, `remove_rmap_item_from_tree`; XLH §4.4
//! and §5.4.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::memory::PageAddress;

mod balance;

use balance::{Nodes, Side};

/// The result of a search for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// A page with the same contents.
    Twin(PageAddress),
    /// No page: the page is in the tree now.
    Nothing,
    /// A page that is gone: the search was given up.
    Gone,
}

/// The number of pages of an index that can be found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reachability {
    /// Pages in the index.
    pub pages: u64,
    /// Pages that a search for their present contents finds: the paper's measure.
    pub found: u64,
    /// Pages with the contents that they had when they were inserted.
    pub unchanged: u64,
    /// Unchanged pages that are found.
    pub unchanged_found: u64,
}

impl Reachability {
    /// Adds the counts of another index, or of another time.
    pub(crate) fn add(&mut self, other: Reachability) {
        self.pages += other.pages;
        self.found += other.found;
        self.unchanged += other.unchanged;
        self.unchanged_found += other.unchanged_found;
    }

    /// Counts one page.
    pub(crate) fn count(&mut self, is_found: bool, is_unchanged: bool) {
        self.pages += 1;
        self.found += u64::from(is_found);
        self.unchanged += u64::from(is_unchanged);
        self.unchanged_found += u64::from(is_found && is_unchanged);
    }
}

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct UnstableTree {
    nodes: Nodes,
    by_place: HashMap<PageAddress, u32>,
}

impl UnstableTree {
    /// Pages in the tree.
    pub(crate) fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Forgets all pages.
    pub(crate) fn clear(&mut self) {
        self.nodes = Nodes::default();
        self.by_place.clear();
    }

    /// Removes a page, if it is there.
    pub(crate) fn remove(&mut self, place: PageAddress) -> bool {
        let node = self.by_place.remove(&place);
        if let Some(node) = node {
            self.nodes.erase(node);
        }
        node.is_some()
    }

    /// Searches for a page that holds `key`, and inserts this one at the end of the search if there
    /// is none; returns the number of comparisons, too. `holds` returns the present contents of a
    /// page.
    pub(crate) fn search_insert(
        &mut self,
        place: PageAddress,
        key: u64,
        holds: impl Fn(PageAddress) -> Option<u64>,
    ) -> (Met, u32) {
        let (end, compared) = self.search(key, holds);
        let met = match end {
            End::At(node) => Met::Twin(self.nodes.get(node).place),
            End::Gone => Met::Gone,
            End::Below(parent, side) => {
                let node = self.nodes.insert(place, key, parent, side);
                self.by_place.insert(place, node);
                Met::Nothing
            }
        };
        (met, compared)
    }

    /// The number of pages found by their present contents: of all, or of an even part of them if
    /// there are more than `most`.
    pub(crate) fn reachability(
        &self,
        holds: impl Fn(PageAddress) -> Option<u64>,
        most: usize,
    ) -> Reachability {
        let mut all = Reachability::default();
        let is_there = |(node, place): &(u32, PageAddress)| self.by_place.get(place) == Some(node);
        let pages = self.nodes.places().filter(is_there);
        for (node, _) in pages.step_by(self.len().div_ceil(most).max(1)) {
            let held = self.nodes.get(node);
            let now = holds(held.place);
            let is_found = now.is_some_and(|key| matches!(self.search(key, &holds).0, End::At(_)));
            all.count(is_found, now == Some(held.entered));
        }
        all
    }

    fn search(&self, key: u64, holds: impl Fn(PageAddress) -> Option<u64>) -> (End, u32) {
        let mut end = End::Below(balance::NIL, Side::Left);
        let mut node = self.nodes.root();
        let mut compared = 0;
        while node != balance::NIL {
            let Some(other) = holds(self.nodes.get(node).place) else {
                return (End::Gone, compared);
            };
            compared += 1;
            let side = match key.cmp(&other) {
                Ordering::Equal => return (End::At(node), compared),
                Ordering::Less => Side::Left,
                Ordering::Greater => Side::Right,
            };
            end = End::Below(node, side);
            node = self.nodes.child(node, side);
        }
        (end, compared)
    }
}

/// The end of a search.
#[derive(Debug, Clone, Copy)]
enum End {
    At(u32),
    Below(u32, Side),
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::command::SpaceId;

    fn place(page: u64) -> PageAddress {
        (SpaceId(1), page)
    }

    fn tree(keys: &[u64]) -> UnstableTree {
        let mut tree = UnstableTree::default();
        for (page, &key) in (0..).zip(keys) {
            let holds = |(_, page): PageAddress| Some(keys[usize::try_from(page).unwrap()]);
            assert_eq!(tree.search_insert(place(page), key, holds).0, Met::Nothing);
        }
        tree
    }

    /// The tree of XLH Figure 5.
    #[test]
    fn a_page_below_one_that_was_written_is_not_found_and_entered_again() {
        let keys = [50, 30, 70, 40];
        let mut tree = tree(&keys);
        let mut now = keys;
        now[1] = 45;
        let holds = |(_, page): PageAddress| now.get(usize::try_from(page).unwrap()).copied();
        let found = tree.reachability(holds, 9);
        assert_eq!((found.pages, found.found), (4, 3));
        assert_eq!((found.unchanged, found.unchanged_found), (3, 2));
        // 40 is to the right of the former 30, and is searched for to the left of the present 45.
        assert_eq!(tree.search_insert(place(9), 40, holds).0, Met::Nothing);
        assert_eq!(tree.len(), 5);
        // Without the written page the tree is in order again.
        tree.remove(place(1));
        tree.remove(place(9));
        let found = tree.reachability(holds, 9);
        assert_eq!((found.pages, found.found), (3, 3));
    }

    #[test]
    fn a_page_that_is_gone_ends_the_search() {
        let mut tree = tree(&[50, 30, 70]);
        let holds = |(_, page): PageAddress| (page > 0).then_some(20 * page + 10);
        assert_eq!(tree.search_insert(place(9), 80, holds).0, Met::Gone);
        assert_eq!(tree.len(), 3);
    }

    #[test]
    fn an_equal_page_is_met_and_not_entered_twice() {
        let mut tree = tree(&[50, 30, 70]);
        let holds =
            |(_, page): PageAddress| [50, 30, 70].get(usize::try_from(page).unwrap()).copied();
        let (met, compared) = tree.search_insert(place(9), 70, holds);
        assert_eq!((met, compared), (Met::Twin(place(2)), 2));
        assert_eq!(tree.len(), 3);
    }
}

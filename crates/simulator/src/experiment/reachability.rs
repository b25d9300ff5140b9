//! How much of an index can be found whose pages change: XLH's measure of the unstable tree.
//!
//! # Problem
//! A tree that is ordered by what pages hold loses pages that have not changed when others do: they
//! lie below one that sends searches the wrong way now (XLH §4.4). The paper proposes a table of
//! hashes instead, where nothing lies below anything, and finds it as good as a tree of read-only
//! pages (§5.4). uksm's index is such a table.
//!
//! # Approach
//! The tree, the tree with XLH's remedy, from which a page is taken when it is written, and the
//! index are given the same pages in the same order, as in one scan. Between any two, a page that
//! is in already may be written, so often that a given share of all has changed when the last one
//! comes. Then each page is searched for by what it holds now, and counts as found if it is met
//! itself or an equal one (§5.4, Table 4). A page that was written is not found in any, so those
//! that have not changed are counted by themselves: they are what a deduplicator could still merge.
//! The index is uksm's own, with room for all pages; a hash that meets another page by chance is
//! not counted as found.
//!
//! # Source
//! XLH §5.4.

use uksm_policy::RegionId;
use uksm_policy::command::SpaceId;
use uksm_policy::hash::{SplitMix64, mix};
use uksm_policy::lookup::{Layout, Place, Unmerged};

use super::measurable::{found, named};
use super::{Case, Setup};
use crate::peer::Reachability;
use crate::peer::tree::UnstableTree;
use crate::result::Measured;

/// Pages that are entered: as many as two guests of 128 MiB have.
const PAGES: u64 = 1 << 16;
/// Bits that name a page, and a region of as many.
const PAGE_BITS: u32 = 16;
const REGION_BITS: u32 = 4;

/// What pages are entered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexed {
    /// KSM's unstable tree.
    Tree,
    /// The same with XLH's remedy: a page that is written is taken out.
    ReadOnlyTree,
    /// uksm's index of unmerged pages.
    Index,
}

impl Indexed {
    /// All of them.
    pub(super) const ALL: [Indexed; 3] = [Indexed::Tree, Indexed::ReadOnlyTree, Indexed::Index];

    /// The name of the variant.
    pub(super) fn name(self) -> &'static str {
        match self {
            Indexed::Tree => "unstable-tree",
            Indexed::ReadOnlyTree => "read-only-tree",
            Indexed::Index => "uksm-index",
        }
    }
}

/// Enters pages of which a share changes meanwhile; how many can be found in the end.
///
/// # Panics
/// If more than 95 % are to change.
#[must_use]
pub fn reachability(what: Indexed, changed_percent: u64, seed: u64) -> Reachability {
    assert!(changed_percent <= 95, "{changed_percent} %");
    let mut tree = UnstableTree::default();
    let mut index = Unmerged::with_bytes(1 << 16, Layout::new(PAGE_BITS, REGION_BITS));
    index.fit(PAGES, usize::MAX);
    let mut random = SplitMix64::new(seed);
    let first = |page: u64| mix(seed ^ mix(page));
    let mut now: Vec<u64> = vec![];
    let place = |page: u64| Place {
        region: RegionId(1),
        page: u32::try_from(page).expect("a page of the region"),
    };
    let at = |page: u64| usize::try_from(page).expect("a page in memory");
    let mut changed = 0;
    for page in 0..PAGES {
        now.push(first(page));
        match what {
            Indexed::Tree | Indexed::ReadOnlyTree => {
                let holds = |(_, page): (SpaceId, u64)| now.get(at(page)).copied();
                tree.search_insert((SpaceId(1), page), first(page), holds);
            }
            Indexed::Index => {
                index.look_up(first(page), place(page), 0);
            }
        }
        while changed * 100 < changed_percent * page {
            // One that has not changed yet.
            let written = random.below(page + 1);
            if now[at(written)] == first(written) {
                now[at(written)] = mix(first(written) ^ 1);
                if what == Indexed::ReadOnlyTree {
                    tree.remove((SpaceId(1), written));
                }
                changed += 1;
            }
        }
    }
    if what != Indexed::Index {
        return tree.reachability(|(_, page)| now.get(at(page)).copied(), at(PAGES));
    }
    let mut all = Reachability::default();
    for (page, &key) in (0..).zip(&now) {
        let found = index.find(key, 0);
        let is_found = found.is_some_and(|(found, _)| now[found.page as usize] == key);
        all.count(is_found, key == first(page));
    }
    all
}

/// The figures of one of them in a case.
pub(super) fn measured(what: Indexed, case: &Case, setup: &Setup) -> Measured {
    let reachability = reachability(what, case.changed_percent, setup.seed);
    let mut figures = named(found(reachability));
    figures.insert("indexed_pages".to_owned(), reachability.pages as f64);
    Measured {
        name: what.name().to_owned(),
        case: case.name.clone(),
        figures,
        ..Measured::default()
    }
}

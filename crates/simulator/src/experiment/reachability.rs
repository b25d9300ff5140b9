//! The share of an index with changing pages that can be found: XLH's measure of the unstable tree.
//!
//! # Problem
//! A tree ordered by the contents of pages loses unchanged pages when others change: they lie below
//! one that now misleads searches (XLH §4.4). The paper proposes a table of hashes instead, where
//! no page lies below another, and finds it as good as a tree of read-only pages (§5.4). uksm's
//! index is such a table.
//!
//! # Approach
//! The tree, the tree with XLH's remedy, from which a written page is removed, and the index are
//! given the same pages in the same order, as in one scan. Between any two, an inserted page may be
//! written, at a rate such that a given share of all has changed when the last one is inserted.
//! Then each page is searched for by its present contents, and counts as found if the search ends
//! at it or at an equal one (§5.4, Table 4). A written page is not found in any, so unchanged pages
//! are counted by themselves: a deduplicator could still merge them. The index is uksm's own, with
//! room for all pages; a hash that meets another page by chance is not counted as found.
//!
//! # Source
//! XLH §5.4.

use uksm_policy::RegionId;
use uksm_policy::command::SpaceId;
use uksm_policy::lookup::{Layout, RegionPage, UnmergedIndex};
use uksm_policy::mix::{SplitMix64, mix};
use uksm_results::report::Measured;

use super::case::{Case, Indexed};
use super::measurable::{found, named};
use super::setup::Setup;
use crate::peer::Reachability;
use crate::peer::tree::UnstableTree;

/// Pages that are inserted: as many as two guests of 128 MiB have.
const PAGES: u64 = 1 << 16;
/// Bits of a page's number, and of a region's.
const PAGE_BITS: u32 = 16;
const REGION_BITS: u32 = 4;

/// Inserts pages of which a share changes meanwhile; returns the number that can be found at the
/// end.
///
/// # Panics
/// If more than 95 % are to change.
#[must_use]
pub fn reachability(what: Indexed, changed_percent: u64, seed: u64) -> Reachability {
    assert!(changed_percent <= 95, "{changed_percent} %");
    let mut tree = UnstableTree::default();
    let mut index = UnmergedIndex::with_bytes(1 << 16, Layout::new(PAGE_BITS, REGION_BITS));
    index.fit(PAGES, usize::MAX);
    let mut random = SplitMix64::new(seed);
    let first = |page: u64| mix(seed ^ mix(page));
    let mut now: Vec<u64> = vec![];
    let place = |page: u64| RegionPage {
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
            // A page that has not changed yet.
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

/// The figures of an index in a case.
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

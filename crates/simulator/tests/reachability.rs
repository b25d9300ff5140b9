//! The share of an index with changing pages that can be found (XLH §4.4, §5.4).

use uksm_simulator::experiment::{Indexed, reachability};
use uksm_simulator::peer::Reachability;

fn both(changed_percent: u64) -> [Reachability; 2] {
    let both = [Indexed::Tree, Indexed::Index];
    let found = both.map(|what| reachability(what, changed_percent, 3));
    eprintln!("{changed_percent} %: {found:?}");
    for one in found {
        let changed = one.pages - one.unchanged;
        let percent = changed * 100 / one.pages;
        assert!(changed_percent.abs_diff(percent) <= 1, "{one:?}");
    }
    found
}

/// The measure itself is not biased against the tree.
#[test]
fn where_no_page_changes_all_of_the_tree_is_found() {
    let [tree, index] = both(0);
    assert_eq!((tree.pages, tree.found), (1 << 16, 1 << 16));
    assert!(index.found * 1000 >= index.pages * 995, "{index:?}");
}

#[test]
fn the_tree_loses_pages_that_have_not_changed_and_the_index_does_not() {
    for (changed, most) in [(1, 97), (5, 85), (20, 60), (50, 40)] {
        let [tree, index] = both(changed);
        assert!(
            tree.unchanged_found * 100 <= tree.unchanged * most,
            "{changed} %: {tree:?}"
        );
        assert!(
            index.unchanged_found * 1000 >= index.unchanged * 995,
            "{changed} %: {index:?}"
        );
    }
}

/// XLH's remedy: pages left in the tree are found, and written pages are no longer there.
#[test]
fn a_tree_from_which_written_pages_are_taken_is_whole() {
    let found = reachability(Indexed::ReadOnlyTree, 20, 3);
    assert_eq!(found.found, found.pages);
    assert_eq!(found.unchanged, found.pages);
    assert!(
        (80..81).contains(&(found.pages * 100 / (1 << 16))),
        "{found:?}"
    );
}

/// Neither finds a written page, so the paper's measure cannot exceed the share of unchanged pages.
#[test]
fn what_was_written_is_found_in_neither() {
    for found in both(20) {
        let written = found.found - found.unchanged_found;
        assert!(written * 50 <= found.pages, "{found:?}");
    }
}

//! Restrictions of merging: none within one process, or only contents of several processes; and the
//! merges that remain.

mod scene;

use std::collections::{BTreeMap, BTreeSet};

use scene::*;
use uksm_policy::command::{PAGE_SIZE, SpaceId};
use uksm_policy::params::{Contents, Params};
use uksm_simulator::{Content, Fill, Host, Run};

/// Processes with the same contents, each `copies` times, one after the other.
fn copies(processes: u64, pages: u64, copies: u64) -> (Host, Vec<SpaceId>) {
    let mut host = host();
    let spaces = (0..processes).map(|number| {
        let space = host.spawn(number);
        let same = |page: u64| Content::new(page % pages + 1);
        host.map(space, base(1), copies * pages, HEAP, &Fill::Dense(&same));
        space
    });
    let spaces = spaces.collect();
    (host, spaces)
}

/// Frames of the pages of a space.
fn frames(run: &Run, space: SpaceId, pages: u64) -> Vec<u32> {
    let frame = |page: u64| run.host.frame_of(space, base(1) + page * PAGE_SIZE);
    (0..pages).filter_map(frame).collect()
}

/// Whether pages of a space share a frame.
fn is_shared_within(frames: &[u32]) -> bool {
    frames.iter().collect::<BTreeSet<_>>().len() < frames.len()
}

#[test]
fn with_between_each_page_shares_with_other_processes_only() {
    for (processes, times) in [(2, 1), (2, 3), (3, 2)] {
        let pages = 512;
        let (host, spaces) = copies(processes, pages, times);
        let params = Params {
            merge: Contents::Between,
            ..full()
        };
        let mut run = run(params, host);
        run.quietly_until(60 * S);
        eprintln!("{processes} processes, {times} times: {}", show(&run));
        assert_balanced(&run);
        for &space in &spaces {
            let frames = frames(&run, space, times * pages);
            assert!(!is_shared_within(&frames), "{processes} {times}");
        }
        let ideal = (processes - 1) * times * pages;
        let saved = run.host.saved();
        assert!(saved * 100 >= ideal * 95, "{saved} of {ideal}");
    }
}

#[test]
fn a_process_alone_shares_nothing_with_between() {
    let (host, _) = copies(1, 512, 4);
    let params = Params {
        merge: Contents::Between,
        ..full()
    };
    let mut run = run(params, host);
    run.quietly_until(20 * S);
    assert_eq!((run.host.saved(), run.host.frames()), (0, 0));
    assert_eq!(
        run.engine.report().outcomes.tried,
        0,
        "nothing is tried in vain"
    );
}

#[test]
fn what_two_processes_hold_is_not_merged_where_three_must() {
    for needed in [3, 5] {
        let mut host = host();
        let mut spaces = vec![];
        for number in 0..u64::from(needed) {
            let space = host.spawn(number);
            // Contents of all processes, and of all but one.
            let of_all = |page: u64| Content::new(page + 1);
            host.map(space, base(1), 512, HEAP, &Fill::Dense(&of_all));
            let of_some = |page: u64| Content::new(1_000_000 + page);
            if number > 0 {
                host.map(space, base(2), 512, HEAP, &Fill::Dense(&of_some));
            }
            spaces.push(space);
        }
        let params = Params {
            merge_spaces: needed,
            ..full()
        };
        let mut run = run(params, host);
        run.quietly_until(60 * S);
        eprintln!("{needed}: {}", show(&run));
        assert_balanced(&run);
        let mut sharers: BTreeMap<u32, u64> = BTreeMap::new();
        for &space in &spaces {
            for page in 0..512 {
                let of_some = run.host.frame_of(space, base(2) + page * PAGE_SIZE);
                assert_eq!(of_some, None, "{needed}: page {page} of {space:?}");
            }
            for frame in frames(&run, space, 512) {
                *sharers.entry(frame).or_default() += 1;
            }
        }
        let whole = sharers.values().filter(|&&n| n == u64::from(needed));
        assert!(whole.count() >= 500, "{} frames", sharers.len());
    }
}

#[test]
fn a_page_that_comes_later_joins_what_enough_processes_hold() {
    let (host, _) = copies(3, 256, 1);
    let params = Params {
        merge_spaces: 3,
        ..full()
    };
    let mut run = run(params, host);
    run.quietly_until(30 * S);
    assert_eq!(run.host.saved(), 2 * 256);
    let late = run.host.spawn(9);
    let same = |page: u64| Content::new(page % 256 + 1);
    run.host
        .map(late, base(1), 2 * 256, HEAP, &Fill::Dense(&same));
    run.quietly_until(60 * S);
    let saved = run.host.saved();
    assert!(saved >= 2 * 256 + 500, "{saved}");
}

#[test]
fn both_rules_hold_at_once() {
    let (host, spaces) = copies(3, 256, 2);
    let params = Params {
        merge: Contents::Between,
        merge_spaces: 3,
        ..full()
    };
    let mut run = run(params, host);
    run.quietly_until(60 * S);
    for &space in &spaces {
        assert!(!is_shared_within(&frames(&run, space, 512)));
    }
    let saved = run.host.saved();
    assert!(saved * 100 >= 2 * 512 * 95, "{saved} of {}", 2 * 512);
}

#[test]
fn where_the_index_is_too_small_for_all_the_rules_hold_too() {
    for (merge, needed) in [(Contents::Between, 1), (Contents::All, 3)] {
        let pages = 16 * MIB;
        let (host, spaces) = copies(3, pages, 1);
        let params = Params {
            merge,
            merge_spaces: needed,
            index_bytes: Some(1 << 16),
            ..full()
        };
        let mut run = run(params, host);
        run.quietly_until(60 * S);
        eprintln!("{merge:?} {needed}: {}", show(&run));
        let saved = run.host.saved();
        assert!(saved >= pages / 2, "{saved} of {}", 2 * pages);
        for &space in &spaces {
            assert!(!is_shared_within(&frames(&run, space, pages)));
        }
    }
}

//! Hosts of known contents: the merges required of the engine, their time, and their cost.

mod scene;

use scene::*;
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::{Governor, Params, Thp};
use uksm_simulator::workload::Crowd;
use uksm_simulator::{Alone, Content, Costs, Driven, Fill, Host, World};

#[test]
fn clones_show_within_two_rounds_and_merge_in_six_seconds() {
    for mib in [128, 512] {
        let mut run = run(full(), clones(mib * MIB, 0));
        let (time, cpu) = merge(&mut run, 95, 20 * S);
        assert!(time < 4 * S, "{mib} MiB took {} ms", time / MS);
        // 4.6 µs a merged page of either side and two samples are the floor.
        let floor = mib * MIB * 2 * 5;
        assert!(
            cpu / 1000 < floor * 3 / 2,
            "{} µs, floor {floor} µs",
            cpu / 1000
        );
    }
}

#[test]
fn clones_at_other_offsets_merge_in_six_seconds() {
    let mut run = run(full(), clones(128 * MIB, 37 * PAGE_SIZE));
    let (time, _) = merge(&mut run, 95, 20 * S);
    assert!(time < 6 * S, "{} ms", time / MS);
}

#[test]
fn clones_of_different_size_and_place_inside_are_found() {
    // The contents begin 5000 pages later in the second, which is a third larger.
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    host.map(a, base(1), 32768, HEAP, &Fill::Dense(&unique(1)));
    let shifted = |page: u64| {
        if page < 5000 {
            unique(2)(page)
        } else {
            unique(1)(page - 5000)
        }
    };
    host.map(b, base(2), 43000, HEAP, &Fill::Dense(&shifted));
    let mut run = run(full(), host);
    let (time, _) = merge(&mut run, 95, 60 * S);
    assert!(time < 20 * S, "{} ms", time / MS);
}

#[test]
fn identical_pages_among_random_ones_merge_and_random_ones_are_left_alone() {
    let mut host = host();
    let space = host.spawn(1);
    host.map(
        space,
        base(1),
        128 * MIB,
        HEAP,
        &Fill::Dense(&|_| Content::new(7)),
    );
    host.map(space, base(2), 128 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let mut run = run(full(), host);
    let (time, cpu) = merge(&mut run, 95, 20 * S);
    assert!(time < 4 * S, "{} ms", time / MS);
    assert!(
        cpu < 128 * MIB * 8000,
        "{} µs a page saved",
        cpu / 1000 / (128 * MIB)
    );
}

#[test]
fn six_parts_of_sparse_memory_cost_little() {
    let mut host = host();
    let space = host.spawn(1);
    for part in 0..6 {
        host.map(
            space,
            base(part),
            128 * MIB,
            HEAP,
            &Fill::Dense(&unique(part)),
        );
    }
    host.map(
        space,
        base(7),
        128 * MIB,
        HEAP,
        &Fill::Dense(&|_| Content::new(7)),
    );
    let mut run = run(full(), host);
    let (time, cpu) = merge(&mut run, 95, 20 * S);
    assert!(time < 6 * S, "{} ms", time / MS);
    assert!(
        cpu < 128 * MIB * 8000,
        "{} ns a page saved",
        cpu / (128 * MIB)
    );
}

#[test]
fn zero_pages_go_to_the_zero_page() {
    let mut host = host();
    let space = host.spawn(1);
    host.map(
        space,
        base(1),
        64 * MIB,
        HEAP,
        &Fill::Dense(&|_| Content::ZERO),
    );
    let mut run = run(full(), host);
    merge(&mut run, 99, 20 * S);
    let report = run.engine.report();
    assert!(report.merged.zero >= 64 * MIB * 95 / 100);
    assert_eq!(report.frames.frames, 0);
}

#[test]
fn duplicates_within_and_across_processes_are_distinguished() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    let twice = |page: u64| unique(1)(page / 2);
    host.map(a, base(1), 16384, HEAP, &Fill::Dense(&twice));
    host.map(b, base(2), 16384, HEAP, &Fill::Dense(&unique(3)));
    let mut run = run(full(), host);
    merge(&mut run, 95, 30 * S);
    let merged = run.engine.report().merged;
    assert!(
        merged.same_process > 7000 && merged.cross_process == 0 && merged.zero == 0,
        "{merged:?}"
    );
}

#[test]
fn copies_that_appear_late_merge_within_five_seconds() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    host.map(a, base(1), 100 * MIB, HEAP, &Fill::Dense(&unique(1)));
    host.map(b, base(1), MIB, HEAP, &Fill::Dense(&unique(2)));
    let mut run = run(full(), host);
    run.quietly_until(40 * S);
    assert_eq!(run.host.saved(), 0);
    run.host
        .map(b, base(2), 100 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let end = run.now() + 20 * S;
    let (time, _) = merge(&mut run, 90, end);
    assert!(time < 5 * S, "{} ms", time / MS);
}

#[test]
fn copies_that_fill_an_old_empty_mapping_merge_within_five_seconds() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    host.map(a, base(1), 100 * MIB, HEAP, &Fill::Dense(&unique(1)));
    host.map(b, base(2), 100 * MIB, HEAP, &Fill::Sparse(&[]));
    // Enough memory beside it that chance alone would not find it.
    host.map(b, base(3), 6000 * MIB, HEAP, &Fill::Dense(&unique(2)));
    let mut run = run(full(), host);
    run.quietly_until(40 * S);
    assert_eq!(run.host.saved(), 0);
    for page in 0..100 * MIB {
        let address = base(2) + page * PAGE_SIZE;
        run.host.write(b, address, unique(1)(page));
    }
    let end = run.now() + 20 * S;
    let (time, _) = merge(&mut run, 90, end);
    assert!(time < 5 * S, "{} ms", time / MS);
}

/// Among thousands of calm processes the bottom level takes minutes for a pass: pages filled after
/// the sweep of their region must not wait for it.
#[test]
fn what_fills_the_last_holes_of_a_newcomer_is_merged_soon_among_many() {
    const PAGES: u64 = 64 * MIB;
    for seed in 1..=5 {
        let (begin, filling) = (20 * S, 3 * S);
        let crowd = Crowd::new(3000, PAGES, begin, filling, seed);
        let world = World::new(Host::new(seed, Costs::default()), vec![Box::new(crowd)]);
        let params = Params::governor(Governor::Medium);
        let driven = Driven::new(params, seed, 0).expect("a governor is accepted");
        let mut alone = Alone::new(world, driven);
        while alone.now() < begin {
            alone.turn();
        }
        let before = alone.world.host.saved();
        while alone.now() < begin + filling + 6 * S {
            alone.turn();
        }
        let saved = alone.world.host.saved() - before;
        assert!(saved * 100 >= PAGES * 98, "seed {seed}: {saved} pages");
    }
}

#[test]
fn huge_pages_are_split_where_that_pays() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    let few = |page: u64| {
        if page.is_multiple_of(10) {
            unique(1)(page)
        } else {
            unique(3)(page)
        }
    };
    let other = |page: u64| {
        if page.is_multiple_of(10) {
            unique(1)(page)
        } else {
            unique(4)(page)
        }
    };
    host.map(a, base(1), 32 * MIB, HEAP, &Fill::Huge(&unique(1)));
    host.map(b, base(1), 32 * MIB, HEAP, &Fill::Huge(&unique(1)));
    host.map(a, base(2), 32 * MIB, 2, &Fill::Huge(&few));
    host.map(b, base(2), 32 * MIB, 2, &Fill::Huge(&other));
    let mut run = run(full(), host);
    let wanted = 32 * MIB * 95 / 100;
    let time = run.until_done(20 * S, |host| host.saved() >= wanted);
    assert!(time.is_some(), "{}", show(&run));
    run.quietly_until(run.now() + 20 * S);
    eprintln!("huge: {} splits, {}", run.host.splits, show(&run));
    assert!(run.host.splits <= 33, "{} splits, 32 pay", run.host.splits);
}

#[test]
fn huge_pages_are_never_split_if_that_is_set() {
    let mut host = host();
    for space in 0..2 {
        let space = host.spawn(space);
        host.map(space, base(1), 16 * MIB, HEAP, &Fill::Huge(&unique(1)));
    }
    let mut run = run(
        Params {
            thp: Thp::Never,
            ..full()
        },
        host,
    );
    run.quietly_until(20 * S);
    assert_eq!((run.host.splits, run.host.saved()), (0, 0));
}

#[test]
fn a_new_engine_goes_on_with_the_frames_of_the_last() {
    let mut first = run(full(), clones(32 * MIB, 0));
    merge(&mut first, 95, 20 * S);
    let mut host = first.host;
    let late = host.spawn(5);
    host.map(late, base(6), 32 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let frames = host.frames();
    host.forget_reported();
    let mut second = run(full(), host);
    merge(&mut second, 95, 20 * S);
    assert!(
        second.host.frames() <= frames + 500,
        "{} and {frames}",
        second.host.frames()
    );
}

#[test]
fn frames_that_are_full_sooner_than_believed_get_a_second() {
    let mut host = host();
    host.sharer_limit = 100;
    let space = host.spawn(1);
    host.map(
        space,
        base(1),
        10_000,
        HEAP,
        &Fill::Dense(&|_| Content::new(3)),
    );
    let mut run = run(full(), host);
    run.quietly_until(60 * S);
    assert!(run.host.saved() >= 9_000, "{}", show(&run));
    assert_balanced(&run);
}

fn adaptive() -> Params {
    Params {
        strength: None,
        ..full()
    }
}

#[test]
fn similar_pages_keep_an_adaptive_strength_above_what_they_have_in_common() {
    let mut host = host();
    let space = host.spawn(1);
    let alike = |page: u64| Content::similar(page + 1, 5, 16);
    host.map(space, base(1), 64 * MIB, HEAP, &Fill::Dense(&alike));
    host.map(
        space,
        base(2),
        64 * MIB,
        HEAP,
        &Fill::Dense(&|page| unique(1)(page % (32 * MIB))),
    );
    let mut run = run(adaptive(), host);
    run.quietly_until(600 * S);
    eprintln!(
        "similar: {} false matches, {}",
        run.host.false_matches,
        show(&run)
    );
    assert!(run.engine.report().strength.lines > 16, "{}", show(&run));
    assert!(run.host.saved() > 30 * MIB, "{}", show(&run));
}

#[test]
fn distinct_pages_lower_an_adaptive_strength() {
    let mut run = run(adaptive(), clones(256 * MIB, 0));
    merge(&mut run, 95, 20 * S);
    run.quietly_until(60 * S);
    assert!(run.engine.report().strength.lines <= 4, "{}", show(&run));
}

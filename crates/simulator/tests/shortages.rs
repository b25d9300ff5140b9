//! Lack of memory, of readable mappings and of fresh mapping lists; and more memory than an engine
//! can follow.

mod scene;

use scene::*;
use uksm_policy::Command;
use uksm_policy::command::{PAGE_SIZE, SpaceId};
use uksm_policy::params::Params;
use uksm_simulator::{Content, Fill, Host, Run};

#[test]
fn calls_without_memory_are_tried_again_and_nothing_is_lost() {
    let mut run = run(full(), clones(64 * MIB, 0));
    run.host.no_memory_until = 3 * S;
    let mut short = 0;
    // During sampling, during merging, and during checks of frames.
    for percent in [1, 20, 50, 80] {
        let wanted = run.host.mergeable() * percent / 100;
        let end = run.now() + 30 * S;
        assert!(
            run.until_done(end, |host| host.saved() >= wanted).is_some(),
            "{}",
            show(&run)
        );
        let before = run.host.shortages;
        run.host.no_memory_until = run.now() + 5 * S;
        run.quietly_until(run.now() + 6 * S);
        short = run.host.shortages - before;
        assert!((1..20).contains(&short), "{short} calls in 5 s");
    }
    run.quietly_until(run.now() + 20 * S);
    let report = run.engine.report();
    assert_eq!(report.retry.retried, run.host.shortages);
    // The last pages of a region wait until it is swept again.
    assert!(
        report.merged.now * 100 >= 2 * 64 * MIB * 99,
        "{} pages of {}",
        report.merged.now,
        2 * 64 * MIB
    );
    eprintln!("{short} calls in the last 5 s without memory");
}

#[test]
fn mappings_that_cannot_be_read_stay_as_they_were() {
    let mut run = run(full(), clones(64 * MIB, 0));
    run.quietly_until(20 * S);
    let before = run.engine.report();
    assert!(before.merged.now * 100 >= 2 * 64 * MIB * 99);
    run.host.unreadable = true;
    run.quietly_until(run.now() + 60 * S);
    let after = run.engine.report();
    assert_eq!(
        (after.regions.regions, after.promotions.died_young),
        (before.regions.regions, before.promotions.died_young)
    );
    assert!(
        after.merged.now >= before.merged.now,
        "{} pages were merged, {} are",
        before.merged.now,
        after.merged.now
    );
    assert!(
        (1..400).contains(&after.spaces.unread_mappings),
        "{} reads",
        after.spaces.unread_mappings
    );
    run.host.unreadable = false;
    let more = Fill::Dense(&|_| Content::new(9));
    run.host.map(SpaceId(1), base(5), MIB, HEAP, &more);
    let end = run.now() + 30 * S;
    merge(&mut run, 99, end);
}

#[test]
fn a_listing_older_than_the_loss_of_a_mapping_does_not_bring_it_back() {
    let mut host = clones(64 * MIB, 0);
    host.mapping_list_life = 20 * S;
    let mut run = run(full(), host);
    run.quietly_until(5 * S);
    run.host.unmap(SpaceId(1), base(1));
    run.commands = Some(vec![]);
    run.quietly_until(19 * S);
    let asked = |run: &Run, of: SpaceId| {
        let commands = run.commands.as_ref().unwrap().iter();
        let asked = commands.filter(|command| match command {
            Command::Sample { runs, .. } => runs.iter().any(|run| run.space == of),
            Command::ListMappings(space) => *space == of,
            _ => false,
        });
        asked.count()
    };
    let wasted = asked(&run, SpaceId(1));
    assert!(wasted < 40, "{wasted} commands for what is gone");
    run.quietly_until(60 * S);
    assert!(run.engine.explain(SpaceId(1)).unwrap().regions.is_empty());
}

/// A process with `count` mappings of `pages`, empty but for `used` in the last.
fn reserving(host: &mut Host, count: u64, pages: u64, used: &[(u64, Content)]) -> SpaceId {
    let space = host.spawn(1);
    let distance = (pages * PAGE_SIZE + 1).next_power_of_two();
    for number in 1..=count {
        let used = if number == count { used } else { &[] };
        let start = number * distance;
        host.map(space, start, pages, HEAP, &Fill::Sparse(used));
    }
    space
}

#[test]
fn two_thousand_reservations_of_63_gib_stay_few_and_what_is_in_them_merges() {
    let mut host = host();
    let used: Vec<_> = (0..16 * MIB).map(|page| (page, unique(1)(page))).collect();
    reserving(&mut host, 2000, 63 << 18, &used);
    let other = host.spawn(2);
    host.map(other, base(1), 16 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let mut run = run(full(), host);
    let (time, _) = merge(&mut run, 95, 120 * S);
    let report = run.engine.report();
    eprintln!(
        "{} regions, {} sparse mappings, {} bytes, {} ms",
        report.regions.regions,
        report.spaces.sparse_mappings,
        report.region_memory.region_bytes,
        time / MS
    );
    assert!(
        report.regions.regions <= 1 << 16,
        "{} regions",
        report.regions.regions
    );
    assert!(
        report.region_memory.region_bytes < 32 << 20,
        "{}",
        report.region_memory.region_bytes
    );
    assert_eq!(
        (report.spaces.left_out_pages, report.spaces.crowded),
        (0, 0)
    );
}

#[test]
fn regions_beyond_the_bound_are_left_out_and_reported_until_there_is_room() {
    let few = Params {
        max_process_regions: 100,
        max_regions: 150,
        ..full()
    };
    let mut host = host();
    let spaces = [1, 2].map(|kind| {
        let space = host.spawn(kind);
        for number in 0..120 {
            let fill = Fill::Dense(&|_| Content::new(7));
            host.map(space, base(1) + (number << 20), 10, HEAP, &fill);
        }
        space
    });
    let mut run = run(few, host);
    run.quietly_until(20 * S);
    let report = run.engine.report();
    assert_eq!((report.regions.regions, report.spaces.crowded), (150, 2));
    assert_eq!(report.spaces.left_out_pages, (120 + 120 - 150) * 10);
    let of_one = run.engine.explain(spaces[0]).unwrap().regions.len();
    assert!(of_one <= 100, "{of_one} regions of one process");
    for number in 0..100 {
        run.host.unmap(spaces[0], base(1) + (number << 20));
    }
    run.quietly_until(40 * S);
    let report = run.engine.report();
    assert_eq!(
        (report.regions.regions, report.spaces.left_out_pages),
        (20 + 100, 20 * 10)
    );
    run.host.exit(spaces[1]);
    run.quietly_until(60 * S);
    let report = run.engine.report();
    assert_eq!(
        (
            report.regions.regions,
            report.spaces.left_out_pages,
            report.spaces.crowded
        ),
        (20, 0, 0)
    );
}

#[test]
fn the_reservations_of_every_process_are_looked_into() {
    let mut host = host();
    let used: Vec<_> = (0..100).map(|page| (page, unique(1)(page))).collect();
    let spaces: Vec<SpaceId> = (0..150)
        .map(|_| reserving(&mut host, 3, 1 << 26, &used))
        .collect();
    let mut run = run(full(), host);
    run.quietly_until(60 * S);
    for space in spaces {
        let explained = run.engine.explain(space).unwrap();
        assert_eq!(explained.sparse.len(), 3);
        assert!(!explained.regions.is_empty(), "{space:?} {}", show(&run));
    }
}

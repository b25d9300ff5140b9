//! Limits of the engine: pages that it must leave alone, budgets, bounds, repeatability.

mod scene;

use scene::*;
use uksm_policy::command::{Command, Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::params::{Governor, Params};
use uksm_policy::report::Standing;
use uksm_simulator::workload::Crowd;
use uksm_simulator::{Alone, Content, Driven, Fill, Host, Run, World};

#[test]
fn an_idle_host_costs_half_a_percent_and_no_memory() {
    let mut run = run(full(), clones(64 * MIB, 0));
    merge(&mut run, 95, 20 * S);
    run.quietly_until(run.now() + 30 * S);
    let (spent, now) = (run.spent(), run.now());
    let before = run.engine.report();
    run.quietly_until(now + 600 * S);
    let after = run.engine.report();
    let share = (run.spent() - spent) as f64 / (run.now() - now) as f64;
    eprintln!("idle: {:.4} {}", share, show(&run));
    assert!(share <= 0.005, "{share}");
    assert_eq!(
        before.region_memory.region_bytes,
        after.region_memory.region_bytes
    );
    let [before, after] = [before, after].map(|report| (report.index, report.frames));
    assert!(
        after.0.index_bytes <= before.0.index_bytes + 8192,
        "{before:?}, {after:?}"
    );
}

#[test]
fn five_thousand_idle_processes_cost_three_tenths_of_a_percent_and_no_growth() {
    let crowd = Crowd::new(5000, 0, 0, 0, SEED);
    let world = World::new(host(), vec![Box::new(crowd)]);
    let driven = Driven::new(full(), SEED, 0).unwrap();
    let mut alone = Alone::new(world, driven);
    let run_to = |alone: &mut Alone<Driven>, end: Nanos| {
        while alone.now() < end {
            alone.turn();
        }
        let report = alone.deduplicator.engine.report();
        let bytes = report.index.index_bytes + report.region_memory.region_bytes;
        (alone.now(), alone.spent(), bytes)
    };
    let before = run_to(&mut alone, 300 * S);
    let after = run_to(&mut alone, 600 * S);
    let share = (after.1 - before.1) as f64 / (after.0 - before.0) as f64;
    eprintln!("5000 idle: {share:.5}");
    assert!(share <= 0.003, "{share}");
    assert_eq!(before.2, after.2);
}

/// Pages of a region that is rewritten.
const REWRITTEN: u64 = 64 * MIB;

/// A process whose region is rewritten in order, all of it in `cycle`, with one of `contents`
/// contents in turn; and the function that writes.
fn rewritten(cycle: Nanos, contents: u64) -> (Host, SpaceId, impl FnMut(&mut Host, Nanos)) {
    let mut host = host();
    let space = host.spawn(1);
    let same = Fill::Dense(&|_| Content::new(7));
    host.map(space, base(1), REWRITTEN, HEAP, &same);
    let mut written = 0;
    let write = move |host: &mut Host, now: Nanos| {
        let due = REWRITTEN * now / cycle;
        while written < due {
            let address = base(1) + written % REWRITTEN * PAGE_SIZE;
            host.write(space, address, Content::new(7 + written % contents));
            written += 1;
        }
    };
    (host, space, write)
}

#[test]
fn a_region_rewritten_each_round_is_left_alone() {
    let (host, space, mut write) = rewritten(3 * S, 2);
    let mut run = run(full(), host);
    run.until(60 * S, &mut write);
    let spent = run.spent();
    let tried = run.engine.report().outcomes.tried;
    run.until(120 * S, &mut write);
    let share = (run.spent() - spent) as f64 / (60 * S) as f64;
    let report = run.engine.report();
    eprintln!("cow: {share:.4} {}", show(&run));
    assert!(report.promotions.cow_broken > 0);
    assert!(share < 0.02, "{share}");
    assert!(
        report.outcomes.tried - tried < REWRITTEN,
        "{}",
        report.outcomes.tried - tried
    );
    let explained = run.engine.explain(space).unwrap();
    // Some of its pages are merged now and then to test whether they stay unchanged.
    let standing = explained.regions[0].standing;
    assert!(
        matches!(standing, Standing::CowBroken | Standing::OnTrial),
        "{standing:?}"
    );
}

#[test]
fn a_region_of_which_a_sixth_is_rewritten_in_many_rounds_stays_open() {
    // A sixth in four minutes, which are 120 rounds, page by page all over the region; broken pages
    // are merged again with pages merged long ago.
    let mut host = host();
    let space = host.spawn(1);
    let same = Fill::Dense(&|_| Content::new(7));
    host.map(space, base(1), REWRITTEN, HEAP, &same);
    let mut run = run(full(), host);
    merge(&mut run, 95, 20 * S);
    let mut written = 0;
    run.until(1200 * S, |host, now| {
        while written < REWRITTEN / 6 * now / (240 * S) {
            let page = written * 7919 % REWRITTEN;
            host.write(space, base(1) + page * PAGE_SIZE, Content::new(7));
            written += 1;
        }
    });
    let report = run.engine.report();
    let explained = run.engine.explain(space).unwrap();
    eprintln!("slow: {} {:?}", show(&run), explained.regions[0]);
    assert_eq!(report.promotions.cow_broken, 0);
    assert!(
        explained.regions[0].broken < 0.05,
        "{:?}",
        explained.regions
    );
    assert!(run.host.saved() > REWRITTEN * 3 / 4, "{}", run.host.saved());
}

#[test]
fn without_the_cow_filter_rewritten_regions_stay_merged() {
    let (host, _, mut write) = rewritten(3 * S / 2, 1);
    let unfiltered = Params {
        v_cow: None,
        cpu: 0.2,
        ..full()
    };
    let mut run = run(unfiltered, host);
    run.until(10 * S, &mut write);
    let (mut saved, mut looks) = (0, 0);
    run.until(40 * S, |host, now| {
        write(host, now);
        saved += host.saved();
        looks += 1;
    });
    let share = saved as f64 / (looks * REWRITTEN) as f64;
    eprintln!("no filter: {share:.3} {}", show(&run));
    assert!(share > 0.75, "{share}");
}

/// Maps 64 MiB of one content for `life`, then nothing for the same time, and so on; returns the
/// mean share of the mergeable pages that was saved while it was mapped.
fn short_lived(params: Params, life: Nanos, end: Nanos) -> (Run, f64) {
    let mut host = host();
    let space = host.spawn(1);
    let pages = 64 * MIB;
    let mut run = run(params, host);
    let mut mapped = false;
    let (mut saved, mut count) = (0, 0);
    run.until(end, |host, now| {
        let wanted = (now / life).is_multiple_of(2);
        if wanted && !mapped {
            host.map(
                space,
                base(1),
                pages,
                HEAP,
                &Fill::Dense(&|_| Content::new(7)),
            );
        } else if !wanted && mapped {
            host.unmap(space, base(1));
        }
        mapped = wanted;
        if mapped && now % life > life * 9 / 10 {
            saved += host.saved();
            count += pages;
        }
    });
    eprintln!("short-lived: {}", show(&run));
    (run, saved as f64 / count as f64)
}

#[test]
fn regions_that_die_young_are_left_alone_after_a_few() {
    let (run, _) = short_lived(full(), 300 * MS, 10 * S);
    let tried = run.engine.report().outcomes.tried;
    let (run, _) = short_lived(full(), 300 * MS, 60 * S);
    let later = run.engine.report().outcomes.tried;
    assert!(
        later - tried <= 2 * 64 * MIB,
        "{tried}, then {}",
        later - tried
    );
    assert!(run.engine.report().promotions.died_young > 50);
}

#[test]
fn fast_settings_merge_what_lives_for_a_second() {
    let mut params = Params {
        cpu: 0.5,
        v_life: 0,
        ..full()
    };
    params.set("level_rounds", "50ms,20ms,10ms,5ms").unwrap();
    let (_, share) = short_lived(params, S, 20 * S);
    assert!(share > 0.7, "{share}");
}

#[test]
fn sixty_thousand_mappings_stay_within_the_budget() {
    let mut host = host();
    let space = host.spawn(1);
    for number in 0..60_000 {
        let start = base(1) + number * 4 * PAGE_SIZE;
        host.map(
            space,
            start,
            1,
            HEAP + number % 2,
            &Fill::Dense(&|_| unique(1)(number)),
        );
    }
    let twin = host.spawn(2);
    host.map(
        twin,
        base(3),
        64 * MIB,
        HEAP,
        &Fill::Dense(&|_| Content::new(9)),
    );
    let mut run = run(full(), host);
    merge(&mut run, 95, 60 * S);
    let (spent, now) = (run.spent(), run.now());
    run.quietly_until(now + 120 * S);
    let share = (run.spent() - spent) as f64 / (run.now() - now) as f64;
    eprintln!("60k: {share:.4} {}", show(&run));
    assert!(share <= 0.006, "{share}");
}

#[test]
fn a_sparse_mapping_of_32_tib_is_cheap_and_what_is_in_it_merges() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    let used: Vec<_> = (0..32 * MIB).map(|page| (page, unique(1)(page))).collect();
    host.map(a, 1 << 45, 1 << 33, HEAP, &Fill::Sparse(&used));
    host.map(b, base(1), 32 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let mut run = run(full(), host);
    let (time, cpu) = merge(&mut run, 95, 60 * S);
    assert!(
        time < 20 * S && cpu < S,
        "{} ms, {} ms of them working",
        time / MS,
        cpu / MS
    );
    let report = run.engine.report();
    assert!(
        report.region_memory.region_bytes < 1 << 20,
        "{}",
        report.region_memory.region_bytes
    );
    assert_eq!(report.spaces.sparse_mappings, 1);
    let (spent, now) = (run.spent(), run.now());
    run.quietly_until(now + 60 * S);
    let share = (run.spent() - spent) as f64 / (run.now() - now) as f64;
    assert!(share <= 0.005, "{share}");
}

#[test]
fn no_window_of_rounds_costs_more_than_the_share() {
    for governor in Governor::ALL {
        let params = Params::governor(governor);
        let (cpu, round, sleep) = (params.cpu, params.round, params.sleep);
        let mut host = clones(128 * MIB, 0);
        let space = host.spawn(9);
        host.map(space, base(4), 128 * MIB, HEAP, &Fill::Dense(&unique(9)));
        let mut run = run(params, host);
        run.quietly_until(10 * round);
        let ledger = &run.ledger;
        let mut first = 0;
        let mut used = 0;
        for &(_, end, cost) in ledger {
            used += cost;
            while first < ledger.len() && end - ledger[first].0 > round {
                used -= ledger[first].2;
                first += 1;
            }
            let largest = 20 * MS;
            let bound = cpu * (round + sleep) as f64 + largest as f64;
            assert!(
                used as f64 <= bound,
                "{governor:?}: {} ms in a round",
                used / MS
            );
        }
    }
}

#[test]
fn no_governor_costs_more_than_its_share_however_much_there_is_to_do() {
    const LENGTH: Nanos = 200 * S;
    for governor in Governor::ALL {
        let params = Params {
            v_cow: None,
            ..Params::governor(governor)
        };
        let share = params.cpu;
        let (host, _, mut write) = rewritten(3 * S, 1);
        let mut run = run(params, host);
        run.until(LENGTH, &mut write);
        let used = run.spent() as f64 / run.now() as f64;
        eprintln!("{governor:?}: {used:.5} of {share}");
        assert!(used <= share * 1.05, "{governor:?}: {used}");
        if governor == Governor::Quiet {
            assert!(used >= share * 0.8, "nothing to do: {used}");
        }
    }
}

#[test]
fn every_page_of_a_lasting_region_is_visited_within_its_bound() {
    let mut host = host();
    let space = host.spawn(1);
    let pages: u64 = 4096 * 3;
    host.map(space, base(1), pages, HEAP, &Fill::Dense(&unique(1)));
    let mut run = run(full(), host);
    run.commands = Some(vec![]);
    // At 1000 samples a second or more, 3 times the pages.
    let bound = 3 * pages * S / 500;
    run.quietly_until(bound);
    let mut seen = std::collections::BTreeSet::new();
    for command in run.commands.as_ref().unwrap() {
        if let uksm_policy::Command::Sample { runs, .. } = command {
            for run in runs {
                let page = (run.start - base(1)) / PAGE_SIZE;
                seen.extend(page..page + u64::from(run.count));
            }
        }
    }
    assert_eq!(seen.len() as u64, pages);
}

#[test]
fn equal_seeds_and_observations_give_equal_commands() {
    let record = || {
        let mut run = run(full(), clones(16 * MIB, 5 * PAGE_SIZE));
        run.commands = Some(vec![]);
        run.observations = Some(vec![]);
        run.quietly_until(10 * S);
        run
    };
    let (first, second) = (record(), record());
    assert_eq!(first.commands, second.commands);
    // The same, replayed from the recording, without a host.
    let mut engine = uksm_policy::Engine::new(full(), SEED).unwrap();
    let observations = first.observations.unwrap();
    let commands = first.commands.unwrap();
    assert!(commands.len() > 100);
    for ((now, cost, observation), command) in observations.into_iter().zip(commands) {
        assert_eq!(engine.step(now, cost, observation), command);
    }
}

#[test]
fn exits_free_frames_and_are_followed() {
    let mut run = run(full(), clones(16 * MIB, 0));
    merge(&mut run, 95, 20 * S);
    run.host.exit(SpaceId(1));
    run.host.exit(SpaceId(2));
    run.quietly_until(run.now() + 60 * S);
    let report = run.engine.report();
    assert_eq!(
        (
            report.spaces.spaces,
            report.regions.regions,
            report.merged.now
        ),
        (0, 0, 0)
    );
    assert_eq!(run.host.frames(), 0, "frames without mappings are reaped");
    assert_eq!(report.frames.frames, 0);
}

#[test]
fn pinned_pages_are_not_tried() {
    let mut host = clones(16 * MIB, 0);
    for page in 0..16 * MIB {
        host.pin(SpaceId(2), base(1) + page * PAGE_SIZE, true);
    }
    let mut run = run(full(), host);
    run.commands = Some(vec![]);
    run.quietly_until(60 * S);
    let commands = run.commands.take().unwrap();
    let is_of_pinned = |command: &Command| match command {
        Command::Fold(batch) => batch.entries.iter().any(|one| one.space == SpaceId(2)),
        _ => false,
    };
    assert!(!commands.iter().any(is_of_pinned));
    // The pages tried are those of the other process, which the index takes for equal now and then.
    let outcomes = run.engine.report().outcomes;
    assert_eq!(outcomes.tried, outcomes.differed);
    assert!(outcomes.tried <= 4, "{outcomes:?}");
}

#[test]
fn busy_pages_are_counted_and_tried_ever_more_seldom() {
    let mut host = clones(16 * MIB, 0);
    host.report_pins = false;
    for page in 0..16 * MIB {
        host.pin(SpaceId(2), base(1) + page * PAGE_SIZE, true);
    }
    let mut run = run(full(), host);
    let mut tried = [0; 5];
    for (minutes, tried) in (0..).step_by(3).zip(&mut tried) {
        run.quietly_until(minutes * 60 * S);
        *tried = run.engine.report().outcomes.tried;
    }
    let report = run.engine.report();
    eprintln!("pinned: {tried:?} {}", show(&run));
    assert!(report.outcomes.busy > 0);
    let (first, last) = (tried[1] - tried[0], tried[4] - tried[3]);
    assert!(last * 4 < first, "{tried:?}");
    assert_balanced(&run);
}

#[test]
fn a_limit_on_frames_is_not_hammered() {
    let mut host = clones(32 * MIB, 0);
    host.frame_limit = 100;
    let mut run = run(full(), host);
    run.quietly_until(60 * S);
    let report = run.engine.report();
    assert!(
        report.outcomes.full > 0 && report.outcomes.full < 20_000,
        "{:?}",
        report.outcomes
    );
}

#[test]
fn many_small_regions_with_holes_are_not_swept_again_and_again() {
    let mut host = host();
    for number in 0..100 {
        let space = host.spawn(number);
        for area in 0..40 {
            let own = unique(100 + number * 40 + area);
            let half = [0, 2, 4, 6].map(|page| (page, own(page)));
            host.map(space, base(area), 9, HEAP, &Fill::Sparse(&half));
        }
    }
    let mut run = run(full(), host);
    run.quietly_until(20 * S);
    let (begun, spent) = (run.now(), run.spent());
    run.quietly_until(60 * S);
    let share = (run.spent() - spent) as f64 / (run.now() - begun) as f64;
    assert!(share < 0.006, "{share}: {}", show(&run));
}

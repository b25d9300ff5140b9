//! What the engine must achieve on hosts of known contents, and what it may cost.

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::params::{Governor, Params};
use uksm_policy::report::Standing;
use uksm_simulator::{Content, Costs, Fill, Host, Run};

const MS: Nanos = 1_000_000;
const S: Nanos = 1000 * MS;
const SEED: u64 = 42;
const MIB: u64 = 256;
const HEAP: u64 = 1;

fn full() -> Params {
    Params::governor(Governor::Full)
}

fn host() -> Host {
    Host::new(SEED, Costs::default())
}

/// A run on `host` whose processes have been there for long.
fn run(params: Params, host: Host) -> Run {
    Run::new(params, SEED, host).unwrap()
}

fn base(number: u64) -> u64 {
    0x7000_0000_0000 + number * (1 << 36)
}

/// Contents found nowhere else, by an owner's number and the page.
fn unique(owner: u64) -> impl Fn(u64) -> Content {
    move |page| Content::new((owner << 40) + page + 1)
}

fn show(run: &Run) -> String {
    let r = run.engine.report();
    format!(
        "t {:.2} s, cpu {:.3} s, saved {}, mergeable {}, sampled {}, strength {} ({}), levels {:?}, moves {:?}, outcomes {:?}, discovery {} ms",
        run.now() as f64 / 1e9,
        run.spent() as f64 / 1e9,
        run.host.saved(),
        run.host.mergeable(),
        r.sampled,
        r.strength,
        r.strength_changes,
        r.levels
            .iter()
            .map(|l| (l.regions, l.sampled, l.used / MS))
            .collect::<Vec<_>>(),
        r.moves,
        r.outcomes,
        r.discovery_used / MS,
    )
}

fn assert_balanced(run: &Run) {
    let report = run.engine.report();
    assert!(report.outcomes.balances(), "{:?}", report.outcomes);
}

/// Time and processor time until `share` of what can be merged is.
fn merge(run: &mut Run, share: f64, within: Nanos) -> (Nanos, Nanos) {
    let wanted = (run.host.mergeable() as f64 * share) as u64;
    let spent = run.spent();
    let time = run.until_done(within, |host| host.saved() >= wanted);
    let time = time.unwrap_or_else(|| panic!("not merged: {}", show(run)));
    eprintln!("merged: {}", show(run));
    assert_balanced(run);
    (time, run.spent() - spent)
}

fn clones(pages: u64, offset: u64) -> Host {
    let mut host = host();
    for number in 0..2 {
        let space = host.spawn(number);
        let start = base(1) + number * offset;
        host.map(space, start, pages, HEAP, &Fill::Dense(&unique(1)));
    }
    host
}

#[test]
fn clones_show_within_two_rounds_and_merge_in_six_seconds() {
    for mib in [128, 512] {
        let mut run = run(full(), clones(mib * MIB, 0));
        let (time, cpu) = merge(&mut run, 0.95, 20 * S);
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
    let (time, _) = merge(&mut run, 0.95, 20 * S);
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
    let (time, _) = merge(&mut run, 0.95, 60 * S);
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
    let (time, cpu) = merge(&mut run, 0.95, 20 * S);
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
    let (time, cpu) = merge(&mut run, 0.95, 20 * S);
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
    merge(&mut run, 0.99, 20 * S);
    let report = run.engine.report();
    assert!(report.merged.zero >= 64 * MIB * 95 / 100);
    assert_eq!(report.frames.frames, 0);
}

#[test]
fn duplicates_within_and_across_processes_are_told_apart() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    let twice = |page: u64| unique(1)(page / 2);
    host.map(a, base(1), 16384, HEAP, &Fill::Dense(&twice));
    host.map(b, base(2), 16384, HEAP, &Fill::Dense(&unique(3)));
    let mut run = run(full(), host);
    merge(&mut run, 0.95, 30 * S);
    let merged = run.engine.report().merged;
    assert!(
        merged.same_space > 7000 && merged.cross_space == 0 && merged.zero == 0,
        "{merged:?}"
    );
}

#[test]
fn an_idle_host_costs_half_a_percent_and_no_memory() {
    let mut run = run(full(), clones(64 * MIB, 0));
    merge(&mut run, 0.95, 20 * S);
    run.quietly_until(run.now() + 30 * S);
    let (spent, now) = (run.spent(), run.now());
    let before = run.engine.report();
    run.quietly_until(now + 600 * S);
    let after = run.engine.report();
    let share = (run.spent() - spent) as f64 / (run.now() - now) as f64;
    eprintln!("idle: {:.4} {}", share, show(&run));
    assert!(share <= 0.005, "{share}");
    assert_eq!(before.region_bytes, after.region_bytes);
    assert!(after.index_bytes <= before.index_bytes + 4096);
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
    let (time, _) = merge(&mut run, 0.9, end);
    assert!(time < 5 * S, "{} ms", time / MS);
}

#[test]
fn a_region_rewritten_each_round_is_left_alone() {
    let mut host = host();
    let space = host.spawn(1);
    let pages = 64 * MIB;
    host.map(
        space,
        base(1),
        pages,
        HEAP,
        &Fill::Dense(&|_| Content::new(7)),
    );
    let mut run = run(full(), host);
    let mut written = 0;
    // 70 % of the pages every 2 s, in order.
    let mut write = |host: &mut Host, now: Nanos| {
        let due = pages * 7 / 10 * now / (2 * S);
        while written < due {
            let content = Content::new(7 + written % 2);
            host.write(space, base(1) + written % pages * PAGE_SIZE, content);
            written += 1;
        }
    };
    run.until(60 * S, &mut write);
    let spent = run.spent();
    let tried = run.engine.report().outcomes.tried;
    run.until(120 * S, &mut write);
    let share = (run.spent() - spent) as f64 / (60 * S) as f64;
    let report = run.engine.report();
    eprintln!("cow: {share:.4} {}", show(&run));
    assert!(report.moves.cow_broken > 0);
    assert!(share < 0.02, "{share}");
    assert!(
        report.outcomes.tried - tried < pages,
        "{}",
        report.outcomes.tried - tried
    );
    let explained = run.engine.explain(space).unwrap();
    assert_eq!(explained.regions[0].standing, Standing::CowBroken);
}

#[test]
fn without_the_cow_filter_rewritten_regions_are_merged() {
    let mut host = host();
    let space = host.spawn(1);
    let pages = 64 * MIB;
    host.map(
        space,
        base(1),
        pages,
        HEAP,
        &Fill::Dense(&|_| Content::new(7)),
    );
    let mut run = run(
        Params {
            v_cow: None,
            cpu: 0.2,
            ..full()
        },
        host,
    );
    let mut written = 0;
    run.until(60 * S, |host, now| {
        let due = pages * 7 / 10 * now / (2 * S);
        while written < due {
            host.write(
                space,
                base(1) + written % pages * PAGE_SIZE,
                Content::new(7),
            );
            written += 1;
        }
    });
    eprintln!("no filter: {}", show(&run));
    assert!(run.host.saved() > pages / 10, "{}", run.host.saved());
}

/// Maps 64 MiB of one content for `life`, then nothing for as long, and so on; returns the mean
/// share of what could be saved while it was mapped.
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
    assert!(run.engine.report().moves.died_young > 50);
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
fn huge_pages_are_split_where_that_pays() {
    let mut host = host();
    let (a, b) = (host.spawn(1), host.spawn(2));
    let few = |page: u64| {
        if page % 10 == 0 {
            unique(1)(page)
        } else {
            unique(3)(page)
        }
    };
    let other = |page: u64| {
        if page % 10 == 0 {
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
fn huge_pages_are_never_split_if_so_told() {
    let mut host = host();
    for space in 0..2 {
        let space = host.spawn(space);
        host.map(space, base(1), 16 * MIB, HEAP, &Fill::Huge(&unique(1)));
    }
    let mut run = run(
        Params {
            thp: uksm_policy::params::Thp::Never,
            ..full()
        },
        host,
    );
    run.quietly_until(20 * S);
    assert_eq!((run.host.splits, run.host.saved()), (0, 0));
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
    merge(&mut run, 0.95, 60 * S);
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
    let (time, cpu) = merge(&mut run, 0.95, 60 * S);
    assert!(
        time < 20 * S && cpu < S,
        "{} ms, {} ms of them working",
        time / MS,
        cpu / MS
    );
    let report = run.engine.report();
    assert!(report.region_bytes < 1 << 20, "{}", report.region_bytes);
    assert_eq!(report.expanses, 1);
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
            let bound = (cpu * (round + sleep) as f64) as u64 + largest;
            assert!(used <= bound, "{governor:?}: {} ms in a round", used / MS);
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
    let mut seen = vec![false; pages as usize];
    for command in run.commands.as_ref().unwrap() {
        if let uksm_policy::Command::Sample { runs, .. } = command {
            for run in runs {
                let page = (run.start - base(1)) / PAGE_SIZE;
                (page..page + u64::from(run.count)).for_each(|page| seen[page as usize] = true);
            }
        }
    }
    let missed = seen.iter().filter(|&&seen| !seen).count();
    assert_eq!(missed, 0, "of {pages} pages");
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
    // And replayed from the recording, without a host.
    let mut engine = uksm_policy::Engine::new(full(), SEED).unwrap();
    let observations = first.observations.unwrap();
    let commands = first.commands.unwrap();
    assert!(commands.len() > 100);
    for ((now, cost, observation), command) in observations.into_iter().zip(commands) {
        assert_eq!(engine.step(now, cost, observation), command);
    }
}

#[test]
fn a_broken_space_is_unmerged_and_left_alone() {
    let mut run = run(full(), clones(32 * MIB, 0));
    merge(&mut run, 0.95, 20 * S);
    run.engine.break_space(SpaceId(1));
    run.quietly_until(run.now() + 20 * S);
    assert!(!run.engine.is_breaking());
    assert_eq!(run.host.saved(), 0, "{}", show(&run));
    assert!(run.engine.explain(SpaceId(1)).unwrap().stopped);
    assert!(run.engine.report().broken >= 32 * MIB * 95 / 100);
}

#[test]
fn a_new_engine_goes_on_with_the_frames_of_the_last() {
    let mut first = run(full(), clones(32 * MIB, 0));
    merge(&mut first, 0.95, 20 * S);
    let mut host = first.host;
    let late = host.spawn(5);
    host.map(late, base(6), 32 * MIB, HEAP, &Fill::Dense(&unique(1)));
    let frames = host.frames();
    host.forget_census();
    let mut second = run(full(), host);
    merge(&mut second, 0.95, 20 * S);
    assert!(
        second.host.frames() <= frames + 500,
        "{} and {frames}",
        second.host.frames()
    );
}

#[test]
fn exits_free_frames_and_are_followed() {
    let mut run = run(full(), clones(16 * MIB, 0));
    merge(&mut run, 0.95, 20 * S);
    run.host.exit(SpaceId(1));
    run.host.exit(SpaceId(2));
    run.quietly_until(run.now() + 60 * S);
    let report = run.engine.report();
    assert_eq!(
        (report.spaces, report.regions, report.merged_now),
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
    run.quietly_until(60 * S);
    assert_eq!(run.engine.report().outcomes.tried, 0);
}

#[test]
fn busy_pages_are_counted_and_tried_ever_more_seldom() {
    let mut host = clones(16 * MIB, 0);
    host.tell_pins = false;
    for page in 0..16 * MIB {
        host.pin(SpaceId(2), base(1) + page * PAGE_SIZE, true);
    }
    let mut run = run(full(), host);
    run.quietly_until(120 * S);
    let tried = run.engine.report().outcomes.tried;
    run.quietly_until(240 * S);
    let report = run.engine.report();
    eprintln!("pinned: {}", show(&run));
    assert!(report.outcomes.busy > 0);
    assert!(
        report.outcomes.tried - tried < 10 * 16 * MIB,
        "{}",
        report.outcomes.tried - tried
    );
    assert_balanced(&run);
}

#[test]
fn frames_that_are_full_get_a_second() {
    let mut host = host();
    host.sharer_limit = 1000;
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
fn similar_pages_raise_the_strength() {
    let mut host = host();
    let space = host.spawn(1);
    let alike = |page: u64| Content::similar(page + 1, 5, 40);
    host.map(space, base(1), 64 * MIB, HEAP, &Fill::Dense(&alike));
    host.map(
        space,
        base(2),
        64 * MIB,
        HEAP,
        &Fill::Dense(&|page| unique(1)(page % (32 * MIB))),
    );
    let mut run = run(full(), host);
    run.quietly_until(600 * S);
    eprintln!(
        "similar: {} in vain, {}",
        run.host.compared_in_vain,
        show(&run)
    );
    assert!(run.engine.report().strength > 40, "{}", show(&run));
    assert!(run.host.saved() > 30 * MIB, "{}", show(&run));
}

#[test]
fn distinct_pages_lower_the_strength() {
    let mut run = run(full(), clones(256 * MIB, 0));
    merge(&mut run, 0.95, 20 * S);
    run.quietly_until(60 * S);
    assert!(run.engine.report().strength <= 4, "{}", show(&run));
}

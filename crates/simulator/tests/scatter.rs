//! Equal pages scattered over two processes: few of them, at other places, or in runs.
//!
//! Each case must be merged for little more than one look at every page.

#![allow(
    clippy::cast_possible_truncation,
    reason = "pages are counted in thousands"
)]

mod scene;

use std::ops::Range;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE};
use uksm_policy::mix::SplitMix64;
use uksm_simulator::{Content, Fill, Host, Run};

/// Pages of each process: 256 MiB.
const PAGES: u64 = 256 * MIB;

/// Positions of the equal pages of the second process.
#[derive(Clone, Copy)]
enum Scattering {
    /// At the positions of their twins.
    Same,
    /// Anywhere, in runs of this length.
    Shuffled(u64),
}

/// Shuffles the numbers.
fn shuffle(order: &mut [u64], random: &mut SplitMix64) {
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Contents of the two processes: `percent` of the pages of one are those of the other.
fn contents(percent: u64, place: Scattering) -> [Vec<Content>; 2] {
    let mut random = SplitMix64::new(SEED);
    let run = match place {
        Scattering::Same => 1,
        Scattering::Shuffled(run) => run,
    };
    let runs = PAGES / run;
    let mut orders = [(); 2].map(|()| {
        let mut order: Vec<u64> = (0..runs).collect();
        shuffle(&mut order, &mut random);
        order
    });
    if matches!(place, Scattering::Same) {
        orders[1] = orders[0].clone();
    }
    [0, 1].map(|owner: usize| {
        let mut pages: Vec<Content> = (0..PAGES).map(unique(2 + owner as u64)).collect();
        for (number, at) in orders[owner]
            .iter()
            .take((runs * percent / 100) as usize)
            .enumerate()
        {
            for page in 0..run {
                pages[(at * run + page) as usize] = unique(1)(number as u64 * run + page);
            }
        }
        pages
    })
}

fn two_processes(percent: u64, place: Scattering) -> Host {
    let mut host = host();
    map_both(&mut host, percent, place);
    host
}

fn map_both(host: &mut Host, percent: u64, place: Scattering) {
    for (owner, pages) in (1..).zip(contents(percent, place)) {
        let space = host.spawn(owner);
        let fill = |page: u64| pages[page as usize];
        host.map(
            space,
            base(owner) + owner * 5 * PAGE_SIZE,
            PAGES,
            HEAP,
            &Fill::Dense(&fill),
        );
    }
}

const CASES: [(u64, Scattering); 12] = [
    (100, Scattering::Same),
    (80, Scattering::Same),
    (2, Scattering::Same),
    (5, Scattering::Same),
    (20, Scattering::Same),
    (40, Scattering::Same),
    (2, Scattering::Shuffled(1)),
    (5, Scattering::Shuffled(1)),
    (20, Scattering::Shuffled(1)),
    (100, Scattering::Shuffled(1)),
    (45, Scattering::Shuffled(64)),
    (5, Scattering::Shuffled(64)),
];

/// CPU permitted for `saved` pages: a look at every page of both, and merging.
fn allowed(saved: u64) -> Nanos {
    let look = 2 * PAGES * 1_000;
    look * 3 / 2 + saved * 15_000 + 100 * MS
}

fn check(mut run: Run, name: &str) {
    let end = run.now() + 60 * S;
    let (time, cpu) = merge(&mut run, 95, end);
    let saved = run.host.saved();
    eprintln!(
        "{name}: {} ms, {} µs of CPU for {saved} pages",
        time / MS,
        cpu / 1000
    );
    assert!(
        cpu < allowed(saved),
        "{name}: {} ms, {} allowed",
        cpu / MS,
        allowed(saved) / MS
    );
}

#[test]
fn scattered_duplicates_cost_one_look_at_each_page() {
    for (percent, place) in CASES {
        let length = match place {
            Scattering::Same => 0,
            Scattering::Shuffled(run) => run,
        };
        let host = two_processes(percent, place);
        check(run(full(), host), &format!("{percent} %, runs {length}"));
    }
}

#[test]
fn scattered_duplicates_that_come_after_a_minute_of_calm_are_found_as_soon() {
    for (percent, place) in CASES {
        let mut host = host();
        let old = host.spawn(9);
        host.map(old, base(9), 64 * MIB, HEAP, &Fill::Dense(&unique(9)));
        let mut run = run(full(), host);
        run.quietly_until(60 * S);
        map_both(&mut run.host, percent, place);
        check(run, &format!("{percent} % after a minute"));
    }
}

#[test]
fn runs_are_merged_though_the_index_has_room_for_a_sixth_of_the_pages() {
    let mut params = full();
    params.index_bytes = Some(1 << 18);
    // One in twenty runs of 16 pages has no page in the index.
    for (percent, length, found) in [(45, 64, 90), (20, 16, 85), (45, 512, 90)] {
        let name = format!("{percent} % in runs of {length}");
        let host = two_processes(percent, Scattering::Shuffled(length));
        let mut run = run(params.clone(), host);
        let end = run.now() + 60 * S;
        let (time, cpu) = merge(&mut run, found, end);
        eprintln!("{name}: {} ms, {} ms of CPU", time / MS, cpu / MS);
        assert!(time < 10 * S, "{name}: {} ms", time / MS);
    }
}

/// Two processes hold the same pages in one order, those of the second `shift` pages further on.
fn clones(shift: u64) -> Host {
    let mut host = host();
    for (owner, before) in [(1, 0), (2, shift)] {
        let space = host.spawn(owner);
        let fill = |page: u64| match page.checked_sub(before) {
            Some(page) => unique(1)(page),
            None => unique(3)(page),
        };
        host.map(space, base(owner), PAGES, HEAP, &Fill::Dense(&fill));
    }
    host
}

#[test]
fn of_two_clones_one_is_read_and_the_other_is_compared() {
    for shift in [0, 3] {
        let mut run = run(full(), clones(shift));
        let end = run.now() + 60 * S;
        let (time, cpu) = merge(&mut run, 95, end);
        let sampled = run.engine.report().sampling.pages;
        eprintln!(
            "shift {shift}: {} ms, {} ms of CPU, {sampled} sampled",
            time / MS,
            cpu / MS
        );
        let most = if shift == 0 { 3 * PAGES / 2 } else { 3 * PAGES };
        assert!(sampled < most, "shift {shift}: {sampled}");
    }
}

/// Maps the same pages in these processes, in stretches of this length, each process in an order of
/// its own.
fn map_reordered(host: &mut Host, owners: Range<u64>, pages: u64, stretch: u64) {
    for owner in owners {
        let mut random = SplitMix64::new(SEED + owner);
        let mut starts: Vec<u64> = (0..pages).step_by(stretch as usize).collect();
        shuffle(&mut starts, &mut random);
        let held: Vec<u64> = starts
            .into_iter()
            .flat_map(|start| start..pages.min(start + stretch))
            .collect();
        let space = host.spawn(owner);
        let fill = |page: u64| unique(1)(held[page as usize]);
        host.map(space, base(owner), pages, HEAP, &Fill::Dense(&fill));
    }
}

/// Stretches of many processes are clones of others; pages of them that are compared and not looked
/// up must join the existing frames, also if half of the processes come later.
#[test]
fn what_many_processes_hold_in_other_orders_comes_to_have_one_frame() {
    for (processes, pages, stretch, later) in [
        (40, 1024, 300, 0),
        (40, 1024, 200, 0),
        (40, 1024, 1, 0),
        (12, 4096, 600, 0),
        (100, 512, 512, 0),
        (9, 16_384, 5000, 0),
        (20, 1024, 600, 30),
        (40, 300, 200, 30),
        (40, 4096, 600, 1),
        (40, 512, 300, 30),
    ] {
        let mut host = host();
        let first = if later == 0 { processes } else { processes / 2 };
        map_reordered(&mut host, 1..first + 1, pages, stretch);
        let mut run = run(full(), host);
        run.quietly_until(later * S);
        map_reordered(&mut run.host, first + 1..processes + 1, pages, stretch);
        run.quietly_until((later + 10) * S);
        let all = (processes - 1) * pages;
        let saved = run.host.saved();
        let name = format!("{processes} of {pages} pages in {stretch}, half after {later} s");
        eprintln!("{name}: {saved} of {all} saved");
        assert!(saved * 1000 >= all * 999, "{name}: {saved} of {all} saved");
    }
}

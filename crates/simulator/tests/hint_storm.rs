//! A process whose I/O fills the same memory again and again, faster than an engine can follow,
//! must not keep others from being merged by their hints.

mod scene;

use scene::*;
use uksm_policy::command::{FilePlace, Nanos, PAGE_SIZE, PageState, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_simulator::{Costs, Fill, Host};

/// Pages of each process, and of a file.
const CACHE: u64 = 64 * MIB;
const READ: u64 = 8 * MIB;

/// Costs of a machine that is slower by this factor.
fn slow(times: u64) -> Costs {
    let usual = Costs::default();
    Costs {
        call: usual.call * times,
        fold: usual.fold * times,
        page: usual.page * times,
        page_merged: usual.page_merged * times,
        run: usual.run * times,
        line: usual.line * times,
        merge: usual.merge * times,
        pair: usual.pair * times,
        table: usual.table * times,
        check: usual.check * times,
        compare: usual.compare * times,
        step: usual.step * times,
        step_page: usual.step_page * times,
        step_merged: usual.step_merged * times,
        step_run: usual.step_run * times,
        step_pair: usual.step_pair * times,
        step_join: usual.step_join * times,
        size: usual.size * times,
        ..usual
    }
}

/// A process reads this many pages of a file, from this one on, into pages of its memory; the owner
/// of contents identifies the file.
fn read(host: &mut Host, space: SpaceId, (at, pages): (u64, u64), offset: u64, owner: u64) {
    let place = FilePlace {
        file_size: READ * PAGE_SIZE,
        offset: offset * PAGE_SIZE,
    };
    let start = base(1) + at * PAGE_SIZE;
    read_file(host, space, start, contents(owner, offset, pages), place);
}

/// `storms` processes read single pages of a file at random for half a minute, `rate` in a second
/// all together, on a machine slower by `slowness`. Returns the time until nine tenths of the pages
/// are merged that two others then read.
fn merged_after(storms: u64, rate: u64, slowness: u64) -> Option<Nanos> {
    let mut host = Host::new(SEED, slow(slowness));
    let mut space = |owner: u64| {
        let space = host.spawn(1);
        host.map(space, base(1), CACHE, HEAP, &Fill::Dense(&unique(owner)));
        space
    };
    let (pair, noise): ([SpaceId; 2], Vec<SpaceId>) = (
        [1, 2].map(&mut space),
        (0..storms).map(|n| space(10 + n)).collect(),
    );
    let mut run = run(full(), host);
    run.quietly_until(60 * S);
    let mut random = SplitMix64::new(3);
    let (mut now_read, begin) = (0, run.now());
    let mut storm = |host: &mut Host, now: Nanos| {
        let wanted = (now - begin).min(30 * S) / MS * rate / 1000;
        while now_read < wanted {
            let space = noise[usize::try_from(now_read % storms).unwrap()];
            let (at, offset) = (random.below(CACHE), random.below(READ));
            read(host, space, (at, 1), offset, 100);
            now_read += 1;
        }
    };
    run.until(begin + 3 * S, &mut storm);
    for (number, &space) in pair.iter().enumerate() {
        for page in (0..READ).step_by(32) {
            let at = 3000 + number as u64 * 7000 + page;
            read(&mut run.host, space, (at, 32), page, 200);
        }
    }
    let is_merged = |host: &Host| {
        let pages = (0..READ).map(|page| base(1) + (3000 + page) * PAGE_SIZE);
        let states = pages.filter_map(|address| host.page(pair[0], address));
        let merged = states.filter(|page| page.state == PageState::Frame);
        merged.count() as u64 >= READ * 9 / 10
    };
    let (begun, mut next) = (run.now(), run.now());
    while run.now() < begun + 27 * S {
        if is_merged(&run.host) {
            eprintln!("{}", show(&run));
            return Some(run.now() - begun);
        }
        next += 20 * MS;
        run.until(next, &mut storm);
    }
    eprintln!("{}\n{:?}", show(&run), run.engine.report().hints);
    None
}

/// Number of processes, and their reads in a second all together.
const STORMS: [(u64, u64); 4] = [(1, 60_000), (1, 5000), (5, 60_000), (20, 100_000)];

/// In each of [`STORMS`] two others are to be merged within these times, on a machine slower by
/// this factor.
fn check(slowness: u64, within: [Nanos; STORMS.len()]) {
    for ((storms, rate), within) in STORMS.into_iter().zip(within) {
        let took = merged_after(storms, rate, slowness);
        let shown = took.map(|took| took / MS);
        eprintln!("{slowness} times as slow, {storms} storms of {rate}: {shown:?} ms");
        assert!(
            took.is_some_and(|took| took <= within),
            "{slowness} {storms} {rate}"
        );
    }
}

#[test]
fn two_others_are_merged_in_a_storm() {
    check(1, [S, S, S, S]);
}

#[test]
fn they_are_on_a_slow_machine() {
    check(4, [S, S, S, 4 * S]);
}

/// As an emulated machine under other load.
#[test]
fn they_are_on_a_very_slow_machine() {
    check(16, [2 * S, 2 * S, 8 * S, 15 * S]);
}

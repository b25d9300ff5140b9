//! Merged pages that processes write are counted: each once, and no others.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE, PageState, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Fill, Host, Run};

const PAGES: u64 = 16 * MIB;
const WRITER: SpaceId = SpaceId(1);

fn written(run: &Run) -> u64 {
    run.engine.report().merged.written
}

/// Two clones that are merged.
fn merged(governor: Governor) -> Run {
    let mut run = run(Params::governor(governor), clones(PAGES, 0));
    merge(&mut run, 99, 1200 * S);
    run
}

fn pass(run: &mut Run, time: Nanos) {
    let end = run.now() + time;
    run.quietly_until(end);
}

/// Writes the page; returns whether it was merged.
fn write(host: &mut Host, page: u64, number: u64) -> u64 {
    let address = base(1) + page * PAGE_SIZE;
    let was = host.page(WRITER, address).expect("it is mapped").state;
    // Each second time with its old contents, so that it is merged again.
    match number % 2 {
        0 => host.write(WRITER, address, unique(99)(number)),
        _ => host.write(WRITER, address, unique(1)(page)),
    }
    u64::from(was == PageState::Frame)
}

#[test]
fn each_write_to_a_merged_page_counts_once() {
    for governor in [Governor::Full, Governor::Low] {
        let mut run = merged(governor);
        let mut random = SplitMix64::new(SEED);
        let (mut number, mut truth, mut next) = (0, 0, run.now());
        let end = run.now() + 1800 * S;
        run.until(end, |host, now| {
            while now >= next {
                next += 100 * MS;
                number += 1;
                truth += write(host, random.below(PAGES), number);
            }
        });
        let during = written(&run);
        pass(&mut run, 3600 * S);
        let counted = written(&run);
        let case = format!(
            "{governor:?}: {during}, {counted} of {truth}: {}",
            show(&run)
        );
        eprintln!("{case}");
        assert!(truth > 10_000 && counted <= truth, "{case}");
        assert!(counted * 100 >= truth * 97, "{case}");
        assert!(during * 100 >= truth * 80, "{case}");
    }
}

#[test]
fn the_end_of_processes_is_no_write() {
    for governor in [Governor::Full, Governor::Low] {
        let mut run = merged(governor);
        // A process that is forked maps the frames once more.
        let child = run.host.fork(WRITER);
        pass(&mut run, 600 * S);
        run.host.exit(child);
        pass(&mut run, 1200 * S);
        assert_eq!(written(&run), 0, "{governor:?}: {}", show(&run));
        let truth: u64 = (0..100).map(|page| write(&mut run.host, page, 0)).sum();
        pass(&mut run, 1200 * S);
        let counted = written(&run);
        assert!(truth > 90 && counted == truth, "{governor:?}: {counted}");
        run.host.exit(WRITER);
        pass(&mut run, 1200 * S);
        assert_eq!(written(&run), counted, "{governor:?}: {}", show(&run));
    }
}

#[test]
fn discarded_and_unmapped_pages_count_like_written_ones() {
    let mut run = merged(Governor::Full);
    for page in 0..100 {
        run.host.discard(WRITER, base(1) + page * PAGE_SIZE);
    }
    pass(&mut run, 1200 * S);
    let discarded = written(&run);
    assert!((95..=100).contains(&discarded), "{discarded}");
    // A process without any mapping would have ended.
    run.host
        .map(WRITER, base(2), 1, HEAP, &Fill::Dense(&unique(3)));
    run.host.unmap(WRITER, base(1));
    pass(&mut run, 1200 * S);
    let counted = written(&run);
    assert!((PAGES * 9 / 10..=PAGES).contains(&counted), "{counted}");
}

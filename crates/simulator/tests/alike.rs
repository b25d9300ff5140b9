//! Pages that are alike in many lines, of which a weak hash tells one from the other by chance only.

mod scene;

use scene::{HEAP, MIB, MS, S, base, full, host, show, unique};
use uksm_simulator::{Content, Fill, Run};

/// Two processes come one after the other, whose pages are the same; one in `one_in` of them is like
/// the others of its kind in `lines` of 64.
fn newcomers(one_in: u64, lines: u16, apart: u64) -> Run {
    let content = move |page: u64| match page % one_in {
        0 => Content::similar(page + 1, 5, lines),
        _ => unique(1)(page),
    };
    let mut host = host();
    let old = host.spawn(9);
    host.map(old, base(5), 2 * MIB, HEAP, &Fill::Dense(&unique(7)));
    let mut run = Run::new(full(), one_in, host).unwrap();
    run.quietly_until(S);
    for number in [1, 2] {
        let space = run.host.spawn(1);
        let start = base(number);
        run.host
            .map(space, start, 8 * MIB, HEAP, &Fill::Dense(&content));
        run.quietly_until(run.now() + apart);
    }
    run
}

fn lines(case: u64) -> u16 {
    u16::try_from(case * 7 % 40 + 1).expect("at most 40")
}

#[test]
fn equal_pages_among_alike_ones_are_merged_in_seconds() {
    for case in 0..40 {
        let mut run = newcomers(1 + case % 13, lines(case), case * 7 % 50 * 10 * MS);
        run.quietly_until(20 * S);
        let (saved, mergeable) = (run.host.saved(), run.host.mergeable());
        assert!(saved * 100 >= mergeable * 99, "case {case}: {}", show(&run));
    }
}

#[test]
fn a_page_is_compared_with_few_that_look_like_it() {
    for case in 0..40 {
        let mut run = newcomers(1 + case % 13, lines(case), case * 7 % 50 * 10 * MS);
        run.quietly_until(60 * S);
        let report = run.engine.report();
        let (differed, sampled) = (report.outcomes.differed, report.sampling.pages);
        assert!(differed < 8 * sampled, "case {case}: {}", show(&run));
        assert!(run.spent() < 2 * S, "case {case}: {}", show(&run));
    }
}

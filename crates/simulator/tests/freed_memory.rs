//! Memory that a process frees or writes after it was merged: the engine learns that late, a sample
//! of the merged pages shows it at once.

mod scene;

use scene::*;
use uksm_policy::command::{Command, Lines, Observation, PAGE_SIZE, PageState};
use uksm_simulator::{Content, Fill, Run};

/// 16 MiB of each process: a SAMPLE reads both.
const PAGES: u64 = 16 * MIB;

/// Zero pages in a sample of at most `most` merged pages, and the size of the sample.
fn zeros(run: &mut Run, most: u64) -> (u64, u64) {
    let runs = run.engine.merged_sample(most, 7);
    let lines = Lines { from: 0, to: 0 };
    let (answer, _) = run.host.perform(&Command::Sample { runs, lines });
    let Observation::Sampled(pages) = answer else {
        panic!("{answer:?}");
    };
    let zeros = pages.iter().filter(|page| page.state == PageState::Zero);
    (zeros.count() as u64, pages.len() as u64)
}

#[test]
fn a_sample_of_merged_pages_has_no_zeros_that_are_no_more() {
    let mut host = host();
    // The equal pages of two processes are merged with frames, the rest is zeros.
    let spaces = [1, 2].map(|number| {
        let space = host.spawn(number);
        let content = |page: u64| match page % 4 {
            0 => unique(1)(page),
            _ => Content::ZERO,
        };
        host.map(space, base(number), PAGES, HEAP, &Fill::Dense(&content));
        space
    });
    let mut run = run(full(), host);
    merge(&mut run, 99, 60 * S);
    run.quietly_until(run.now() + 100 * S);
    let merged = run.engine.merged().now;
    assert!(merged >= 2 * PAGES * 99 / 100, "{}", show(&run));
    let before = zeros(&mut run, merged).0;
    // One process frees the first half of its memory, and writes some of the other.
    let is_zero = |page: &u64| !page.is_multiple_of(4);
    let mut lost = 0;
    for page in (0..PAGES / 2 + PAGES / 8).filter(is_zero) {
        let address = base(1) + page * PAGE_SIZE;
        let page_before = run.host.page(spaces[0], address).unwrap();
        lost += u64::from(page_before.state == PageState::Zero);
        if page < PAGES / 2 {
            run.host.discard(spaces[0], address);
        } else {
            run.host.write(spaces[0], address, Content::new(page));
        }
    }
    assert!(lost >= PAGES / 2 * 9 / 10, "{lost}");
    assert_eq!(run.engine.merged().now, merged, "the engine has read none");
    assert_eq!(zeros(&mut run, merged), (before - lost, merged));
    // A sample of a sixteenth has the same share of them.
    let (part, read) = zeros(&mut run, merged / 16);
    let (estimate, truth) = (part * merged / read, before - lost);
    assert!(
        estimate.abs_diff(truth) <= truth / 20,
        "{estimate} estimated, {truth} are there"
    );
    assert!(read * 17 >= merged && read * 16 <= merged, "{read} read");
}

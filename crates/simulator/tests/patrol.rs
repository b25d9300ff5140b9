//! Frames whose contents have changed.

mod scene;

use scene::*;
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::Params;
use uksm_simulator::{Content, Fill};

#[test]
fn frames_that_change_are_found_and_given_up() {
    let pages = 512;
    let mut host = host();
    let same = |page: u64| Content::new(page + 1);
    let spaces = [1, 2, 3].map(|number| {
        let space = host.spawn(number);
        host.map(space, base(1), pages, HEAP, &Fill::Dense(&same));
        space
    });
    let params = Params {
        patrol: 20 * S,
        ..full()
    };
    let mut run = run(params, host);
    run.quietly_until(30 * S);
    let frame_of = |page: u64| run.host.frame_of(spaces[0], base(1) + page * PAGE_SIZE);
    let [one, other] = [7, 500].map(|page| frame_of(page).expect("it is merged"));
    run.host.change(one);
    run.host.change(other);
    run.quietly_until(100 * S);
    let given_up = run.host.held().filter(|(_, frame)| frame.is_poisoned);
    let given_up: Vec<u32> = given_up.map(|(id, _)| id).collect();
    assert_eq!(given_up.len(), 2);
    assert!(given_up.contains(&one) && given_up.contains(&other));
    let report = run.engine.report().frames;
    assert_eq!(report.frames, pages - 2);
    // Each pass checks each once.
    let times = report.checked / pages;
    assert!((3..=6).contains(&times), "{times} times");
}

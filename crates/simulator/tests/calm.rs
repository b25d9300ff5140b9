//! A host on which nothing happens, and what happens there after a long time.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Fill, Run};

const OWN: u64 = 64 * MIB;
const MINUTE: Nanos = 60 * S;

/// Two processes with common pages and as many of their own, ten minutes after the former were
/// merged.
fn calm(governor: Governor) -> Run {
    let mut host = clones(OWN, 0);
    for space in 1..=2 {
        let own = unique(10 + u64::from(space));
        host.map(SpaceId(space), base(2), OWN, HEAP, &Fill::Dense(&own));
    }
    let mut run = run(Params::governor(governor), host);
    merge(&mut run, 99, 60 * S);
    run.quietly_until(run.now() + 10 * MINUTE);
    run
}

#[test]
fn where_nothing_happens_a_twentieth_of_a_percent_of_a_core_is_used() {
    let bounds = [0.0005, 0.0005, 0.0005, 0.001];
    for (governor, bound) in Governor::ALL.into_iter().zip(bounds) {
        let mut run = calm(governor);
        let (begun, spent) = (run.now(), run.spent());
        run.quietly_until(begun + 10 * MINUTE);
        let share = (run.spent() - spent) as f64 / (run.now() - begun) as f64;
        eprintln!("{governor:?}: {:.4} %", 100.0 * share);
        assert!(share < bound, "{governor:?}: {share}");
    }
}

/// Both processes write the same to pages of their own, in place: nothing reports it.
#[test]
fn what_becomes_equal_in_place_after_a_long_time_is_merged() {
    for governor in [Governor::Full, Governor::Low] {
        let mut run = calm(governor);
        run.quietly_until(run.now() + 30 * MINUTE);
        let same = unique(3);
        for space in 1..=2 {
            for page in 0..OWN / 2 {
                let address = base(2) + page * PAGE_SIZE;
                run.host.write(SpaceId(space), address, same(page));
            }
        }
        let begun = run.now();
        merge(&mut run, 95, begun + 120 * S);
        let took = (run.now() - begun) as f64 / S as f64;
        eprintln!("{governor:?}: after {took:.1} s");
        assert!(took < 30.0, "{governor:?}: {took} s");
    }
}

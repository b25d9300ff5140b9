//! Many random runs, and the reduction of a failed one.
//!
//! `UKSM_SEEDS` is their number; `make simulate-seeds` runs more of them, optimised.

use uksm_policy::Params;
use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;
use uksm_simulator::fault::{Canary, Fault};
use uksm_simulator::seed::{Plan, minimise, run, swarm};

/// They take a minute on two cores.
const SEEDS: u64 = 1000;
const SECOND: Nanos = 1_000_000_000;

fn seeds() -> u64 {
    let given = std::env::var("UKSM_SEEDS").ok();
    given.map_or(SEEDS, |given| {
        given.parse().expect("UKSM_SEEDS is a number")
    })
}

#[test]
fn everything_holds_in_every_seed_and_each_fault_strikes() {
    let count = seeds();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let swarm = swarm(1..count + 1, threads, &|_| {});
    println!(
        "{} seeds, {} steps, {} pages merged, {:?} waited longest",
        swarm.seeds, swarm.steps, swarm.merged, swarm.longest_wait
    );
    println!("{}", swarm.counts());
    assert_eq!(swarm.failed, None, "make simulate-seeds makes it smaller");
    assert_eq!(swarm.missing(), Vec::<&str>::new(), "never struck");
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 1..=3 {
        let [first, second] = [0; 2].map(|_| run(&Plan::of(seed)));
        assert_eq!(first.fired, second.fired);
        assert_eq!(
            (first.steps, first.merged, first.longest_wait),
            (second.steps, second.merged, second.longest_wait)
        );
    }
    assert_ne!(run(&Plan::of(1)).fired, run(&Plan::of(2)).fired);
}

/// Longest wait of a duplicate on hosts of a plan's size without faults, by governor.
fn longest_wait(governor: Governor) -> Nanos {
    SECOND
        * match governor {
            Governor::Full => 90,
            Governor::Medium => 150,
            Governor::Low => 240,
            Governor::Quiet => unreachable!("no plan has it"),
        }
}

/// Processes come, fork, exec, map, grow and go, at any rate, and never rewrite pages. A page that
/// was written again and again may be left alone for ever, so it has no bound.
#[test]
fn where_nothing_goes_wrong_each_duplicate_that_stays_is_merged_within_its_bound() {
    let still = [
        "write", "discard", "swap-out", "poison", "refuse", "pin", "lock",
    ];
    let mut longest = vec![];
    for governor in [Governor::Full, Governor::Medium, Governor::Low] {
        let mut waited = (0, 0);
        for seed in 1..=seeds() / 20 {
            let mut plan = Plan::of(seed).without(&still.map(str::to_owned));
            plan.faults.clear();
            plan.params = Params::governor(governor);
            plan.calm = longest_wait(governor) + 30 * SECOND;
            plan.wait = Some(longest_wait(governor));
            let outcome = run(&plan);
            assert_eq!(outcome.failed, None, "seed {seed}, {governor:?}");
            waited = waited.max((outcome.longest_wait, seed));
        }
        longest.push((governor.name(), waited));
    }
    println!("waited longest, and in which seed: {longest:?}");
}

/// The plan of a seed on a host whose answers are wrong.
fn wrong(seed: u64) -> Plan {
    let mut plan = Plan::of(seed);
    plan.canary = Some(Canary::WrongOutcome);
    plan
}

#[test]
fn a_plan_that_fails_is_made_smaller_and_fails_in_the_same_way() {
    let failing = |seed: &u64| {
        let plan = wrong(*seed);
        run(&plan).failed.is_some() && plan.parts().len() > 8
    };
    let seed = (1..50).find(failing).expect("most seeds merge something");
    let plan = wrong(seed);
    let (small, left_out) = minimise(&plan, "answer");
    assert!(small.parts().len() <= 2, "{:?}", small.parts());
    assert_eq!(small.parts().len() + left_out.len(), plan.parts().len());
    assert!(small.length < plan.length);
    let mut again = plan.without(&left_out);
    again.length = small.length;
    let (at, violation) = run(&again).failed.expect("it fails still");
    assert_eq!(violation.check, "answer");
    assert!(at < again.length);
}

#[test]
fn each_fault_has_a_part_that_can_be_left_out() {
    let parts: Vec<&str> = Plan::all_parts().collect();
    for (fault, _) in Fault::ALL {
        assert!(parts.contains(&fault.name()));
    }
}

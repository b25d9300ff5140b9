//! Many runs in which anything may happen, and what is made of one that fails.
//!
//! `UKSM_SEEDS` is how many; `make simulate-seeds` runs more of them, optimised.

use uksm_simulator::fault::{Canary, Fault};
use uksm_simulator::seed::{Plan, minimise, run, swarm};

/// They take a minute on two cores.
const SEEDS: u64 = 1000;

#[test]
fn everything_holds_in_every_seed_and_each_fault_strikes() {
    let given = std::env::var("UKSM_SEEDS").ok();
    let count = given.map_or(SEEDS, |given| {
        given.parse().expect("UKSM_SEEDS is a number")
    });
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

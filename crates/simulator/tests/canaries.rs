//! Each check notices its error: a host or its books are wrong in one way, and the run fails by the
//! check for it. The same run without the fault passes.

use uksm_policy::Outcomes;
use uksm_policy::params::{Contents, Governor, Params};
use uksm_simulator::check::{Bounds, Checks};
use uksm_simulator::fault::{Canary, Fault};
use uksm_simulator::seed::{Plan, run};

const SECOND: u64 = 1_000_000_000;

/// A run without faults but a canary: processes of two engines with equal pages and with different
/// pages of equal hashes.
fn plan(seed: u64) -> Plan {
    let mut plan = Plan::of(seed);
    plan.params = Params {
        strength: Some(1),
        ..Params::governor(Governor::Full)
    };
    plan.params.index_bytes = Some(1 << 20);
    plan.domains = 2;
    plan.processes = 8;
    plan.pages = 1024;
    plan.length = 10 * SECOND;
    plan.faults = vec![(Fault::Collision, 1)];
    let all: Vec<String> = Plan::all_parts().map(str::to_owned).collect();
    let kept = ["write".to_owned(), "collision".to_owned()];
    let rest: Vec<String> = all
        .into_iter()
        .filter(|part| !kept.contains(part))
        .collect();
    plan.without(&rest)
}

/// The check that fails under a canary, in any of a few seeds.
fn caught(canary: Canary, change: impl Fn(&mut Plan)) -> Vec<&'static str> {
    let failed = (1..=2).filter_map(|seed| {
        let mut plan = plan(seed);
        change(&mut plan);
        let sound = run(&plan);
        assert_eq!(sound.failed, None, "without a canary");
        assert!(sound.merged > 0);
        plan.canary = Some(canary);
        run(&plan).failed.map(|(_, violation)| violation.check)
    });
    failed.collect()
}

#[test]
fn pages_merged_though_they_differ_are_caught() {
    assert_eq!(caught(Canary::UnequalMerge, |_| {}), ["merge"; 2]);
}

#[test]
fn a_frame_shared_across_domains_is_caught() {
    assert_eq!(caught(Canary::ForeignFrame, |_| {}), ["merge"; 2]);
}

#[test]
fn a_saving_that_is_not_there_is_caught() {
    assert_eq!(caught(Canary::FalseSaving, |_| {}), ["savings"; 2]);
}

#[test]
fn an_answer_that_page_tables_contradict_is_caught() {
    assert_eq!(caught(Canary::WrongOutcome, |_| {}), ["answer"; 2]);
}

#[test]
fn more_processor_time_than_the_share_is_caught() {
    let quiet = |plan: &mut Plan| {
        plan.params = Params {
            index_bytes: Some(1 << 20),
            ..Params::governor(Governor::Quiet)
        };
        plan.pages = 4096;
        plan.length = 20 * SECOND;
    };
    assert_eq!(caught(Canary::HiddenCost, quiet), ["budget"; 2]);
}

#[test]
fn more_memory_than_the_bound_is_caught() {
    let small = |plan: &mut Plan| {
        plan.params.index_bytes = Some(1 << 16);
        plan.pages = 1 << 16;
        plan.length = 20 * SECOND;
    };
    assert_eq!(caught(Canary::Hoard, small), ["memory"; 2]);
}

#[test]
fn a_frame_of_what_too_few_spaces_hold_is_caught() {
    let three = |plan: &mut Plan| plan.params.merge_spaces = 3;
    assert_eq!(caught(Canary::FewSpaces, three), ["policy"; 2]);
}

#[test]
fn a_page_merged_with_a_frame_of_another_node_is_caught() {
    let kept = |plan: &mut Plan| plan.params.merge_across_nodes = false;
    assert_eq!(caught(Canary::AcrossNodes, kept), ["policy"; 2]);
}

#[test]
fn two_pages_of_one_space_in_one_frame_are_caught() {
    let between = |plan: &mut Plan| plan.params.merge = Contents::Between;
    assert_eq!(caught(Canary::SelfSharing, between), ["policy"; 2]);
}

#[test]
fn duplicates_that_are_never_merged_are_caught() {
    // Without a canary no page waits that long; with it the hash of each sample is wrong.
    let bounded = |plan: &mut Plan| {
        plan.length = SECOND;
        plan.calm = 90 * SECOND;
        plan.faults.clear();
        plan.params.strength = Params::governor(Governor::Full).strength;
        plan.wait = Some(60 * SECOND);
    };
    assert_eq!(caught(Canary::WrongHash, bounded), ["progress"; 2]);
}

#[test]
fn outcomes_that_do_not_add_up_or_were_not_given_are_caught() {
    let bounds = Bounds {
        params: Params::governor(Governor::Full),
        wait: None,
    };
    let checks = Checks::new(0, bounds);
    assert_eq!(checks.equation(&Outcomes::default()), Ok(()));
    let invented = Outcomes {
        tried: 1,
        merged: 1,
        ..Outcomes::default()
    };
    let lost = Outcomes {
        merged: 1,
        ..Outcomes::default()
    };
    for wrong in [invented, lost] {
        assert_eq!(checks.equation(&wrong).unwrap_err().check, "equation");
    }
}

//! Makes a failing plan smaller.
//!
//! Parts are left out one by one as long as the same check still fails, until none can be left out;
//! the run then ends right behind the failure.

use super::plan::Plan;
use super::run_of_plan::{Outcome, run};

/// Limit of the runs tried.
const MAX_RUNS: u32 = 200;

/// The smallest plan found in which the same check fails, and the parts left out of it.
#[must_use]
pub fn minimise(plan: &Plan, check: &'static str) -> (Plan, Vec<String>) {
    let fails = |outcome: &Outcome| {
        let failed = outcome.failed.as_ref();
        failed.is_some_and(|(_, violation)| violation.check == check)
    };
    let mut runs = 0;
    let mut left_out: Vec<String> = vec![];
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        for part in plan.without(&left_out).parts() {
            let mut without = left_out.clone();
            without.push(part.to_owned());
            runs += 1;
            if runs <= MAX_RUNS && fails(&run(&plan.without(&without))) {
                left_out = without;
                is_smaller = true;
            }
        }
    }
    let mut smallest = plan.without(&left_out);
    let outcome = run(&smallest);
    if let Some((at, _)) = outcome.failed.filter(|(at, _)| *at < smallest.length) {
        let length = at + 1_000_000;
        let shorter = Plan {
            length,
            ..smallest.clone()
        };
        if fails(&run(&shorter)) {
            smallest = shorter;
        }
    }
    (smallest, left_out)
}

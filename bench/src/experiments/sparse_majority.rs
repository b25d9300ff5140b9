//! sparse-majority: one part of identical pages among six parts of random ones.
//!
//! The purpose of a partial hash: most pages have no partner, and finding that must be cheap.

use anyhow::Result;
use uksm_results::report::Report;

use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{MIXED_ORDERS, Spec};

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("sparse-majority")?;
    let size = setup.size_or(128);
    let mut trials = Vec::new();
    for (order, random_first) in MIXED_ORDERS {
        let trial = |variant, seconds, max_runs| Trial {
            variant,
            case: format!("{size}+{} MiB, {order}", 6 * size),
            specs: vec![Spec::mixed(setup.seed, size, 6 * size, random_first)],
            limit: setup.limit_or(seconds),
            max_runs,
        };
        trials.push(trial(Variant::uksm_governor("full"), 60, usize::MAX));
        trials.push(trial(Variant::ksm_unlimited(), 120, 3));
        if random_first {
            trials.push(trial(Variant::ksm_1000(), 120, 1));
        }
    }
    report
        .variants
        .extend(interleave(&trials, setup.repeats, setup)?);
    report.compare("uksm-full");
    Ok(report)
}

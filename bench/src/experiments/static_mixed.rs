//! static-mixed: one process, as many identical as random pages (UKSM §8.1.1).
//!
//! Three sizes for the time to 95 %; at the smallest also KSM as shipped, and the other order of
//! addresses: in-kernel KSM walks upwards, so lower pages are met first.

use anyhow::Result;
use uksm_results::report::Report;

use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{MIXED_ORDERS, Spec};

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("static-mixed")?;
    let smallest = setup.size_or(128);
    for (factor, repeats) in [(1, setup.repeats), (2, 1), (4, 1)] {
        let size = smallest * factor;
        let mut trials = Vec::new();
        for (order, random_first) in MIXED_ORDERS {
            if factor > 1 && !random_first {
                continue;
            }
            let trial = |variant, seconds, max_runs| Trial {
                variant,
                case: format!("{size} MiB, {order}"),
                specs: vec![Spec::mixed(setup.seed, size, size, random_first)],
                limit: setup.limit_or(seconds),
                max_runs,
            };
            trials.push(trial(Variant::uksm_governor("full"), 60, usize::MAX));
            trials.push(trial(Variant::ksm_unlimited(), 120, usize::MAX));
            if factor == 1 && random_first {
                trials.push(trial(Variant::uksm_governor("low"), 60, 1));
                trials.push(trial(Variant::ksm_1000(), 120, 1));
                trials.push(trial(Variant::ksm_shipped(), 180, 1));
                trials.push(trial(Variant::ksm_advisor(), 60, 1));
            }
        }
        report.variants.extend(interleave(&trials, repeats, setup)?);
    }
    report.compare("uksm-full");
    Ok(report)
}

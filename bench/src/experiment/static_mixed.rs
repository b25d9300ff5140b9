//! static-mixed: one process, as many identical as random pages (UKSM §8.1.1).
//!
//! Three sizes for the time to 95 %; at the smallest also KSM as shipped, and the other order of
//! addresses: in-kernel KSM walks upwards, so lower pages are met first.

use super::race::{Race, interleave};
use crate::result::Report;
use crate::setup::Setup;
use crate::system::Variant;
use crate::workload::Spec;
use anyhow::Result;

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("static-mixed")?;
    let smallest = setup.size_or(128);
    for (factor, repeats) in [(1, setup.repeats), (2, 1), (4, 1)] {
        let size = smallest * factor;
        let mut races = Vec::new();
        for random_first in [true, false] {
            if factor > 1 && !random_first {
                continue;
            }
            let order = if random_first {
                "random first"
            } else {
                "identical first"
            };
            let race = |variant, seconds, most_runs| Race {
                variant,
                case: format!("{size} MiB, {order}"),
                specs: vec![Spec::mixed(setup.seed, size, size, random_first)],
                limit: setup.limit_or(seconds),
                most_runs,
            };
            races.push(race(Variant::uksm_governor("full"), 60, usize::MAX));
            races.push(race(Variant::ksm_unlimited(), 120, usize::MAX));
            if factor == 1 && random_first {
                races.push(race(Variant::uksm_governor("low"), 60, 1));
                races.push(race(Variant::ksm_1000(), 120, 1));
                races.push(race(Variant::ksm_shipped(), 180, 1));
                races.push(race(Variant::ksm_advisor(), 60, 1));
            }
        }
        report.variants.extend(interleave(&races, repeats, setup)?);
    }
    report.compare("uksm-full");
    Ok(report)
}

//! sparse-majority: one part of identical pages among six parts of random ones.
//!
//! The purpose of a partial hash: most pages have no partner, and finding that must be cheap.

use super::race::{Race, interleave};
use crate::result::Report;
use crate::setup::Setup;
use crate::system::Variant;
use crate::workload::Spec;
use anyhow::Result;

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("sparse-majority")?;
    let size = setup.size_or(128);
    let mut races = Vec::new();
    for random_first in [true, false] {
        let order = if random_first {
            "random first"
        } else {
            "identical first"
        };
        let race = |variant, seconds, most_runs| Race {
            variant,
            case: format!("{size}+{} MiB, {order}", 6 * size),
            specs: vec![Spec::mixed(setup.seed, size, 6 * size, random_first)],
            limit: setup.limit_or(seconds),
            most_runs,
        };
        races.push(race(Variant::uksm_governor("full"), 60, usize::MAX));
        races.push(race(Variant::ksm_unlimited(), 120, 3));
        if random_first {
            races.push(race(Variant::ksm_1000(), 120, 1));
        }
    }
    report
        .variants
        .extend(interleave(&races, setup.repeats, setup)?);
    report.compare("uksm-full");
    Ok(report)
}

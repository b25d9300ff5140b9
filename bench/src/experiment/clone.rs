//! clone: two processes with the same distinct pages, as two guests of one image have.
//!
//! Every page has one partner: nothing repeats, so a thin sample of each finds next to nothing.

use super::{Race, Setup, interleave};
use crate::result::Report;
use crate::system::Variant;
use crate::workload::{Contents, Part, Spec};
use anyhow::Result;

/// Runs it.
pub fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("clone")?;
    let size = setup.size_or(128);
    let part = Part::still(Contents::Distinct, 3, size);
    let spec = Spec {
        seed: setup.seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    };
    let race = |variant, seconds, most_runs| Race {
        variant,
        case: format!("{size} MiB"),
        specs: vec![spec.clone(), spec.clone()],
        limit: setup.limit_or(seconds),
        most_runs,
    };
    let races = [
        race(Variant::uksm_governor("full"), 60, usize::MAX),
        race(Variant::ksm_unlimited(), 120, usize::MAX),
        race(Variant::uksm_governor("low"), 60, 1),
        race(Variant::ksm_1000(), 120, 1),
    ];
    report.variants = interleave(&races, setup.repeats, setup)?;
    report.compare("uksm-full");
    Ok(report)
}

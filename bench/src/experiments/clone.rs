//! clone: two processes with the same distinct pages, like two guests of one image.
//!
//! Every page has one partner: no content repeats, so a thin sample of each finds next to nothing.
//! Three sizes: in-kernel KSM descends a tree of all pages for each, which deepens with their
//! number.

use anyhow::Result;
use uksm_results::report::Report;

use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{Contents, Part, Spec};

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("clone")?;
    let smallest = setup.size_or(128);
    for (factor, repeats) in [(1, setup.repeats), (2, setup.repeats), (4, 1)] {
        let size = smallest * factor;
        let spec = Spec {
            seed: setup.seed,
            parts: vec![Part::still(Contents::Distinct, 3, size)],
            huge: false,
            mergeable: false,
        };
        let trial = |variant, seconds, max_runs| Trial {
            variant,
            case: format!("{size} MiB"),
            specs: vec![spec.clone(), spec.clone()],
            limit: setup.limit_or(seconds),
            max_runs,
        };
        let mut trials = vec![
            trial(Variant::uksm_governor("full"), 60, usize::MAX),
            trial(Variant::ksm_unlimited(), 120, usize::MAX),
        ];
        if factor == 1 {
            trials.push(trial(Variant::uksm_governor("low"), 60, 1));
            trials.push(trial(Variant::ksm_1000(), 120, 1));
        }
        report.variants.extend(interleave(&trials, repeats, setup)?);
    }
    report.compare("uksm-full");
    Ok(report)
}

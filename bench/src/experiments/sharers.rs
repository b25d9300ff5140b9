//! sharers: contents with 2 to 1000 copies, by a Zipf law, all over four processes.
//!
//! Half of all pages are unique. Neither side lets a page be shared without bound (both 256 by
//! default), so that a content with a thousand copies keeps four.
//!
//! Source: design.md §8; UKSM §8.1.1 has all pages the same one.

use anyhow::Result;
use uksm_results::report::Report;

use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{Contents, Part, Sharers, Spec};

/// Processes, and the family of their contents.
const PROCESSES: usize = 4;
const FAMILY: u64 = 31;

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("sharers")?;
    let size = setup.size_or(32);
    let process = |process| Spec {
        seed: setup.seed,
        parts: vec![Part::still(
            Contents::Sharers(Sharers {
                process,
                processes: PROCESSES,
            }),
            FAMILY,
            size,
        )],
        huge: false,
        mergeable: false,
    };
    let trial = |variant, seconds| Trial {
        variant,
        case: format!("{PROCESSES} x {size} MiB"),
        specs: (0..PROCESSES).map(process).collect(),
        limit: setup.limit_or(seconds),
        max_runs: usize::MAX,
    };
    let trials = [
        trial(Variant::uksm_governor("full"), 60),
        trial(Variant::ksm_unlimited(), 120),
    ];
    report.variants = interleave(&trials, setup.repeats, setup)?;
    report.compare("uksm-full");
    Ok(report)
}

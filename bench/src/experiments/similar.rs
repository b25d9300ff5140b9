//! similar: pages that are nearly equal, of which half have a partner.
//!
//! All pages of two processes are alike in 63 of their 64 lines. Half of each process' pages are
//! equal to those of the other one, at the same places; the rest has no partner. A hash of some
//! lines does not distinguish such pages, and a comparison with any other one takes long: it is the
//! worst case for a partial hash, and for a tree that is ordered by contents as well.
//!
//! | case | the line in which a page differs from all others |
//! |---|---|
//! | `last` | its last one |
//! | `any` | drawn for each |
//!
//! Source: UKSM §8.3.1.

use std::fmt;
use std::str::FromStr;

use anyhow::{Error, Result, bail};
use uksm_results::report::Report;

use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{Contents, OwnLine, Part, Spec};

/// Families: the contents of both processes, and, with the number of the process added, those of
/// one.
const SHARED: u64 = 21;
const OWN: u64 = 22;

#[derive(Debug, Clone, Copy)]
struct OwnLineCase(OwnLine);

impl FromStr for OwnLineCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<OwnLineCase> {
        Ok(OwnLineCase(match name {
            "last" => OwnLine::Last,
            "any" => OwnLine::Any,
            _ => bail!("no case '{name}'; there are last, any"),
        }))
    }
}

impl fmt::Display for OwnLineCase {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(match self.0 {
            OwnLine::Last => "last",
            OwnLine::Any => "any",
        })
    }
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("similar")?;
    let size = setup.size_or(64);
    for case in setup.cases_or::<OwnLineCase>(&["last", "any"])? {
        let contents = Contents::Similar(case.0);
        let process = |number: u64| Spec {
            seed: setup.seed,
            parts: vec![
                Part::still(contents, OWN + number, size / 2),
                Part::still(contents, SHARED, size / 2),
            ],
            huge: false,
            mergeable: false,
        };
        let trial = |variant, seconds| Trial {
            variant,
            case: case.to_string(),
            specs: vec![process(0), process(1)],
            limit: setup.limit_or(seconds),
            max_runs: usize::MAX,
        };
        let trials = [
            trial(Variant::uksm_governor("full"), 60),
            trial(Variant::ksm_unlimited(), 120),
        ];
        let measured = interleave(&trials, setup.repeats, setup)?;
        report.variants.extend(measured);
    }
    report.compare_cases("uksm-full", None);
    Ok(report)
}

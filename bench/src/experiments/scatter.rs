//! scatter: few or many equal pages at random places, singly or in runs.
//!
//! Two processes (or more) of 256 MiB. A system that samples few pages finds equal ones at once if
//! they are many, or if they lie at the same offsets. This experiment measures the cost without
//! either, and with the layout of guests' memory: other offsets, but runs. A case is named by share
//! and place, see [`case`]; `--cases` chooses, and takes any case with such a name.

use anyhow::Result;
use uksm_results::report::Report;

use super::newcomers;
use crate::comparison::rounds::interleave_by;
use crate::comparison::trial::{self, Trial};
use crate::setup::Setup;
use crate::variants::Variant;
use case::ScatterCase;

mod case;

/// Equal pages in percent, by default.
const SHARES: [usize; 6] = [2, 5, 10, 20, 40, 100];

/// Places of the equal pages, by name.
const PLACES: [&str; 3] = ["same", "shuffled", "runs"];

/// Further default cases.
const FURTHER: [&str; 12] = [
    "45-runs64",
    "5-same-x8",
    "5-shuffled-x8",
    "20-runs-x8",
    "100-shuffled-x8",
    "45-runs64-x8",
    "5-same-calm",
    "20-shuffled-calm",
    "20-runs-calm",
    "45-runs64-calm",
    "20-runs-filled",
    "45-runs64-filled",
];

/// Limit of the runs of a variant: there are many cases, and some take long.
const RUNS: usize = 3;

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("scatter")?;
    let size = setup.size_or(256);
    for case in cases(&setup.cases)? {
        let specs = case.specs(setup.seed, size);
        let trial = |variant, seconds| Trial {
            variant,
            case: case.to_string(),
            specs: specs.clone(),
            limit: setup.limit_or(seconds),
            max_runs: RUNS,
        };
        let trials = [
            trial(Variant::uksm_governor("full"), 60),
            trial(Variant::ksm_unlimited(), 120),
        ];
        let once = |trial: &Trial, setup: &Setup| match case.newcomers {
            None => trial::run(trial, setup),
            Some(newcomers) => newcomers::run(trial, newcomers, setup),
        };
        let measured = interleave_by(&once, &trials, setup.repeats, setup)?;
        report.variants.extend(measured);
    }
    report.compare_cases("uksm-full", None);
    Ok(report)
}

/// The requested cases, or the default ones.
fn cases(asked: &[String]) -> Result<Vec<ScatterCase>> {
    if !asked.is_empty() {
        return asked.iter().map(|name| name.parse()).collect();
    }
    let named = |place: &'static str| SHARES.map(|share| format!("{share}-{place}"));
    PLACES
        .into_iter()
        .flat_map(named)
        .chain(FURTHER.map(str::to_owned))
        .map(|name| name.parse())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_every_share_is_run_at_every_place_and_no_case_twice() {
        let mut names: Vec<String> = cases(&[])
            .unwrap()
            .iter()
            .map(ScatterCase::to_string)
            .collect();
        let all = names.len();
        assert_eq!(all, SHARES.len() * PLACES.len() + FURTHER.len());
        assert!(names.contains(&"2-same".to_owned()));
        assert!(names.contains(&"100-runs".to_owned()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn only_what_was_asked_for_is_run() {
        let asked = ["45-runs64".to_owned(), "3-shuffled-x4".to_owned()];
        let names: Vec<String> = cases(&asked)
            .unwrap()
            .iter()
            .map(ScatterCase::to_string)
            .collect();
        assert_eq!(names, asked);
    }
}

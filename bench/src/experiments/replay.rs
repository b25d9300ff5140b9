//! replay: memory of real processes at its true layout.
//!
//! Traces (`crate::trace`) record the equal pages of mappings, their positions, and their changes.
//! Here as many processes map as much at the same distance from multiples of 2 MiB, and fill it so
//! that the same pages are equal.
//!
//! A case is named after its trace. As such it holds still at the last captured moment: the figure
//! is the cost of merging 95 % of the equal pages. With ` live` behind it, it begins at the first
//! moment and goes on as captured: the figures are the mean saving and the CPU. KSM runs there as
//! shipped and without `smart_scan`, too.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Error, Result};
use uksm_results::report::Report;

use crate::comparison::average::{Rounds, WatchTime};
use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::trace::{TRACES, Trace};
use crate::variants::Variant;
use crate::workload::mapping::BLOCK_PAGES;
use crate::workload::{Behaviour, Contents, Moment, Part, Spec};

/// The family of the contents.
const FAMILY: u64 = 21;

/// A trace, still or live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TraceCase {
    trace: usize,
    is_live: bool,
}

impl FromStr for TraceCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<TraceCase> {
        let live = name.strip_suffix(" live");
        Ok(TraceCase {
            trace: Trace::find(live.unwrap_or(name))?,
            is_live: live.is_some(),
        })
    }
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("replay")?;
    let both = |trace: &Trace| [trace.name.to_owned(), format!("{} live", trace.name)];
    let all: Vec<String> = TRACES.iter().flat_map(both).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for case in setup.cases_or::<TraceCase>(&all)? {
        let name = TRACES[case.trace].name;
        let (specs, length) = specs(case, setup.seed)?;
        let variants = [Variant::uksm_governor("full"), Variant::ksm_unlimited()];
        if case.is_live {
            let watched = WatchTime {
                length: setup.limit_or(length.as_secs().max(1)),
                every: Duration::from_millis(400),
            };
            let case = format!("{name} live");
            // Over this many scans KSM counts the pages that it leaves out.
            let [ours, ksm] = variants;
            let variants = [ours, ksm, Variant::ksm_without_smart_scan()];
            let rounds = Rounds::run(&variants, &case, &specs, watched, setup)?;
            rounds.add_to(&mut report);
            for ksm in ["ksm-unlimited", "ksm-no-smart-scan"] {
                rounds.compare(&mut report, "uksm-full", ksm, ksm);
            }
            continue;
        }
        let trials = variants.map(|variant| Trial {
            variant,
            case: name.to_owned(),
            specs: specs.clone(),
            limit: setup.limit_or(120),
            max_runs: usize::MAX,
        });
        let measured = interleave(&trials, setup.repeats, setup)?;
        report.variants.extend(measured);
    }
    report.compare_cases("uksm-full", None);
    Ok(report)
}

/// The processes of a trace, at its last moment.
pub(super) fn still(trace: &str, seed: u64) -> Result<Vec<Spec>> {
    Ok(specs(trace.parse()?, seed)?.0)
}

/// The processes of a trace, and its length.
fn specs(case: TraceCase, seed: u64) -> Result<(Vec<Spec>, Duration)> {
    let header = TRACES[case.trace].header()?;
    let last = header.moments - 1;
    let behaviour = match case.is_live {
        true => Behaviour::Replayed {
            every_ms: header.every_ms,
        },
        false => Behaviour::Still,
    };
    let mut mapping = 0;
    let mut part = |(start, pages): (u64, usize)| {
        let moment = Moment {
            trace: case.trace,
            mapping,
            at: if case.is_live { 0 } else { last },
            last,
            phase: usize::try_from(start % BLOCK_PAGES as u64).unwrap_or_default(),
        };
        mapping += 1;
        Part {
            contents: Contents::Captured(moment),
            family: FAMILY,
            pages,
            behaviour,
        }
    };
    let processes = header.processes.iter();
    let specs = processes.map(|process| Spec {
        seed,
        parts: process.mappings.iter().copied().map(&mut part).collect(),
        huge: false,
        mergeable: false,
    });
    let length = Duration::from_millis(header.every_ms * header.moments as u64);
    Ok((specs.collect(), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::mergeable_mib;

    #[test]
    fn every_trace_can_be_rebuilt_and_has_something_to_merge() {
        for trace in TRACES {
            let case: TraceCase = trace.name.parse().unwrap();
            let (still, _) = specs(case, 1).unwrap();
            assert!(mergeable_mib(&still).unwrap() > 1.0, "{}", trace.name);
            let live: TraceCase = format!("{} live", trace.name).parse().unwrap();
            assert!(live.is_live && specs(live, 1).is_ok());
        }
    }

    #[test]
    fn a_trace_that_there_is_not_is_named() {
        let error = "cloud live".parse::<TraceCase>().unwrap_err().to_string();
        assert!(error.starts_with("no trace 'cloud'; there are "), "{error}");
    }
}

//! ksm-settings: the best settings of KSM in each case.
//!
//! A ratio against KSM depends on the setting of KSM. KSM without sleep, shipped otherwise, is
//! compared with these: pages of zeros merged with the kernel's own (`use_zero_pages`), pages
//! examined in vain not left out of scans (`smart_scan` off), both, and a limit of sharers
//! (`max_page_sharing`) of 64 and 4,096 instead of 256, which is uksm's, too.
//!
//! | case | memory |
//! |---|---|
//! | `static-mixed` | identical and random pages, 1:1, random first (UKSM §8.1.1) |
//! | `zeros` | as many pages of zeros as random ones, random first |
//! | `clone` | two processes with the same distinct pages |
//! | a trace | what it has at its last moment (see `replay`) |

use std::str::FromStr;

use anyhow::{Error, Result};
use uksm_results::report::Report;

use super::replay;
use crate::comparison::rounds::interleave;
use crate::comparison::trial::Trial;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::variants::ksm::KsmSwitch;
use crate::workload::{Contents, Part, Spec};

const CASES: [&str; 4] = ["static-mixed", "zeros", "clone", "python"];

/// Sharers of a frame, as shipped; as many as with uksm.
const SHARERS: u64 = 256;

/// Families of contents.
const RANDOM: u64 = 2;
const DISTINCT: u64 = 3;
const ZEROS: u64 = 4;

struct MemoryCase(String);

impl FromStr for MemoryCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<MemoryCase> {
        specs(name, 1, 1)?;
        Ok(MemoryCase(name.to_owned()))
    }
}

/// The processes of a case.
fn specs(case: &str, mib: usize, seed: u64) -> Result<Vec<Spec>> {
    let process = |parts| Spec {
        seed,
        parts,
        huge: false,
        mergeable: false,
    };
    Ok(match case {
        "static-mixed" => vec![Spec::mixed(seed, mib, mib, true)],
        "zeros" => vec![process(vec![
            Part::still(Contents::Distinct, RANDOM, mib),
            Part::still(Contents::Zero, ZEROS, mib),
        ])],
        "clone" => vec![process(vec![Part::still(Contents::Distinct, DISTINCT, mib)]); 2],
        trace => replay::still(trace, seed)?,
    })
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("ksm-settings")?;
    let size = setup.size_or(64);
    let (zeros, all) = ((KsmSwitch::ZeroPages, true), (KsmSwitch::SmartScan, false));
    for MemoryCase(case) in setup.cases_or(&CASES)? {
        let trial = |variant, seconds| {
            Ok(Trial {
                variant,
                case: case.clone(),
                specs: specs(&case, size, setup.seed)?,
                limit: setup.limit_or(seconds),
                max_runs: usize::MAX,
            })
        };
        let ksm = |name, switches: &[_], sharers| {
            let variant = Variant::ksm_unlimited().switched(name, switches);
            trial(variant.with_sharers(sharers), 120)
        };
        let trials: Result<Vec<Trial>> = [
            trial(Variant::uksm_governor("full"), 60),
            ksm("ksm-unlimited", &[], SHARERS),
            ksm("ksm-zero-pages", &[zeros], SHARERS),
            ksm("ksm-no-smart-scan", &[all], SHARERS),
            ksm("ksm-both", &[zeros, all], SHARERS),
            ksm("ksm-sharers-64", &[], 64),
            ksm("ksm-sharers-4096", &[], 4096),
        ]
        .into_iter()
        .collect();
        let measured = interleave(&trials?, setup.repeats, setup)?;
        report.variants.extend(measured);
    }
    report.compare_cases("uksm-full", None);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_something_to_merge() {
        for case in CASES {
            let specs = specs(case, 4, 1).unwrap();
            assert!(
                crate::workload::mergeable_mib(&specs).unwrap() > 1.0,
                "{case}"
            );
        }
        assert!("sparse".parse::<MemoryCase>().is_err());
    }
}

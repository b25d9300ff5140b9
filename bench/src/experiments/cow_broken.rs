//! cow-broken: pages that are written again as soon as they are merged (UKSM §8.1.2).
//!
//! Two questions. In the case `round` a region of which most pages are rewritten every round must
//! be left alone, at next to no CPU. In all others the filter is off, and a loop writes pages
//! without changing them, every 10 ms, from the start to the end: the mean saving is compared with
//! that of KSM held at the same CPU, as shipped and without `smart_scan`. Such a case is
//! `RATE@SHARE`: pages written a second, and the limit of a system in percent of a core.
//!
//! The paper's loop writes 100 pages/s of 2 GiB, in turn, so the saving is limited by the speed of
//! merging at that CPU. Faster loops go over 128 MiB, so that most savings would be lost again in
//! the time watched: they show the savings that are kept under rewriting.
//!
//! They write pages in random order. In turn they ran beside ksmd, which also goes through the
//! region page by page, at nearly the same speed, and KSM's saving depended on which of the two was
//! ahead: another 2 ms of a wake-up changed it by a quarter to a half.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use uksm_results::report::Report;

use crate::comparison::average::{Rounds, WatchTime};
use crate::setup::Setup;
use crate::variants::Variant;
use crate::variants::ksm::KsmSwitch;
use crate::workload::{Behaviour, Contents, Order, Part, Spec};

/// Default cases; each but the first takes three times the time watched.
const CASES: [&str; 6] = [
    "round", "100@10", "100@20", "20000@2", "20000@10", "20000@20",
];
/// Pages a second of the paper's loop, and its MiB; then the MiB of all others.
const PAPERS: (usize, usize) = (100, 2048);
const OTHERS_MIB: usize = 128;
/// Steps a second.
const STEPS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq)]
enum RewriteCase {
    /// The whole region in about a round.
    Round,
    /// This many pages a second, at this percentage of a core.
    Loop { rate: usize, percent: u32 },
}

impl FromStr for RewriteCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<RewriteCase> {
        if name == "round" {
            return Ok(RewriteCase::Round);
        }
        let numbers = name.split_once('@').and_then(|(rate, percent)| {
            let (rate, percent) = (rate.parse().ok()?, percent.parse().ok()?);
            Some((rate, percent))
        });
        let (rate, percent) = numbers.with_context(|| {
            format!("no case '{name}'; there are round and RATE@SHARE, as 20000@10")
        })?;
        ensure!(
            rate >= STEPS && rate % STEPS == 0,
            "case '{name}': {rate} pages a second; it is a multiple of {STEPS}"
        );
        ensure!(
            (1..=95).contains(&percent),
            "case '{name}': {percent} % of a core; it is 1 to 95"
        );
        Ok(RewriteCase::Loop { rate, percent })
    }
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("cow-broken")?;
    for case in setup.cases_or(&CASES)? {
        match case {
            RewriteCase::Round => left_alone(&mut report, setup)?,
            RewriteCase::Loop { rate, percent } => held(&mut report, (rate, percent), setup)?,
        }
    }
    Ok(report)
}

/// A region that must be left alone.
fn left_alone(report: &mut Report, setup: &Setup) -> Result<()> {
    let size = setup.size_or(OTHERS_MIB);
    // The whole region in 2.5 s: at least 60 % in a round of 2 s.
    let all_pages = size * crate::units::MIB_PAGES;
    let fast = Behaviour::Rewritten {
        order: Order::InTurn,
        pages_per_step: all_pages.div_ceil(250),
        step_ms: 10,
    };
    let specs = [rewritten(setup.seed, size, fast)];
    let variants = [Variant::uksm_governor("full"), Variant::ksm_1000()];
    let rounds = Rounds::run(
        &variants,
        "rewritten every 2.5 s",
        &specs,
        watched(setup, 30),
        setup,
    )?;
    rounds.add_to(report);
    Ok(())
}

/// Both systems at the same share of a core.
fn held(report: &mut Report, (rate, percent): (usize, u32), setup: &Setup) -> Result<()> {
    let (mib, order, place) = if rate == PAPERS.0 {
        (PAPERS.1, Order::InTurn, "")
    } else {
        (OTHERS_MIB, Order::Random, " anywhere")
    };
    let mib = setup.size_or(mib);
    let behaviour = Behaviour::Rewritten {
        order,
        pages_per_step: rate / STEPS,
        step_ms: 10,
    };
    let specs = [rewritten(setup.seed, mib, behaviour)];
    let share = f64::from(percent) / 100.0;
    let case = format!("{mib} MiB, {rate} pages/s{place}, {percent} % CPU");
    // As shipped KSM leaves out pages that were examined in vain, as broken ones are for a while.
    let all = [(KsmSwitch::SmartScan, false)];
    let variants = [
        Variant::uksm_unfiltered(share),
        Variant::ksm_at(share).switched("ksm-held", &[]),
        Variant::ksm_at(share).switched("ksm-held-all", &all),
    ];
    let rounds = Rounds::run(&variants, &case, &specs, watched(setup, 300), setup)?;
    rounds.add_to(report);
    rounds.compare(report, "uksm-unfiltered", "ksm-held", "ksm");
    rounds.compare(report, "uksm-unfiltered", "ksm-held-all", "ksm-all");
    Ok(())
}

fn watched(setup: &Setup, seconds: u64) -> WatchTime {
    WatchTime {
        length: setup.limit_or(seconds),
        every: Duration::from_millis(400),
    }
}

fn rewritten(seed: u64, mib: usize, behaviour: Behaviour) -> Spec {
    let part = Part::still(Contents::Identical, 5, mib).with(behaviour);
    Spec {
        seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_and_what_is_none_is_named() {
        for name in CASES {
            name.parse::<RewriteCase>().unwrap();
        }
        let looped = "5000@2".parse::<RewriteCase>().unwrap();
        assert_eq!(
            looped,
            RewriteCase::Loop {
                rate: 5000,
                percent: 2
            }
        );
        for (name, said) in [
            ("fast", "no case 'fast'"),
            ("150@2", "case '150@2': 150 pages a second"),
            ("200@0", "case '200@0': 0 % of a core"),
            ("200@x", "no case '200@x'"),
        ] {
            let error = name.parse::<RewriteCase>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}

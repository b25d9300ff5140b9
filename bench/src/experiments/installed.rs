//! installed: what a user gets with the defaults, beside KSM as hosts set it.
//!
//! Every system has the same window, which begins when it starts (`--seconds`, by default 30): the
//! start of the daemon and the loading of its programs are in it, and so is what a system does
//! when it is done. Huge pages are allowed, as Debian allows them, and no filter of uksm is off.
//!
//! Cases, of mappings of at least 256 MiB (`--size`) in all: `clone` (two equal processes), `mixed`
//! (one process, random pages first, as many equal ones), the captured memory of `redis`, `python`,
//! `node`, `guests`, `desktop`, as often as that takes, each time with other contents, and `zeros`:
//! a machine that zeroes its free memory; 70 % are zeros, of which 5 % are written a minute, and
//! are zero again. There uksm has `merge = "zero"`, and KSM `use_zero_pages`.
//!
//! Figures, the means of all runs with their intervals:
//!
//! - `net_mib`: saved at the end, less the memory of the system itself: of the daemon's process
//!   what is resident; of KSM what the kernel subtracts in `general_profit`. A frame with one
//!   mapping saves nothing, and is not counted as saved. Zeros that the kernel frees when a
//!   system has it split a huge page are: of `redis` that is nearly all.
//! - `cpu`: seconds of CPU in the window; `once`, of uksm: the same beside one process of 1 MiB
//!   without equal pages; KSM has no start. `page`: microseconds of the difference for a page
//!   that is saved at the end.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Error, Result, ensure};
use uksm_results::report::Report;

use super::replay;
use crate::comparison::rounds::rounds;
use crate::comparison::trial::{Trial, TrialResult, end, mean_figures, start_workload};
use crate::comparison::watch::Watch;
use crate::guests::huge_pages;
use crate::setup::Setup;
use crate::units::MIB_PAGES;
use crate::variants::ksm::{KsmSwitch, ScanRate, Settings};
use crate::variants::{Setting, Variant};
use crate::workload::{Behaviour, Contents, Order, Part, Process, Spec, mergeable_mib};

/// The window, in seconds.
const WINDOW: u64 = 30;
/// MiB of a case in all, at least.
const MIN_MIB: usize = 256;
/// KSM as Proxmox VE and OpenShift run it (ksmtuned) while memory is short.
const KSMTUNED: ScanRate = ScanRate {
    pages_to_scan: 1000,
    sleep_millisecs: 50,
};
const ZEROS_FAMILY: u64 = 31;
/// Pages are written in steps of this length; and their number in a minute.
const STEP_MS: u64 = 50;
const STEPS: usize = 1200;

/// All cases; the figures of others need those of the first.
const CASES: [&str; 9] = [
    "once", "clone", "mixed", "redis", "python", "node", "guests", "desktop", "zeros",
];

/// A workload, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InstalledCase(String);

impl FromStr for InstalledCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<InstalledCase> {
        let all = CASES.join(", ");
        ensure!(CASES.contains(&name), "no case '{name}'; there are {all}");
        Ok(InstalledCase(name.to_owned()))
    }
}

impl InstalledCase {
    fn specs(&self, setup: &Setup) -> Result<Vec<Spec>> {
        let mib = setup.size_or(MIN_MIB);
        let one = |parts| Spec {
            seed: setup.seed,
            parts,
            huge: true,
            mergeable: false,
        };
        Ok(match self.0.as_str() {
            "once" => vec![one(vec![Part::still(Contents::Distinct, 3, 1)])],
            "clone" => vec![one(vec![Part::still(Contents::Distinct, 3, mib / 2)]); 2],
            "mixed" => vec![Spec::mixed(setup.seed, mib / 2, mib / 2, true)],
            "zeros" => vec![one(zeros(mib))],
            trace => repeated(trace, mib, setup)?,
        })
    }

    /// A run of a system; where the memory is zeros it has its setting for them.
    fn trial(&self, mut variant: Variant, specs: &[Spec], setup: &Setup) -> Trial {
        if self.0 == "zeros" {
            match &mut variant.setting {
                Setting::Uksm(options) => options.extend(["--merge", "zero"].map(str::to_owned)),
                Setting::Ksm(settings) => settings.switches = vec![(KsmSwitch::ZeroPages, true)],
                Setting::NoDedup => {}
            }
        }
        Trial {
            variant,
            case: self.0.clone(),
            specs: specs.to_vec(),
            limit: setup.limit_or(WINDOW),
            max_runs: usize::MAX,
        }
    }
}

/// The memory of a machine that zeroes what is free: what is used, what stays zero, and what is
/// used now and then.
fn zeros(mib: usize) -> Vec<Part> {
    let zero = mib * MIB_PAGES * 7 / 10;
    let written = zero / 20;
    let part = |contents, family, pages, behaviour| Part {
        contents,
        family,
        pages,
        behaviour,
    };
    let rewritten = Behaviour::Rewritten {
        order: Order::Random,
        pages_per_step: written.div_ceil(STEPS),
        step_ms: STEP_MS,
    };
    let used = mib * MIB_PAGES - zero;
    vec![
        part(Contents::Distinct, ZEROS_FAMILY, used, Behaviour::Still),
        part(
            Contents::Zero,
            ZEROS_FAMILY,
            zero - written,
            Behaviour::Still,
        ),
        part(Contents::Zero, ZEROS_FAMILY, written, rewritten),
    ]
}

/// The processes of a trace, with other contents each time, until they have this many MiB.
fn repeated(trace: &str, mib: usize, setup: &Setup) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    let mut pages = 0;
    for number in 0.. {
        if pages >= mib * MIB_PAGES {
            break;
        }
        // Rounds add to the seed: these are far apart.
        let more = replay::still(trace, setup.seed + (number << 32))?;
        let parts = more.iter().flat_map(|spec| &spec.parts);
        pages += parts.map(|part| part.pages).sum::<usize>();
        specs.extend(more);
    }
    Ok(specs)
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("installed")?;
    huge_pages(true)?;
    let setup = &Setup {
        huge: true,
        ..setup.clone()
    };
    // The CPU of uksm beside next to nothing, by governor.
    let mut once = BTreeMap::new();
    for case in setup.cases_or::<InstalledCase>(&CASES)? {
        let specs = case.specs(setup)?;
        let run = |variants: Vec<Variant>| -> Result<Vec<(Variant, Vec<TrialResult>)>> {
            let trials = variants.into_iter();
            let trials: Vec<Trial> = trials
                .map(|variant| case.trial(variant, &specs, setup))
                .collect();
            let all = rounds(&one_window, &trials, setup.repeats, setup)?.into_iter();
            Ok(all
                .map(|(trial, runs)| (trial.variant.clone(), runs))
                .collect())
        };
        let mut all = run(vec![
            Variant::uksm_governor("quiet"),
            Variant::uksm_governor("low"),
            Variant::uksm_governor("medium"),
            Variant::uksm_governor("full"),
            Variant::ksm_shipped(),
            Variant::ksm("ksm-1000-50ms", Settings::at(KSMTUNED)),
            Variant::ksm_advisor(),
            Variant::ksm_unlimited(),
        ])?;
        if let Some((_, runs)) = all.iter().find(|(variant, _)| variant.name == "uksm-low") {
            let share = mean_figures(runs)["cpu"] / setup.limit_or(WINDOW).as_secs_f64();
            all.extend(run(vec![Variant {
                name: "ksm-held".to_owned(),
                ..Variant::ksm_at(share)
            }])?);
        }
        for (variant, mut runs) in all {
            let name = &variant.name;
            if case.0 == "once" && name.starts_with("uksm-") {
                once.insert(name.clone(), mean_figures(&runs)["cpu"]);
            }
            let once = once.get(name).copied().unwrap_or_default();
            for run in &mut runs {
                add_page(run, once);
            }
            let figures = mean_figures(&runs);
            println!("{name} {}: {figures:.2?}", case.0);
            let mut measured = case.trial(variant, &specs, setup).measured(runs);
            measured.figures.extend(figures);
            report.variants.push(measured);
        }
    }
    Ok(report)
}

/// One system for the whole window.
fn one_window(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let target = mergeable_mib(&trial.specs)?;
    let processes = start_workload(&trial.specs, &trial.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::new(&pids, setup)?.every(trial.limit / 60);
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    while watch.elapsed() < trial.limit {
        watch.look(system.as_mut())?;
    }
    let own_mib = system.own_mib();
    let mut run = end(trial, system, watch, processes, target)?;
    let last = run.last_look();
    let own_mib = own_mib + ksm_mib(&run);
    let more = [
        ("cpu", last.cpu_seconds),
        ("saved_mib", last.saved_mib),
        ("own_mib", own_mib),
        ("net_mib", last.saved_mib - own_mib),
    ];
    let more = more.map(|(name, value)| (name.to_owned(), value));
    run.figures = more.into_iter().collect();
    Ok(run)
}

/// Memory in which KSM keeps what it knows, as the kernel counts it; 0 for others, and where the
/// kernel does not say.
fn ksm_mib(run: &TrialResult) -> f64 {
    let counter = |name: &str| run.counters.as_ref()?.get(name)?.as_f64();
    let gain =
        counter("pages_sharing").map(|pages| pages + counter("ksm_zero_pages").unwrap_or(0.0));
    match gain.zip(counter("general_profit")) {
        Some((pages, profit)) => (pages * 4096.0 - profit) / f64::from(1 << 20),
        None => 0.0,
    }
}

/// Adds what a saved page took beyond `once`, where a MiB was saved.
fn add_page(run: &mut TrialResult, once: f64) {
    let pages = run.figures["saved_mib"] * MIB_PAGES as f64;
    let page = (run.figures["cpu"] - once) * 1e6 / pages;
    run.figures.insert("once".to_owned(), once);
    if pages >= MIB_PAGES as f64 {
        run.figures.insert("page".to_owned(), page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_known_by_its_name() {
        for name in CASES {
            assert_eq!(name.parse::<InstalledCase>().unwrap().0, name);
        }
        let error = "cloud".parse::<InstalledCase>().unwrap_err().to_string();
        assert!(
            error.starts_with("no case 'cloud'; there are once, clone"),
            "{error}"
        );
    }

    #[test]
    fn a_machine_of_zeros_writes_five_percent_of_them_a_minute() {
        let parts = zeros(256);
        let zero: usize = parts[1..].iter().map(|part| part.pages).sum();
        assert_eq!(parts[0].pages + zero, 256 * MIB_PAGES);
        let Behaviour::Rewritten { pages_per_step, .. } = parts[2].behaviour else {
            panic!("{parts:?}")
        };
        let a_minute = pages_per_step * STEPS;
        assert_eq!(STEPS as u64 * STEP_MS, 60_000);
        assert!(
            (zero / 20..zero / 14).contains(&a_minute),
            "{a_minute} of {zero}"
        );
    }
}

//! The average savings of systems on a workload that never settles.
//!
//! Systems take turns, in rounds, as in [`super::trial`]: those of a round have the same contents,
//! and run in random order.

use std::time::Duration;

use anyhow::Result;
use uksm_results::interval::Interval;
use uksm_results::report::{Measured, Report};
use uksm_results::timeline::{median, nearest_median};

use super::rounds::{Compared, rounds};
use super::trial::{Trial, end, start_workload};
use super::watch::Watch;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::variants::uksm::LOADED;
use crate::workload::{Process, Spec};

/// Time before averaging begins: loads that are held at a share of CPU settle, and the daemon has
/// loaded its programs.
const WARM_UP: f64 = LOADED.as_secs() as f64;

/// The time that a workload is watched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchTime {
    /// The whole time.
    pub length: Duration,
    /// Least time between two looks, where that may be long: looking takes CPU, which a guest with
    /// one CPU takes from the measured system.
    pub every: Duration,
}

/// The averaged figure: memory saved.
const SAVED: &str = "mean_saved_mib";
/// A KSM that saves nothing must not make an infinite ratio: one page at least.
const PAGE_MIB: f64 = 1.0 / 256.0;
/// Limit of rounds: each takes the whole time of each system.
const MAX_ROUNDS: usize = 3;

/// Several systems on one workload, each once in each round.
pub(crate) struct Rounds {
    case: String,
    /// The rounds of each system.
    systems: Vec<Vec<Measured>>,
}

impl Rounds {
    /// Runs them; systems that are unwanted or missing are left out.
    pub(crate) fn run(
        variants: &[Variant],
        case: &str,
        specs: &[Spec],
        watched: WatchTime,
        setup: &Setup,
    ) -> Result<Rounds> {
        let trial = |variant: &Variant| Trial {
            variant: variant.clone(),
            case: case.to_owned(),
            specs: specs.to_vec(),
            limit: watched.length,
            max_runs: MAX_ROUNDS,
        };
        let trials: Vec<Trial> = variants.iter().map(trial).collect();
        let once = |trial: &Trial, setup: &Setup| watch(trial, watched.every, setup);
        let systems = rounds(&once, &trials, setup.repeats, setup)?.into_iter();
        Ok(Rounds {
            case: case.to_owned(),
            systems: systems.map(|(_, measured)| measured).collect(),
        })
    }

    /// Adds each system's saving to a report: the median of several rounds, with their spread.
    pub(crate) fn add_to(&self, report: &mut Report) {
        for rounds in &self.systems {
            let saved = saved(rounds);
            let Some(at) = nearest_median(&saved) else {
                continue;
            };
            let mut measured = rounds[at].clone();
            let least = saved.iter().copied().fold(f64::INFINITY, f64::min);
            let most = saved.iter().copied().fold(0.0, f64::max);
            let more = [("least_saved_mib", least), ("most_saved_mib", most)];
            if rounds.len() > 1 {
                measured
                    .figures
                    .extend(more.map(|(name, value)| (name.to_owned(), value)));
            }
            report.variants.push(measured);
        }
    }

    /// Adds the ratio of one system's saving to another's, under this name: the mean of the rounds,
    /// and its interval.
    pub(crate) fn compare(&self, report: &mut Report, ours: &str, theirs: &str, named: &str) {
        let of = |name: &str| {
            let mut systems = self.systems.iter();
            systems.find(|rounds| rounds.first().is_some_and(|first| first.name == name))
        };
        let Some((ours, of_theirs)) = of(ours).zip(of(theirs)) else {
            return;
        };
        let pairs = saved(ours).into_iter().zip(saved(of_theirs));
        let ratios: Vec<f64> = pairs
            .map(|(ours, theirs)| ours / theirs.max(PAGE_MIB))
            .collect();
        let name = format!("saved_vs_{named}@{}", self.case);
        let interval = Interval::of(&ratios);
        let ratio = interval.as_ref().map(|interval| interval.ratio);
        if let Some(ratio) = ratio.or_else(|| median(&ratios)) {
            report.ratios.insert(name.clone(), ratio);
        }
        report.intervals.extend(interval.map(|found| (name, found)));
    }
}

fn saved(rounds: &[Measured]) -> Vec<f64> {
    rounds.iter().map(Compared::figure).collect()
}

impl Compared for Measured {
    fn figure(&self) -> f64 {
        self.figures[SAVED]
    }
}

/// Watches a workload that never settles, and averages; looks at most once in `every`.
fn watch(trial: &Trial, every: Duration, setup: &Setup) -> Result<Measured> {
    let (variant, case) = (&trial.variant, &trial.case);
    let mut processes = start_workload(&trial.specs, variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::new(&pids, setup)?.every(every);
    watch.open_window(f64::INFINITY, Duration::ZERO);
    watch.begin()?;
    let mut system = variant.start(setup, &pids)?;
    while watch.elapsed() < trial.limit {
        watch.look(system.as_mut())?;
    }
    let mut written = 0;
    for process in &mut processes {
        written += process.written()?;
    }
    let seconds = watch.elapsed().as_secs_f64();
    // The mergeable memory changes all the time.
    let run = end(trial, system, watch, processes, 0.0)?;
    let (saved, mapped) = run.looks.means_from(WARM_UP).unwrap_or_default();
    let share = run.looks.cpu_share_from(WARM_UP).unwrap_or_default();
    println!(
        "{} {case}: {saved:.1} MiB saved of {mapped:.1} on average, {:.2} % of a core",
        variant.name,
        100.0 * share
    );
    let mut measured = trial.measured(vec![run]);
    measured.figures.extend([
        (SAVED.to_owned(), saved),
        ("mean_mapped_mib".to_owned(), mapped),
        ("cpu_percent".to_owned(), 100.0 * share),
        (
            "written_pages_per_second".to_owned(),
            written as f64 / seconds,
        ),
    ]);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(name: &str, saved: &[f64]) -> Vec<Measured> {
        let round = |&saved: &f64| Measured {
            name: name.to_owned(),
            figures: [(SAVED.to_owned(), saved)].into(),
            ..Measured::default()
        };
        saved.iter().map(round).collect()
    }

    fn report_of(rounds: &Rounds) -> Report {
        let mut report = Report::default();
        rounds.add_to(&mut report);
        rounds.compare(&mut report, "ours", "theirs", "theirs");
        report
    }

    #[test]
    fn the_middle_round_is_reported_and_ratios_are_those_of_pairs() {
        let report = report_of(&Rounds {
            case: "T".to_owned(),
            systems: vec![
                rounds("ours", &[40.0, 10.0, 90.0]),
                rounds("theirs", &[20.0, 10.0, 30.0]),
            ],
        });
        let ours = &report.variants[0].figures;
        assert_eq!((ours[SAVED], ours["least_saved_mib"]), (40.0, 10.0));
        assert_eq!(ours["most_saved_mib"], 90.0);
        // The mean of 2, 1 and 3 by their logarithms.
        let interval = &report.intervals["saved_vs_theirs@T"];
        assert!((interval.ratio - 6.0_f64.cbrt()).abs() < 1e-9 && interval.pairs == 3);
        assert_eq!(report.ratios["saved_vs_theirs@T"], interval.ratio);
    }

    #[test]
    fn one_round_has_no_interval_and_a_system_that_saves_nothing_no_infinite_ratio() {
        let report = report_of(&Rounds {
            case: "T".to_owned(),
            systems: vec![rounds("ours", &[1.0]), rounds("theirs", &[0.0])],
        });
        assert!(report.intervals.is_empty());
        assert_eq!(report.ratios["saved_vs_theirs@T"], 256.0);
        assert!(!report.variants[0].figures.contains_key("least_saved_mib"));
    }
}

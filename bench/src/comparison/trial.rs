//! One variant against one workload, watched until the memory is merged.
//!
//! The workload is mapped and filled before the clock starts, so a variant is charged for all its
//! own work from then on and for no other work.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use uksm_results::Outcome;
use uksm_results::interval::Interval;
use uksm_results::report::Measured;
use uksm_results::report::Window;
use uksm_results::timeline::{Look, Timeline, nearest_median};

use super::watch::Watch;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::variants::{System, Variant, ksm};
use crate::workload::{Process, Spec, mergeable_mib};

/// A variant stays watched for this long after 95 %, to see its further progress.
const AFTERWARDS: Duration = Duration::from_millis(1500);

/// A variant and its workload.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    /// The system and its setting.
    pub variant: Variant,
    /// Size or order, if there are several.
    pub case: String,
    /// The workload.
    pub specs: Vec<Spec>,
    /// Its time limit.
    pub limit: Duration,
    /// Limit of the runs of this variant, if one is long.
    pub most_runs: usize,
}

/// The results of one run.
#[derive(Debug, Clone)]
pub(crate) struct TrialResult {
    /// All looks.
    pub looks: Timeline,
    /// MiB that merging everything would save.
    pub mergeable_mib: f64,
    /// Pages found unchanged afterwards.
    pub verified_pages: u64,
    /// Largest memory of the daemon.
    pub own_mib: f64,
    /// The system's own counters.
    pub counters: Option<Value>,
    /// The parts of its CPU.
    pub figures: BTreeMap<String, f64>,
    /// The part whose instructions were counted by function.
    pub window: Option<Window>,
}

impl TrialResult {
    /// The moment at which 95 % of the mergeable memory was merged.
    pub(crate) fn at_95(&self) -> Option<Look> {
        self.looks
            .reaches(0.95 * self.mergeable_mib)
            .filter(|_| self.mergeable_mib > 0.0)
    }

    /// Adds the CPU and the time of merging half of the mergeable memory, if it came so far.
    pub(crate) fn add_half(&mut self) {
        if let Some(half) = self.looks.reaches(self.mergeable_mib / 2.0) {
            self.figures
                .insert("half_cpu_seconds".to_owned(), half.cpu_seconds);
            self.figures.insert("half_seconds".to_owned(), half.seconds);
        }
    }

    /// Its outcome.
    fn outcome(&self) -> Outcome {
        let judged = self.judged();
        Outcome {
            mib_per_cpu_second: if judged.cpu_seconds > 0.0 {
                judged.saved_mib / judged.cpu_seconds
            } else {
                0.0
            },
            reached_seconds: self.at_95().map(|look| look.seconds),
        }
    }

    /// The same, or the end.
    pub(crate) fn judged(&self) -> Look {
        let nothing = Look {
            seconds: 0.0,
            cpu_seconds: 0.0,
            saved_mib: 0.0,
            mapped_mib: 0.0,
        };
        self.at_95()
            .or_else(|| self.looks.last())
            .unwrap_or(nothing)
    }
}

/// Starts the processes of a workload, in order, and waits until they are filled.
pub(crate) fn start_workload(
    specs: &[Spec],
    variant: &Variant,
    setup: &Setup,
) -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    for spec in specs {
        let spec = Spec {
            mergeable: variant.needs_mergeable(),
            huge: setup.huge,
            ..spec.clone()
        };
        // One after the other: in-kernel KSM visits them in the order in which they offered.
        let mut process = Process::start(&spec)?;
        process.ready()?;
        processes.push(process);
    }
    Ok(processes)
}

/// Runs one variant once.
pub(crate) fn run(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let target = mergeable_mib(&trial.specs)?;
    let processes = start_workload(&trial.specs, &trial.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::of_parts(&trial.specs, &pids, setup)?;
    watch.open_window(target, Duration::ZERO);
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    trial.watch(&mut watch, system.as_mut(), target)?;
    let run = end(trial, system, watch, processes, target)?;
    trial.say(&run);
    Ok(run)
}

/// Ends a run: stops the system and makes every process read its memory.
pub(crate) fn end(
    trial: &Trial,
    system: Box<dyn System>,
    watch: Watch,
    mut processes: Vec<Process>,
    mergeable_mib: f64,
) -> Result<TrialResult> {
    end_after(trial, system, watch, mergeable_mib, move || {
        processes.iter_mut().map(Process::verify).sum()
    })
}

/// The same with other processes: `verify` has them, and counts the pages that it finds unchanged.
pub(crate) fn end_after(
    trial: &Trial,
    mut system: Box<dyn System>,
    mut watch: Watch,
    mergeable_mib: f64,
    verify: impl FnOnce() -> Result<u64>,
) -> Result<TrialResult> {
    let window = watch.close_window(system.as_ref())?;
    let (counters, figures) = (system.report(), watch.figures(system.as_ref())?);
    system.stop().with_context(|| trial.label())?;
    let verified_pages = verify().with_context(|| trial.label())?;
    drop(system);
    ksm::settle()?;
    Ok(TrialResult {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib,
        verified_pages,
        counters,
        figures,
        window,
    })
}

impl Trial {
    /// The same with the contents of another round.
    pub(crate) fn in_round(&self, round: usize) -> Trial {
        let shift = |spec: &Spec| Spec {
            seed: spec.seed.wrapping_add(round as u64),
            ..spec.clone()
        };
        Trial {
            specs: self.specs.iter().map(shift).collect(),
            ..self.clone()
        }
    }

    /// Limit of the rounds in which it runs: if ratios must be certain, variants with several runs
    /// run as often as that takes.
    fn most_rounds(&self, setup: &Setup) -> usize {
        if setup.within.is_some() && self.most_runs > 1 {
            setup.most_repeats
        } else {
            self.most_runs
        }
    }

    /// Its name in messages.
    fn label(&self) -> String {
        format!("{} {}", self.variant.name, self.case)
    }

    /// Prints the progress of a run.
    pub(crate) fn say(&self, run: &TrialResult) {
        let judged = run.judged();
        println!(
            "{}: {:.1} of {:.1} MiB after {:.2} s, {:.3} s CPU",
            self.label(),
            judged.saved_mib,
            run.mergeable_mib,
            judged.seconds,
            judged.cpu_seconds
        );
    }

    /// Looks until the memory is merged, or until the time of the variant is over.
    pub(crate) fn watch(
        &self,
        watch: &mut Watch,
        system: &mut dyn System,
        target: f64,
    ) -> Result<()> {
        let mut reached = None;
        while watch.elapsed() < self.limit {
            let look = watch.look(system)?;
            if look.saved_mib >= 0.95 * target {
                let since = *reached.get_or_insert_with(Instant::now);
                if since.elapsed() > AFTERWARDS || look.saved_mib >= 0.999 * target {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The result of all runs: the median one by CPU.
    pub(crate) fn measured(&self, mut runs: Vec<TrialResult>) -> Measured {
        let cpu: Vec<f64> = runs.iter().map(|run| run.judged().cpu_seconds).collect();
        let outcomes = runs.iter().map(TrialResult::outcome).collect();
        let windows = runs.iter().filter_map(|run| run.window.clone()).collect();
        let Some(at) = nearest_median(&cpu) else {
            return Measured::default();
        };
        let run = runs.swap_remove(at);
        let judged = run.judged();
        Measured {
            name: self.variant.name.clone(),
            case: self.case.clone(),
            wall_seconds: judged.seconds,
            cpu_seconds: judged.cpu_seconds,
            saved_mib: run.looks.last().map_or(0.0, |look| look.saved_mib),
            mergeable_mib: run.mergeable_mib,
            finished: run.at_95().is_some(),
            seconds_to_95_percent: run.at_95().map(|look| look.seconds),
            mib_per_cpu_second: run.outcome().mib_per_cpu_second,
            verified_pages: run.verified_pages,
            daemon_mib: run.own_mib,
            cpu_seconds_of_runs: cpu,
            outcomes,
            looks: run.looks,
            counters: run.counters,
            figures: run.figures,
            windows,
            ..Measured::default()
        }
    }
}

/// A family of contents that no page has.
const ORDER: u64 = 1 << 42;

/// The order of the trials of a round: random, so that none always follows the same one. In another
/// boot it is the same.
pub(crate) fn order(count: usize, setup: &Setup) -> Vec<usize> {
    let mut draws = Rng::new(setup.round_seed(), ORDER);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, draws.below(last + 1));
    }
    order
}

/// Runs each trial `repeats` times, in rounds: those of a round have the same contents, which no
/// other round has.
pub(crate) fn interleave(trials: &[Trial], repeats: usize, setup: &Setup) -> Result<Vec<Measured>> {
    interleave_by(&run, trials, repeats, setup)
}

/// The same, with `once` as one run of a trial.
pub(crate) fn interleave_by(
    once: &dyn Fn(&Trial, &Setup) -> Result<TrialResult>,
    trials: &[Trial],
    repeats: usize,
    setup: &Setup,
) -> Result<Vec<Measured>> {
    let runs = rounds(once, trials, repeats, setup)?.into_iter();
    Ok(runs.map(|(trial, runs)| trial.measured(runs)).collect())
}

/// The figure of a run that is compared with the others of its round.
pub(crate) trait Compared {
    /// More of it is better; nothing is 0.
    fn figure(&self) -> f64;
}

impl Compared for TrialResult {
    fn figure(&self) -> f64 {
        self.outcome().mib_per_cpu_second
    }
}

/// The results of each trial that is run here, in all its rounds: `repeats` of them, and more if the
/// setup requires a certainty of ratios.
pub(crate) fn rounds<'a, T: Compared>(
    once: &dyn Fn(&Trial, &Setup) -> Result<T>,
    trials: &'a [Trial],
    repeats: usize,
    setup: &Setup,
) -> Result<Vec<(&'a Trial, Vec<T>)>> {
    let here = trials.iter().filter(|trial| trial.variant.is_run(setup));
    let mut trials: Vec<(&Trial, Vec<T>)> = here.map(|trial| (trial, Vec::new())).collect();
    let goes_on = |round: usize, trials: &[(&Trial, Vec<T>)]| {
        let further = |percent| round < setup.most_repeats && !sure(trials, percent / 100.0, setup);
        round < repeats || setup.within.is_some_and(further)
    };
    for round in 0.. {
        if !goes_on(round, &trials) {
            break;
        }
        let setup = setup.in_round(round);
        for at in order(trials.len(), &setup) {
            let (trial, runs) = &mut trials[at];
            if round < trial.most_rounds(&setup) {
                runs.push(once(&trial.in_round(round), &setup)?);
            }
        }
    }
    Ok(trials)
}

/// Least rounds for a valid interval: this many contents.
const FEWEST_ROUNDS: usize = 3;

/// Whether no ratio of ours to a KSM of the same case would be surer after one more round, or each
/// is as sure as this share of it.
fn sure<T: Compared>(trials: &[(&Trial, Vec<T>)], share: f64, setup: &Setup) -> bool {
    let of = |prefix: &'static str| {
        let named = move |trial: &Trial| trial.variant.name.starts_with(prefix);
        trials.iter().filter(move |(trial, _)| named(trial))
    };
    of("uksm-").all(|(trial, ours)| {
        let mut peers = of("ksm-").filter(|(peer, runs)| {
            peer.case == trial.case
                && runs.len() == ours.len()
                && runs.len() < peer.most_rounds(setup)
        });
        let has_room = ours.len() < trial.most_rounds(setup);
        !has_room
            || peers.all(|(_, theirs)| {
                let pairs = ours.iter().zip(theirs);
                let ratios: Vec<f64> = pairs
                    .map(|(our, their)| our.figure() / their.figure())
                    .collect();
                let interval = Interval::of(&ratios);
                // Two runs of which one saves nothing have no ratio after any number of
                // repetitions.
                ratios.len() >= FEWEST_ROUNDS
                    && interval.is_none_or(|found| found.spread() <= share)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::cell::Cell;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        setup: Setup,
    }

    #[test]
    fn each_round_has_an_order_of_its_own_and_the_same_in_every_boot() {
        let setup = Line::try_parse_from(["run"]).unwrap().setup;
        let of_round = |round: usize| order(4, &setup.in_round(round));
        let firsts: std::collections::BTreeSet<usize> =
            (0..40).map(|round| of_round(round)[0]).collect();
        assert_eq!(firsts.len(), 4, "each comes first at times");
        for round in 0..40 {
            let mut all = of_round(round);
            assert_eq!(all, of_round(round));
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3]);
        }
    }

    impl Compared for f64 {
        fn figure(&self) -> f64 {
            *self
        }
    }

    /// The number of rounds of two variants if ours is this much better in each.
    fn rounds_of(options: &[&str], most_runs: usize, ratio: impl Fn(usize) -> f64) -> usize {
        let setup = Line::try_parse_from([&["run"], options].concat())
            .unwrap()
            .setup;
        let trial = |variant| Trial {
            variant,
            case: String::new(),
            specs: Vec::new(),
            limit: Duration::ZERO,
            most_runs,
        };
        let trials = [
            trial(Variant::uksm_governor("full")),
            trial(Variant::ksm_unlimited()),
        ];
        let runs = Cell::new(0);
        let once = |trial: &Trial, setup: &Setup| {
            runs.set(runs.get() + 1);
            let is_ours = trial.variant.name.starts_with("uksm-");
            Ok(if is_ours { ratio(setup.round) } else { 1.0 })
        };
        rounds(&once, &trials, 3, &setup).unwrap();
        assert_eq!(runs.get() % 2, 0);
        runs.get() / 2
    }

    #[test]
    fn rounds_go_on_until_ratios_are_sure() {
        let unsure = |round: usize| if round < 3 { 2.0 + round as f64 } else { 3.0 };
        let within = ["--within", "5"];
        assert_eq!(rounds_of(&[], 100, unsure), 3);
        assert_eq!(rounds_of(&within, 100, |_| 3.0), 3, "sure at once");
        let needed = rounds_of(&within, 100, unsure);
        assert!((4..30).contains(&needed), "{needed}");
        let looser = rounds_of(&["--within", "20"], 100, unsure);
        assert!((4..needed).contains(&looser), "{looser}");
    }

    #[test]
    fn rounds_end_where_no_ratio_gets_surer() {
        let never = |round: usize| if round.is_multiple_of(2) { 1.0 } else { 9.0 };
        let bounded = ["--within", "5", "--most-repeats", "7"];
        assert_eq!(rounds_of(&bounded, 100, never), 7);
        assert_eq!(rounds_of(&bounded, 4, never), 7);
        assert_eq!(rounds_of(&bounded, 1, never), 1, "once is once");
        assert_eq!(rounds_of(&bounded, 100, |_| 0.0), 3, "there is no ratio");
    }
}

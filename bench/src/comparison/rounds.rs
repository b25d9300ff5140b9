//! Trials in rounds: each once in each, in random order, until their ratios are certain.

use anyhow::Result;
use uksm_results::interval::Interval;
use uksm_results::report::Measured;

use super::trial::{self, Trial, TrialResult};
use crate::rng::{Rng, shuffle};
use crate::setup::Setup;

/// A family of contents that no page has.
const ORDER: u64 = 1 << 42;

/// The order of the trials of a round: random, so that none always follows the same one. In another
/// boot it is the same.
pub(crate) fn order(count: usize, setup: &Setup) -> Vec<usize> {
    let mut draws = Rng::new(setup.round_seed(), ORDER);
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, &mut draws);
    order
}

/// Runs each trial `repeats` times, in rounds: those of a round have the same contents, which no
/// other round has.
pub(crate) fn interleave(trials: &[Trial], repeats: usize, setup: &Setup) -> Result<Vec<Measured>> {
    interleave_by(&trial::run, trials, repeats, setup)
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

/// The results of each trial that is run here, in all its rounds: `repeats` of them, and more if
/// the setup requires a certainty of ratios.
pub(crate) fn rounds<'a, T: Compared>(
    once: &dyn Fn(&Trial, &Setup) -> Result<T>,
    trials: &'a [Trial],
    repeats: usize,
    setup: &Setup,
) -> Result<Vec<(&'a Trial, Vec<T>)>> {
    let here = trials.iter().filter(|trial| trial.variant.is_run(setup));
    let mut trials: Vec<(&Trial, Vec<T>)> = here.map(|trial| (trial, Vec::new())).collect();
    let goes_on = |round: usize, trials: &[(&Trial, Vec<T>)]| {
        let further = |percent| round < setup.max_repeats && !sure(trials, percent / 100.0, setup);
        round < repeats || setup.within.is_some_and(further)
    };
    for round in 0.. {
        if !goes_on(round, &trials) {
            break;
        }
        let setup = setup.in_round(round);
        for at in order(trials.len(), &setup) {
            let (trial, runs) = &mut trials[at];
            if round < trial.max_rounds(&setup) {
                runs.push(once(&trial.in_round(round), &setup)?);
            }
        }
    }
    Ok(trials)
}

/// Least rounds for a valid interval: this many contents.
const MIN_ROUNDS: usize = 3;

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
                && runs.len() < peer.max_rounds(setup)
        });
        let has_room = ours.len() < trial.max_rounds(setup);
        !has_room
            || peers.all(|(_, theirs)| {
                let pairs = ours.iter().zip(theirs);
                let ratios: Vec<f64> = pairs
                    .map(|(our, their)| our.figure() / their.figure())
                    .collect();
                let interval = Interval::of(&ratios);
                // Two runs of which one saves nothing have no ratio after any number of
                // repetitions.
                ratios.len() >= MIN_ROUNDS && interval.is_none_or(|found| found.spread() <= share)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::cell::Cell;
    use std::time::Duration;

    use crate::variants::Variant;

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
    fn rounds_of(options: &[&str], max_runs: usize, ratio: impl Fn(usize) -> f64) -> usize {
        let setup = Line::try_parse_from([&["run"], options].concat())
            .unwrap()
            .setup;
        let trial = |variant| Trial {
            variant,
            case: String::new(),
            specs: Vec::new(),
            limit: Duration::ZERO,
            max_runs,
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

//! Measures one variant in one case.

use uksm_policy::command::{Nanos, PAGE_SIZE};
use uksm_policy::params::Governor;
use uksm_results::over_time;
use uksm_results::report::Measured;
use uksm_results::timeline::{Look, Timeline};

use super::case::{Case, MIB, Variant};
use super::measurable::{Measurable, Oracle, mergeable_pages};
use super::setup::Setup;
use super::{hints, reachability};
use crate::peer::{Ksm, Xlh};
use crate::run::Driven;
use crate::stopwatch::{self, Real};
use crate::world::{Alone, World};
use crate::{Host, convert};

/// Looks in the course of a case.
const LOOKS: u64 = 100;
/// Looks between two counts of the mergeable pages, which examine all pages.
const MERGEABLE_EVERY: usize = 4;
/// Turns between two checks of the engine's memory.
const MEMORY_EVERY: u64 = 512;

/// A variant in a case.
#[derive(Debug)]
pub(super) struct CaseResult {
    /// Its figures.
    pub(super) measured: Measured,
    /// Memory of the workload.
    pub(super) memory_mib: u64,
    /// Times of the run on this machine, which are not part of its result.
    pub(super) real: Real,
}

/// Runs a variant in a case.
pub(super) fn measure(setup: &Setup, case: &Case, variant: Variant) -> Result<CaseResult, String> {
    let mut host = Host::new(setup.seed, setup.costs);
    if case.chances {
        host.count_chances();
    }
    let world = World::new(host, (case.workloads)());
    match variant {
        Variant::Uksm(governor) => {
            let driven = engine(setup, governor, &[])?;
            Ok(course(case, variant, Alone::new(world, driven)))
        }
        Variant::Set(_, own) => {
            let driven = engine(setup, Governor::Full, own)?;
            Ok(course(case, variant, Alone::new(world, driven)))
        }
        Variant::KsmTree(_, settings) => {
            let ksm = Ksm::new(settings, setup.costs.ksm).on_a_tree();
            Ok(course(case, variant, Alone::new(world, ksm)))
        }
        Variant::Xlh(_, settings) => {
            let xlh = Xlh::new(settings, setup.costs.ksm);
            Ok(course(case, variant, Alone::new(world, xlh)))
        }
        Variant::Oracle => Ok(course(case, variant, Alone::new(world, Oracle))),
        Variant::Indexed(what) => Ok(CaseResult {
            measured: reachability::measured(what, case, setup),
            memory_mib: 0,
            real: Real::default(),
        }),
        Variant::Ksm(_, settings) => {
            let ksm = Ksm::new(settings, setup.costs.ksm);
            Ok(course(case, variant, Alone::new(world, ksm)))
        }
    }
}

fn engine(setup: &Setup, governor: Governor, own: &[(&str, &str)]) -> Result<Driven, String> {
    let driven = Driven::new(setup.params(governor, own)?, setup.seed, 0);
    driven.map_err(|error| error.to_string())
}

/// Runs a deduplicator to the end of the case.
fn course<D: Measurable>(case: &Case, variant: Variant, mut alone: Alone<D>) -> CaseResult {
    let begun = stopwatch::thread_time();
    let mut longest = 0;
    let mut turns = 0;
    let mut most_bytes = 0;
    let mut turn = |alone: &mut Alone<D>| {
        let before = alone.spent();
        alone.turn();
        longest = longest.max(alone.spent() - before);
        turns += 1;
        if turns % MEMORY_EVERY == 0 {
            most_bytes = most_bytes.max(alone.deduplicator.bytes());
        }
    };
    let arrival = case.arrival.unwrap_or(0);
    while alone.now() < arrival {
        turn(&mut alone);
    }
    alone.deduplicator.watch(&alone.world.host);
    while alone.now() < case.begin {
        turn(&mut alone);
    }
    let bytes_before = alone.deduplicator.bytes();
    let begin = case.begin.max(1);
    alone.world.pass(alone.now().max(begin));
    let spent_before = alone.spent();
    let memory = alone.world.host.resident();
    let mut mergeable = mergeable_pages(&mut alone.world.host);
    let mut looks = vec![];
    let mut shares = vec![];
    let mut turns_seen = vec![];
    let mut next_look = begin;
    let mut judged = None;
    let mut end = begin + case.limit;
    loop {
        let saved = saved(&mut alone);
        if case.warm_up.is_some() {
            turns_seen.push(look(&alone, saved, begin, spent_before));
        }
        if alone.now() >= next_look {
            next_look += case.limit / LOOKS;
            if case.percent.is_none() && looks.len() % MERGEABLE_EVERY == 0 {
                mergeable = mergeable_pages(&mut alone.world.host);
                shares.push(convert::ratio(saved, mergeable));
            }
            looks.push(look(&alone, saved, begin, spent_before));
        }
        let reached = case.percent.is_some_and(|p| saved * 100 >= mergeable * p);
        if reached && judged.is_none() {
            judged = Some(look(&alone, saved, begin, spent_before));
            end = end.min(alone.now() + case.after);
        }
        if alone.now() >= end || judged.is_some() && saved * 1000 >= mergeable * 999 {
            break;
        }
        turn(&mut alone);
    }
    let finished = judged.is_some();
    let saved = saved(&mut alone);
    let end = look(&alone, saved, begin, spent_before);
    let last = judged.unwrap_or(end);
    looks.push(end);
    let mut figures = alone.deduplicator.figures();
    figures.insert("longest_step_seconds".into(), convert::seconds(longest));
    let memory = memory.max(alone.world.host.resident()).max(1);
    let memory_bytes = memory * PAGE_SIZE;
    let gib = memory_bytes as f64 / f64::from(1 << 30);
    figures.insert("cpu_seconds_per_gib".into(), last.cpu_seconds / gib);
    let bytes = alone.deduplicator.bytes();
    let part = convert::ratio(bytes.max(most_bytes), memory_bytes);
    figures.insert("engine_part_of_memory".into(), part);
    let growth = bytes as f64 - bytes_before as f64;
    figures.insert("engine_growth_mib".into(), growth / f64::from(1 << 20));
    if let Some(looked) = alone.deduplicator.first_look() {
        let since = looked.saturating_sub(arrival);
        figures.insert("first_look_seconds".into(), convert::seconds(since));
    }
    if !shares.is_empty() {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        figures.insert("mean_saved_share".into(), mean);
        let share = last.cpu_seconds / last.seconds;
        figures.insert("cpu_share".into(), share);
    }
    if let Some(warm_up) = case.warm_up {
        figures.extend(means(&turns_seen, convert::seconds(warm_up)));
        let rate = alone.world.host.writes as f64 / end.seconds;
        figures.insert("written_pages_per_second".into(), rate);
    }
    if let Some(chances) = alone.world.host.chances() {
        mergeable = chances.mergeable();
        figures.extend(hints::figures(variant, chances));
    }
    let measured = Measured {
        name: variant.name(),
        case: case.name.clone(),
        wall_seconds: last.seconds,
        cpu_seconds: last.cpu_seconds,
        saved_mib: end.saved_mib,
        mergeable_mib: convert::mib(mergeable),
        finished,
        seconds_to_95_percent: (finished && case.percent == Some(95)).then_some(last.seconds),
        mib_per_cpu_second: if last.cpu_seconds > 0.0 {
            last.saved_mib / last.cpu_seconds
        } else {
            0.0
        },
        daemon_mib: most_bytes.max(alone.deduplicator.bytes()) as f64 / f64::from(1 << 20),
        figures,
        looks: Timeline(looks),
        ..Measured::default()
    };
    CaseResult {
        measured,
        memory_mib: memory / MIB,
        real: Real {
            seconds: convert::seconds(stopwatch::thread_time() - begun),
            steps: alone.deduplicator.real_steps(),
        },
    }
}

/// The mean saving from a time on, and the share of a core that was used. The looks are those of
/// all turns: the figures' own looks come with the first turn after their time, and so more often
/// after a long sleep, in which pages are written, than after the work that merges them.
fn means(looks: &[Look], from: f64) -> Vec<(String, f64)> {
    let points = |value: fn(&Look) -> f64| -> Vec<(f64, f64)> {
        looks
            .iter()
            .map(|look| (look.seconds, value(look)))
            .collect()
    };
    let saved = over_time::mean(&points(|look| look.saved_mib), from);
    let share = over_time::rate(&points(|look| look.cpu_seconds), from);
    let saved = saved.map(|saved| ("mean_saved_mib".to_owned(), saved));
    let share = share.map(|share| ("cpu_percent".to_owned(), 100.0 * share));
    saved.into_iter().chain(share).collect()
}

fn saved<D: Measurable>(alone: &mut Alone<D>) -> u64 {
    alone.deduplicator.saved(&mut alone.world.host)
}

/// A look at which `saved` pages are saved.
fn look<D: Measurable>(alone: &Alone<D>, saved: u64, begin: Nanos, spent_before: Nanos) -> Look {
    Look {
        seconds: convert::seconds(alone.now().saturating_sub(begin)),
        cpu_seconds: convert::seconds(alone.spent() - spent_before),
        saved_mib: convert::mib(saved),
        ..Look::default()
    }
}

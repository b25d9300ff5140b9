//! Measured costs of the steps of an engine.
//!
//! # Problem
//! On a simulated host everything has a cost from a file. The engine's own time is no part of any
//! call, so measurements of the module do not contain it.
//!
//! # Approach
//! The engine is real here. So its steps are measured, on this machine, while it works on small
//! simulated hosts: one where no page has a twin, one where each has one twin, one where all pages
//! are equal, and one with merged pages of which one is written now and then, so that they are read
//! again, adjacent or scattered. A step that processes no page is the fixed part. The remaining
//! time of the steps on the last host is divided among the merged pages and their runs; on the
//! first, among the pages, with the growth of the index. The time added by merging is divided among
//! the outcomes of FOLD on the others.
//!
//! # Units
//! Nanoseconds of this thread's processor time; instructions, where the clock counts those.

use uksm_policy::Params;
use uksm_policy::command::{Nanos, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::Governor;

use crate::layout::{own, pooled};
use crate::run::Driven;
use crate::stopwatch::{StepRecord, thread_time};
use crate::workload::{Loop, Order, SECOND, map};
use crate::world::{Alone, Workload, World};
use crate::{Content, Costs, Host};

/// Pages of a small host and of a large one: 16 and 64 MiB. Their difference is the cost of pages,
/// without the fixed cost of a run.
const PAGES: [u64; 2] = [4096, 16384];
/// Time that an engine works on a host, on the host's clock.
const LIMIT: Nanos = 2 * SECOND;
/// The same for the host whose pages are written now and then.
const REWRITTEN: Nanos = 20 * SECOND;
/// Number of readings that measure the cost of reading the clock.
const READS: usize = 1000;

/// The costs of the parts of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    /// Any step.
    pub step: f64,
    /// Each page of a SAMPLE that has no twin.
    pub page: f64,
    /// Each page of a SAMPLE that is already merged.
    pub merged: f64,
    /// Each run of a SAMPLE.
    pub run: f64,
    /// Each outcome of a FOLD where two pages make a frame, finding them included.
    pub pair: f64,
    /// Each outcome of a FOLD where a page joins a frame.
    pub join: f64,
}

impl StepCosts {
    /// Measures them.
    ///
    /// # Panics
    /// Never: the parameters are those of a governor.
    #[must_use]
    pub fn measure() -> StepCosts {
        let alone = Difference::of(|page, _| own(1, page));
        // An odd factor gives the second half an order of its own.
        let twins = Difference::of(|page, pages| match page.checked_sub(pages / 2) {
            None => pooled(1, page),
            Some(second) => pooled(1, second * 1_285 % (pages / 2)),
        });
        let same = Difference::of(|_, _| pooled(1, 0));
        let step = alone.usual;
        let (merged, run) = of_merged(&taken(rewritten(), REWRITTEN), step);
        let page = (alone.time - step * alone.steps - run * alone.runs) / alone.sampled;
        let more = |taken: &Difference| {
            let anonymous = taken.sampled - taken.merged;
            let read = page * anonymous + merged * taken.merged + run * taken.runs;
            let found = taken.time - step * taken.steps - read;
            found.max(0.0) / taken.folded.max(1.0)
        };
        StepCosts {
            step,
            page,
            merged,
            run,
            pair: more(&twins),
            join: more(&same),
        }
    }
}

/// The difference between the steps on a large host and those on a small one.
#[derive(Debug)]
struct Difference {
    steps: f64,
    sampled: f64,
    /// Runs of the sampled pages.
    runs: f64,
    /// Sampled pages that were already merged.
    merged: f64,
    folded: f64,
    time: f64,
    /// Time of a step without a page.
    usual: f64,
}

impl Difference {
    /// From the content of each page, which may depend on the number of pages.
    fn of(content: impl Fn(u64, u64) -> Content + Copy + 'static) -> Difference {
        let [small, large] = PAGES.map(|pages| {
            let still = Still(pages, move |page| content(page, pages));
            taken(Box::new(still), LIMIT)
        });
        let more = |of: fn(&StepRecord) -> u64| {
            let sum = |taken: &[StepRecord]| taken.iter().map(of).sum::<u64>() as f64;
            sum(&large) - sum(&small)
        };
        Difference {
            steps: more(|_| 1),
            sampled: more(|step| step.sampled),
            runs: more(|step| step.runs),
            merged: more(|step| step.merged),
            folded: more(|step| step.folded),
            time: more(|step| step.time),
            usual: usual(&large),
        }
    }
}

/// Equal pages that are merged soon, and of which some are written.
fn rewritten() -> Box<dyn Workload> {
    Box::new(Loop::new(PAGES[1], 1, SECOND / 100, Order::InTurn, 1))
}

/// Whether a step processed almost only merged pages.
fn is_of_merged(step: &StepRecord) -> bool {
    step.sampled > 0 && step.merged * 10 >= step.sampled * 9
}

/// Cost of a page and of a run in these steps beyond the fixed part: the pair with the least
/// squares of the residuals.
fn of_merged(taken: &[StepRecord], usual: f64) -> (f64, f64) {
    let (mut pages, mut runs, mut both) = (0.0, 0.0, 0.0);
    let (mut by_pages, mut by_runs) = (0.0, 0.0);
    for step in taken.iter().filter(|step| is_of_merged(step)) {
        let (page, run) = (step.sampled as f64, step.runs as f64);
        let time = step.time as f64 - usual;
        pages += page * page;
        runs += run * run;
        both += page * run;
        by_pages += page * time;
        by_runs += run * time;
    }
    let determinant = pages * runs - both * both;
    if determinant <= 0.0 {
        return (by_pages / f64::max(pages, 1.0), 0.0);
    }
    let page = (by_pages * runs - by_runs * both) / determinant;
    let run = (by_runs * pages - by_pages * both) / determinant;
    (page.max(0.0), run.max(0.0))
}

/// The median of the steps that processed no page.
fn usual(taken: &[StepRecord]) -> f64 {
    let empty = taken.iter().filter(|step| step.sampled + step.folded == 0);
    let mut times: Vec<Nanos> = empty.map(|step| step.time).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default() as f64
}

/// The line through points that is nearest to them: its height at 0, and its slope.
#[must_use]
pub fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let products = |&(x, y): &(f64, f64)| (x - mean_x) * (y - mean_y);
    let squares = |&(x, _): &(f64, f64)| (x - mean_x) * (x - mean_x);
    let spread: f64 = points.iter().map(squares).sum();
    if spread == 0.0 {
        return (mean_y, 0.0);
    }
    let slope = points.iter().map(products).sum::<f64>() / spread;
    (mean_y - slope * mean_x, slope)
}

/// One process whose pages hold the result of a function.
struct Still<F>(u64, F);

impl<F: Fn(u64) -> Content> Workload for Still<F> {
    fn act(&mut self, host: &mut Host, _: Nanos) -> Option<Nanos> {
        let space: SpaceId = host.spawn(1);
        let contents: Vec<Content> = (0..self.0).map(&self.1).collect();
        map(host, space, 1, &contents, &mut SplitMix64::new(1));
        None
    }
}

/// The steps of an engine on a host where this workload runs until `limit`.
fn taken(workload: Box<dyn Workload>, limit: Nanos) -> Vec<StepRecord> {
    let host = Host::new(1, Costs::default());
    let world = World::new(host, vec![workload]);
    let params = Params::governor(Governor::Full);
    let mut driven = Driven::new(params, 1, 0).expect("a governor's parameters are accepted");
    driven.keep_steps();
    let mut alone = Alone::new(world, driven);
    while alone.now() < limit {
        alone.turn();
    }
    let mut taken = alone.deduplicator.kept_steps();
    let reading = reading();
    for step in &mut taken {
        step.time = step.time.saturating_sub(reading);
    }
    taken
}

/// Time that reading the clock adds to a measurement.
fn reading() -> Nanos {
    let mut shortest = Nanos::MAX;
    for _ in 0..READS {
        let begun = thread_time();
        shortest = shortest.min(thread_time() - begun);
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_the_line() {
        let points = [(1.0, 12.0), (2.0, 14.0), (10.0, 30.0)];
        let (height, slope) = line(&points);
        assert!((height - 10.0).abs() < 1e-9 && (slope - 2.0).abs() < 1e-9);
    }

    #[test]
    fn points_at_one_place_have_no_slope() {
        assert_eq!(line(&[(3.0, 5.0), (3.0, 7.0)]), (6.0, 0.0));
        assert_eq!(line(&[]), (0.0, 0.0));
    }

    #[test]
    fn each_host_makes_the_engine_do_what_is_measured_on_it() {
        let outcomes = |taken: &[StepRecord]| taken.iter().map(|step| step.folded).sum::<u64>();
        let sampled = |taken: &[StepRecord]| taken.iter().map(|step| step.sampled).sum::<u64>();
        let pages = PAGES[0];
        let alone = taken(Box::new(Still(pages, |page| own(1, page))), LIMIT);
        assert!(sampled(&alone) >= pages);
        assert_eq!(outcomes(&alone), 0);
        let same = taken(Box::new(Still(pages, |_| pooled(1, 0))), LIMIT);
        assert!(outcomes(&same) >= pages - 16, "{}", outcomes(&same));
        let written = taken(rewritten(), REWRITTEN);
        let of_merged = written.iter().filter(|step| is_of_merged(step));
        let (pages, runs) = of_merged.fold((0, 0), |(pages, runs), step| {
            (pages + step.sampled, runs + step.runs)
        });
        assert!(runs >= 2000 && pages >= 4 * runs, "{pages} in {runs}");
    }

    #[test]
    fn pages_and_runs_are_distinguished() {
        let step = |sampled, runs| StepRecord {
            sampled,
            runs,
            merged: sampled,
            folded: 0,
            time: 100 + 20 * sampled + 300 * runs,
        };
        let (page, run) = of_merged(&[step(512, 1), step(256, 256), step(64, 2)], 100.0);
        assert!((page - 20.0).abs() < 1e-6 && (run - 300.0).abs() < 1e-6);
        let (page, run) = of_merged(&[step(8, 8)], 100.0);
        assert!((page - 320.0).abs() < 1e-6 && run == 0.0);
    }
}

//! What the steps of an engine cost, measured.
//!
//! # Problem
//! On a simulated host everything has a cost from a file. What the engine itself takes is no part of
//! any call, so nothing that a module is asked tells it.
//!
//! # Approach
//! The engine is real here. So its steps are measured, on this machine, while it works on small
//! simulated hosts: one where no page has a twin, one where each has one twin, and one where all pages
//! are equal. A step that takes in no page is the fixed part. What the steps on the first host take
//! beyond that is shared among the pages sampled, with the growth of the index. What merging adds is
//! shared among the outcomes of FOLD on the others.
//!
//! # Units
//! Nanoseconds of this thread's processor time; instructions, where the clock counts those.

use uksm_policy::Params;
use uksm_policy::command::{Nanos, SpaceId};
use uksm_policy::hash::SplitMix64;
use uksm_policy::params::Governor;

use crate::layout::{own, pooled};
use crate::run::Driven;
use crate::stopwatch::{Taken, thread_time};
use crate::workload::{SECOND, map};
use crate::world::{Alone, Workload, World};
use crate::{Content, Costs, Host};

/// Pages of a small host and of a large one: 16 and 64 MiB. What they differ by is what pages cost,
/// without what a run costs at any rate.
const PAGES: [u64; 2] = [4096, 16384];
/// How long an engine works on it, on the host's clock.
const LIMIT: Nanos = 2 * SECOND;
/// How often the clock is read to learn what reading it takes.
const READS: usize = 1000;

/// What the parts of a step cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    /// Any step.
    pub step: f64,
    /// Each page of a SAMPLE that has no twin.
    pub page: f64,
    /// Each outcome of a FOLD where two pages make a frame, with finding them.
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
        // An odd factor makes an order of its own of the second half.
        let twins = Difference::of(|page, pages| match page.checked_sub(pages / 2) {
            None => pooled(1, page),
            Some(second) => pooled(1, second * 1_285 % (pages / 2)),
        });
        let same = Difference::of(|_, _| pooled(1, 0));
        let step = alone.usual;
        let page = (alone.time - step * alone.steps) / alone.sampled;
        let more = |taken: &Difference| {
            let found = taken.time - step * taken.steps - page * taken.sampled;
            found.max(0.0) / taken.folded.max(1.0)
        };
        StepCosts {
            step,
            page,
            pair: more(&twins),
            join: more(&same),
        }
    }
}

/// What the steps on a large host have more than those on a small one.
#[derive(Debug)]
struct Difference {
    steps: f64,
    sampled: f64,
    folded: f64,
    time: f64,
    /// What a step without a page takes.
    usual: f64,
}

impl Difference {
    /// By the content of each page, which may depend on how many there are.
    fn of(content: impl Fn(u64, u64) -> Content + Copy + 'static) -> Difference {
        let [small, large] = PAGES.map(|pages| taken(pages, move |page| content(page, pages)));
        let more = |of: fn(&Taken) -> u64| {
            let sum = |taken: &[Taken]| taken.iter().map(of).sum::<u64>() as f64;
            sum(&large) - sum(&small)
        };
        Difference {
            steps: more(|_| 1),
            sampled: more(|step| step.sampled),
            folded: more(|step| step.folded),
            time: more(|step| step.time),
            usual: usual(&large),
        }
    }
}

/// The middle one of the steps that took in no page.
fn usual(taken: &[Taken]) -> f64 {
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

/// One process, whose pages hold what a function says.
struct Still<F>(u64, F);

impl<F: Fn(u64) -> Content> Workload for Still<F> {
    fn act(&mut self, host: &mut Host, _: Nanos) -> Option<Nanos> {
        let space: SpaceId = host.spawn(1);
        let contents: Vec<Content> = (0..self.0).map(&self.1).collect();
        map(host, space, 1, &contents, &mut SplitMix64::new(1));
        None
    }
}

/// The steps of an engine on a host with so many such pages.
fn taken(pages: u64, content: impl Fn(u64) -> Content + 'static) -> Vec<Taken> {
    let host = Host::new(1, Costs::default());
    let world = World::new(host, vec![Box::new(Still(pages, content))]);
    let params = Params::governor(Governor::Full);
    let mut driven = Driven::new(params, 1, 0).expect("a governor's parameters are accepted");
    driven.keep_steps();
    let mut alone = Alone::new(world, driven);
    while alone.now() < LIMIT {
        alone.turn();
    }
    let mut taken = alone.deduplicator.kept_steps();
    let reading = reading();
    for step in &mut taken {
        step.time = step.time.saturating_sub(reading);
    }
    taken
}

/// What reading the clock adds to a time that is taken.
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
        let outcomes = |taken: &[Taken]| taken.iter().map(|step| step.folded).sum::<u64>();
        let sampled = |taken: &[Taken]| taken.iter().map(|step| step.sampled).sum::<u64>();
        let pages = PAGES[0];
        let alone = taken(pages, |page| own(1, page));
        assert!(sampled(&alone) >= pages);
        assert_eq!(outcomes(&alone), 0);
        let same = taken(pages, |_| pooled(1, 0));
        assert!(outcomes(&same) >= pages - 16, "{}", outcomes(&same));
    }
}

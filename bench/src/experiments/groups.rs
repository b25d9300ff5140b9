//! groups: the paper's experiment with two groups, one of which is short of memory (Euro-Par'11
//! §4).
//!
//! # Problem
//! The value of freed memory depends on its receiver and on the delay. The paper compares its
//! scheme, at several ratios of the groups' rates, with merging and giving over all groups; dynamic
//! rates are to find the ratio by themselves.
//!
//! # Approach
//! Group MR counts words, group FIO reads at random, two members each: see [`member`]. A member's
//! control group has less than its working set in the group that the case names (`FIOlow`,
//! `MRlow`), and more in the other. All begin to work when the daemon starts; the work of each
//! group in a fixed time is compared. The policies run in random order in each round, the median of
//! all rounds counts, and lowest and highest are figures of the result. No run is left out; the
//! warm-up of [`WARM_UP`] seconds before the first is no run.
//!
//! Ratios: `grp-best_vs_best-baseline@CASE` and `grp-dynamic_vs_grp-best@CASE` compare the work of
//! the group that is short of memory.

mod course;
pub(crate) mod member;
mod place;
mod policy;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;
use uksm_results::report::{Measured, Report};
use uksm_results::timeline::{Look, Timeline, median};
use uksm_testkit::zram::Swap;

use crate::rng::{Rng, shuffle};
use crate::setup::Setup;
use crate::variants::System as _;
use crate::variants::uksm::Uksm;
use crate::workload::Process;
use course::{Curves, RunState};
use member::{MemberSpec, Work};
use place::Cgroup;
use policy::{GROUPS, MEMBERS, Policy};

/// Working time of all, in seconds.
const SECONDS: u64 = 15;
/// Seconds of the warm-up, which is no run of a policy and has no figures.
const WARM_UP: u64 = 5;
/// Swap for the memory that members lack, MiB.
const SWAP_MIB: u64 = 96;
/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A new daemon may leave its first query unanswered for this many seconds.
const STARTING: f64 = 10.0;
/// Common memory of both members of a group, MiB, MR's and FIO's: 200 and 700 MB in the paper, on
/// machines of 4 GB.
const EQUAL_MIB: [usize; 2] = [12, 28];
/// Own memory of each, MiB.
const OWN_MIB: usize = 4;
/// Names of draws.
const ORDER: u64 = 0xF0;

/// The group that is short of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LowMemoryGroup {
    FioLow,
    MrLow,
}

impl LowMemoryGroup {
    /// The index of that group in [`GROUPS`].
    fn low(self) -> usize {
        match self {
            LowMemoryGroup::MrLow => 0,
            LowMemoryGroup::FioLow => 1,
        }
    }

    /// MiB of each member, MR's and FIO's.
    fn bases(self, equal: [usize; 2]) -> [usize; 2] {
        let mut bases = equal.map(|equal| (equal + OWN_MIB) * 5 / 4 + 2);
        let low = self.low();
        bases[low] = (equal[low] + OWN_MIB) * 6 / 10;
        bases
    }
}

impl fmt::Display for LowMemoryGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LowMemoryGroup::FioLow => "FIOlow",
            LowMemoryGroup::MrLow => "MRlow",
        })
    }
}

impl FromStr for LowMemoryGroup {
    type Err = Error;

    fn from_str(name: &str) -> Result<LowMemoryGroup> {
        let all = [LowMemoryGroup::FioLow, LowMemoryGroup::MrLow];
        let found = all.into_iter().find(|case| case.to_string() == name);
        found.with_context(|| format!("case '{name}': there are FIOlow and MRlow"))
    }
}

/// One run of a policy.
struct PolicyRun {
    /// Pages a second, of each group.
    pages: [f64; 2],
    seconds: f64,
    looks: Timeline,
    curves: Curves,
    last: RunState,
    /// Processor seconds of each group, merging included.
    group_cpu: [f64; 2],
    verified: u64,
    /// The daemon's status of dynamic rates.
    rates: Vec<Value>,
}

/// Runs all policies in all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("groups")?;
    let _swap = Swap::compressed(SWAP_MIB)?;
    let cases: Vec<LowMemoryGroup> = setup.cases_or(&["FIOlow", "MRlow"])?;
    let wanted = |policy: &Policy| setup.wants(&policy.name());
    let policies: Vec<Policy> = Policy::ALL.into_iter().filter(wanted).collect();
    if let (Some(&case), Some(&policy)) = (cases.first(), policies.first()) {
        // Emulation translates programs when they first run: the first run would pay for all.
        let short = Setup {
            seconds: Some(WARM_UP),
            ..setup.clone()
        };
        once(case, policy, &short).context("the run before the first")?;
    }
    for case in cases {
        let mut runs: Vec<Vec<PolicyRun>> = policies.iter().map(|_| Vec::new()).collect();
        let mut draws = Rng::new(setup.seed, ORDER + case.low() as u64);
        for round in 0..setup.repeats {
            let mut order: Vec<usize> = (0..policies.len()).collect();
            shuffle(&mut order, &mut draws);
            for at in order {
                let policy = policies[at];
                let done = once(case, policy, &setup.in_round(round))
                    .with_context(|| format!("{} {case}", policy.name()))?;
                println!(
                    "{case} {round} {}: {:.0} pages/s counted, {:.0} read; freed {:.1?}, shares {:.4?}",
                    policy.name(),
                    done.pages[0],
                    done.pages[1],
                    done.last
                        .freed
                        .values()
                        .map(|freed| freed / 1e6)
                        .collect::<Vec<_>>(),
                    done.last.shares.values().collect::<Vec<_>>(),
                );
                runs[at].push(done);
            }
        }
        let of_case: Vec<Measured> = policies
            .iter()
            .zip(&runs)
            .map(|(policy, runs)| measured(case, *policy, runs, setup))
            .collect();
        compare(case, &policies, &of_case, &mut report.ratios);
        report.variants.extend(of_case);
    }
    Ok(report)
}

/// Sizes of the common memory of members.
fn equal_mib(setup: &Setup) -> [usize; 2] {
    match setup.size {
        Some(fio) => [fio * EQUAL_MIB[0] / EQUAL_MIB[1], fio],
        None => EQUAL_MIB,
    }
}

fn once(case: LowMemoryGroup, policy: Policy, setup: &Setup) -> Result<PolicyRun> {
    let equal = equal_mib(setup);
    let bases = case.bases(equal);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cgroups = Vec::new();
    let mut members: Vec<Vec<Process>> = Vec::new();
    for (at, group) in GROUPS.into_iter().enumerate() {
        let cgroup = Cgroup::make(group, &MEMBERS, at % cpus)?;
        cgroup.limit((bases[at] as u64) << 20)?;
        let spec = |(number, folder): (usize, &std::path::PathBuf)| MemberSpec {
            work: [Work::WordCount, Work::RandomRead][at],
            cgroup: folder.clone(),
            equal_mib: equal[at],
            own_mib: OWN_MIB,
            seed: setup.round_seed(),
            number: (2 * at + number) as u64,
        };
        let specs = cgroup.members().iter().enumerate().map(spec);
        let started = specs.map(|spec| Process::start_as("member", &spec));
        members.push(started.collect::<Result<_>>()?);
        cgroups.push(cgroup);
    }
    for member in members.iter_mut().flatten() {
        member.ready()?;
    }
    let configuration = std::env::temp_dir().join("groups.toml");
    let text = policy.configuration(bases, setup.round_seed().max(1));
    std::fs::write(&configuration, text).context("cannot write the configuration")?;
    for member in members.iter_mut().flatten() {
        member.go()?;
    }
    let cpu_before = group_cpu(&cgroups)?;
    let before = done(&mut members)?;
    let begin = Instant::now();
    let mut daemon = Uksm::start_configured(&setup.uksm, &configuration)?;
    let (mut looks, mut curves, mut last) =
        (Timeline::default(), Curves::new(), RunState::default());
    let mut rates = Vec::new();
    while begin.elapsed() < setup.limit_or(SECONDS) {
        std::thread::sleep(INTERVAL);
        daemon.adjust()?;
        let seconds = begin.elapsed().as_secs_f64();
        let Some(answer) = daemon.report() else {
            ensure!(seconds < STARTING, "the daemon does not answer");
            continue;
        };
        last = course::read(&answer)?;
        course::add(&mut curves, seconds, &last);
        if !last.rates.is_empty() {
            rates.push(serde_json::json!({"seconds": seconds, "rates": last.rates}));
        }
        looks.0.push(Look {
            seconds,
            cpu_seconds: last.cpu.values().sum(),
            saved_mib: last.freed.values().sum::<f64>() / 1_048_576.0,
            mapped_mib: 0.0,
        });
    }
    let seconds = begin.elapsed().as_secs_f64();
    let after = done(&mut members)?;
    let cpu_after = group_cpu(&cgroups)?;
    daemon.stop()?;
    let mut verified = 0;
    for (members, cgroup) in members.iter_mut().zip(&cgroups) {
        // All is read: it may take the memory that it needs.
        cgroup.limit(u64::MAX >> 1)?;
        for member in members {
            verified += member.verify()?;
        }
    }
    drop(daemon);
    drop(members);
    let both = [0, 1];
    Ok(PolicyRun {
        pages: both.map(|at| (after[at] - before[at]) as f64 / seconds),
        seconds,
        looks,
        curves,
        last,
        group_cpu: both.map(|at| cpu_after[at] - cpu_before[at]),
        verified,
        rates,
    })
}

/// Pages that each group has read.
fn done(members: &mut [Vec<Process>]) -> Result<Vec<u64>> {
    let group = |members: &mut Vec<Process>| members.iter_mut().map(Process::done).sum();
    members.iter_mut().map(group).collect()
}

fn group_cpu(cgroups: &[Cgroup]) -> Result<Vec<f64>> {
    cgroups.iter().map(Cgroup::cpu_seconds).collect()
}

/// The median run, by the work of the group that is short of memory, with the spread of all.
fn measured(case: LowMemoryGroup, policy: Policy, runs: &[PolicyRun], setup: &Setup) -> Measured {
    let low = case.low();
    let mut figures = BTreeMap::new();
    for (at, group) in GROUPS.into_iter().enumerate() {
        let mut rates: Vec<f64> = runs.iter().map(|run| run.pages[at]).collect();
        rates.sort_by(f64::total_cmp);
        let mut figure = |name: &str, value: Option<f64>| {
            figures.insert(format!("{group}_{name}"), value.unwrap_or(0.0));
        };
        figure("pages_per_second", median(&rates));
        figure("pages_per_second_least", rates.first().copied());
        figure("pages_per_second_most", rates.last().copied());
        let of = |value: fn(&PolicyRun, usize, &str) -> f64| {
            let values: Vec<f64> = runs.iter().map(|run| value(run, at, group)).collect();
            median(&values)
        };
        figure(
            "freed_mib",
            of(|run, _, group| run.last.freed.get(group).copied().unwrap_or(0.0) / 1_048_576.0),
        );
        figure(
            "share_at_end",
            of(|run, _, group| run.last.shares.get(group).copied().unwrap_or(0.0)),
        );
        figure(
            "worker_cpu_seconds",
            of(|run, _, group| run.last.cpu.get(group).copied().unwrap_or(0.0)),
        );
        figure("cpu_seconds", of(|run, at, _| run.group_cpu[at]));
    }
    let mut order: Vec<&PolicyRun> = runs.iter().collect();
    order.sort_by(|a, b| a.pages[low].total_cmp(&b.pages[low]));
    let Some(middle) = order.get(order.len() / 2) else {
        return Measured::default();
    };
    let cpu = |run: &PolicyRun| run.last.cpu.values().sum::<f64>();
    let saved_mib = middle.looks.last().map_or(0.0, |look| look.saved_mib);
    let mergeable_mib = equal_mib(setup).iter().sum::<usize>() as f64;
    let reached = middle.looks.reaches(0.95 * mergeable_mib);
    Measured {
        name: policy.name(),
        case: case.to_string(),
        wall_seconds: middle.seconds,
        cpu_seconds: cpu(middle),
        saved_mib,
        mergeable_mib,
        finished: reached.is_some(),
        seconds_to_95_percent: reached.map(|look| look.seconds),
        mib_per_cpu_second: saved_mib / cpu(middle).max(1e-9),
        verified_pages: middle.verified,
        cpu_seconds_of_runs: runs.iter().map(cpu).collect(),
        figures,
        looks: middle.looks.clone(),
        courses: middle.curves.clone(),
        counters: (!middle.rates.is_empty()).then(|| Value::Array(middle.rates.clone())),
        ..Measured::default()
    }
}

/// The ratios, and the work of each policy relative to the first baseline.
fn compare(
    case: LowMemoryGroup,
    policies: &[Policy],
    measured: &[Measured],
    ratios: &mut BTreeMap<String, f64>,
) {
    let figure = format!("{}_pages_per_second", GROUPS[case.low()]);
    let of = |is_meant: &dyn Fn(Policy) -> bool| {
        let meant = policies
            .iter()
            .zip(measured)
            .filter(|(policy, _)| is_meant(**policy));
        let values = meant.filter_map(|(_, one)| one.figures.get(&figure).copied());
        values.reduce(f64::max).filter(|&value| value > 0.0)
    };
    let baseline = of(&Policy::is_baseline);
    let best = of(&|policy| matches!(policy, Policy::Grp(..)));
    let dynamic = of(&|policy| policy == Policy::GrpDynamic);
    let mut ratio = |name: &str, ours: Option<f64>, other: Option<f64>| {
        if let Some((ours, other)) = ours.zip(other) {
            ratios.insert(format!("{name}@{case}"), ours / other);
        }
    };
    ratio("grp-best_vs_best-baseline", best, baseline);
    ratio("grp-dynamic_vs_grp-best", dynamic, best);
    ratio("grp-dynamic_vs_best-baseline", dynamic, baseline);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_short_of_memory_has_less_than_it_works_on_and_the_other_more() {
        for (case, low) in [(LowMemoryGroup::MrLow, 0), (LowMemoryGroup::FioLow, 1)] {
            assert_eq!(case.to_string().parse::<LowMemoryGroup>().unwrap(), case);
            let bases = case.bases(EQUAL_MIB);
            for at in [0, 1] {
                assert_eq!(bases[at] < EQUAL_MIB[at] + OWN_MIB, at == low);
            }
        }
        assert!("low".parse::<LowMemoryGroup>().is_err());
    }

    #[test]
    fn the_best_ratio_is_compared_with_the_better_baseline() {
        let rates = [100.0, 110.0, 120.0, 90.0, 50.0, 118.8];
        let measured: Vec<Measured> = rates
            .into_iter()
            .map(|rate| Measured {
                figures: [("fio_pages_per_second".to_owned(), rate)].into(),
                ..Measured::default()
            })
            .collect();
        let mut ratios = BTreeMap::new();
        compare(LowMemoryGroup::FioLow, &Policy::ALL, &measured, &mut ratios);
        assert!((ratios["grp-best_vs_best-baseline@FIOlow"] - 120.0 / 110.0).abs() < 1e-9);
        assert!((ratios["grp-dynamic_vs_grp-best@FIOlow"] - 0.99).abs() < 1e-9);
    }
}

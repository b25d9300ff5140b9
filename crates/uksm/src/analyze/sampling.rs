//! Reads a sample of the memory of processes within a budget of processor time.
//!
//! # Problem
//! The number of pages that a budget lasts for depends on the host, the kernel and on how full
//! mappings are. If the budget ended in the middle, later pages would have no chance to be chosen.
//!
//! # Approach
//! 1. The kernel is asked for the memory of each process, the largest first, with half of the
//!    budget. Processes that are not reached are left out: those are the smallest.
//! 2. Trials on the largest process measure the cost of opening a process, of reading a place among
//!    all its neighbours, and of reading one by itself.
//! 3. If the rest of the budget, less the cost of estimating, lasts for all places, all are read;
//!    otherwise each is chosen with the probability that the budget allows. A part of the budget is
//!    reserved for costs that the trials do not show.
//!
//! A process that ends meanwhile is left out with all its pages. If reading takes a quarter more
//! than the budget, the processes that were not reached are left out as well: the largest come
//! first.
//!
//! A tenth of the budget is kept for reading some pages again at the end ([`Watch`]).
//!
//! # Units
//! Nanoseconds of processor time; pages.

use std::collections::BTreeMap;

use anyhow::anyhow;
use serde::Serialize;
use uksm_linux::boundary::Boundary;
use uksm_linux::clock;
use uksm_linux::contents::{SampledPage, Sampler, Survey};
use uksm_linux::proc::{self, Proc, Stat};
use uksm_linux::selection::Selection;
use uksm_sketch::content::Content;
use uksm_sketch::redundancy::Page;

use super::plan::AnalysisPlan;
use super::progress::ProgressLine;
use super::watch::{self, Watch};
use crate::suggest::{chosen, nobody_read};

/// Places of the trial that reads all: some 10 ms.
const TRIAL_PLACES: u64 = 4096;

/// Chosen places of the trial that reads single ones, roughly.
const TRIAL_SINGLE_PLACES: f64 = 256.0;

/// Part of the remaining budget that is planned for reading. Estimating takes most of the rest.
const PLANNED_SHARE: f64 = 0.75;

/// Minimum number of chosen places, whatever the budget.
const MIN_PLACES: f64 = 512.0;

/// Pages between two updates of the progress.
const PROGRESS_INTERVAL_PAGES: u64 = 256;

/// A process that was read.
#[derive(Debug)]
pub(super) struct SampledProcess {
    /// Its id.
    pub(super) pid: u32,
    /// Name of its program.
    pub(super) comm: String,
    /// Its group, by number.
    pub(super) group: u32,
    /// The kernel's figures of its memory.
    pub(super) survey: Survey,
    /// Pages of zeros that were read.
    pub(super) zero: u64,
    /// Those of them that in-kernel KSM may merge.
    pub(super) zero_offered: u64,
}

/// A process that was not read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct UnreadProcess {
    /// Its id.
    pub(super) pid: u32,
    /// Name of its program.
    pub(super) comm: String,
    /// The reason.
    pub(super) why: String,
    /// Its pages in memory that belong to no file.
    pub(super) pages: u64,
}

/// The result of reading.
#[derive(Debug)]
pub(super) struct SampledMemory {
    /// The processes.
    pub(super) processes: Vec<SampledProcess>,
    /// Names of the groups.
    pub(super) groups: Vec<String>,
    /// The pages that were read, except those of zeros.
    pub(super) pages: Vec<Page>,
    /// The probability with which each page was chosen.
    pub(super) rate: f64,
    /// Processor time of reading one page among its neighbours; 0 if none was read.
    pub(super) page_nanos: f64,
    /// Selected processes that were not read.
    pub(super) missed: Vec<UnreadProcess>,
}

/// A process that is to be read.
struct SampleTarget {
    pid: u32,
    stat: Stat,
    resident: u64,
}

/// A process whose memory figures are known.
struct SurveyedProcess {
    target: SampleTarget,
    group: String,
    survey: Survey,
}

/// Reads as much as the plan allows.
///
/// # Errors
/// A process that was named by its id cannot be read; or no process can.
pub(super) fn sample(
    plan: AnalysisPlan,
    sampler: &mut Sampler,
    selection: &Selection,
    proc: &Proc,
    watch: &mut Watch,
) -> anyhow::Result<SampledMemory> {
    let targets = chosen(selection, proc)?
        .into_iter()
        .map(|(pid, stat)| SampleTarget {
            pid,
            stat,
            resident: proc.resident(pid).unwrap_or(0),
        });
    let mut targets: Vec<SampleTarget> = targets.collect();
    targets.sort_by_key(|target| (std::cmp::Reverse(target.resident), target.pid));
    let mut progress = ProgressLine::new();
    let mut missed = UnreadProcesses {
        selection,
        processes: Vec::new(),
    };
    let surveyed = survey(plan, proc, targets, sampler, &mut missed, &mut progress)?;
    let trials = Trials::of(proc, &surveyed, sampler);
    watch.set_most(trials.watched(plan.kept() as f64, surveyed.len() as f64));
    let rate = trials.rate(plan, &surveyed);
    let mut run = Run {
        proc,
        sampler,
        watch,
        progress,
        all: surveyed.iter().map(|one| one.survey.page_slots()).sum(),
        done: 0,
        groups: BTreeMap::new(),
        memory: SampledMemory {
            processes: Vec::new(),
            groups: Vec::new(),
            pages: Vec::new(),
            rate,
            page_nanos: trials.page,
            missed: Vec::new(),
        },
    };
    let before = plan.spent();
    for one in surveyed {
        run.show_progress();
        if plan.is_over() && !run.memory.processes.is_empty() {
            missed.leave(one.target, NOT_REACHED.to_owned());
            continue;
        }
        match run.read(&one) {
            Ok(zeros) => run.keep(one, zeros),
            Err(error) => missed.add(one.target, reason(&error))?,
        }
    }
    let mut memory = run.finish();
    let zeros: u64 = memory.processes.iter().map(|process| process.zero).sum();
    let read = memory.pages.len() as u64 + zeros;
    if rate >= 1.0 && read > 0 {
        memory.page_nanos = (plan.spent() - before) as f64 / read as f64;
    }
    memory.missed = missed.processes;
    if memory.processes.is_empty() {
        return Err(nobody(&memory.missed));
    }
    Ok(memory)
}

/// Reading of processes, one after the other.
struct Run<'a> {
    proc: &'a Proc,
    sampler: &'a mut Sampler,
    watch: &'a mut Watch,
    progress: ProgressLine,
    /// Places of all processes.
    all: u64,
    /// Places of the processes that were read.
    done: u64,
    /// Numbers of the groups.
    groups: BTreeMap<String, u32>,
    memory: SampledMemory,
}

/// Pages of zeros of a process: those that in-kernel KSM may not merge, and those that it may.
type Zeros = [u64; 2];

impl Run<'_> {
    fn show_progress(&mut self) {
        let part = self.done as f64 / self.all.max(1) as f64;
        self.progress.show("reading", part);
    }

    /// Reads the chosen pages of the next process.
    ///
    /// # Errors
    /// It cannot be read: none of its pages count.
    fn read(&mut self, one: &SurveyedProcess) -> Result<Zeros, proc::Error> {
        let Run {
            watch,
            progress,
            memory,
            ..
        } = self;
        let (rate, all, done) = (memory.rate, self.all, self.done);
        let (target, survey) = (&one.target, &one.survey);
        let number = u32::try_from(memory.processes.len()).unwrap_or(u32::MAX);
        let pages_before = memory.pages.len();
        let mut zeros = [0, 0];
        let mut seen = 0u64;
        let see = &mut |page: SampledPage| {
            watch.see(number, target.pid, page);
            let is_offered = page.is_offered;
            match page.content {
                Content::Zero => zeros[usize::from(is_offered)] += 1,
                Content::Hashed(hash) => memory.pages.push(Page {
                    hash,
                    process: number,
                    is_offered,
                }),
            }
            seen += 1;
            if seen.is_multiple_of(PROGRESS_INTERVAL_PAGES) {
                let part = (done as f64 + seen as f64 / rate) / all.max(1) as f64;
                progress.show("reading", part);
            }
        };
        let sampler = &mut self.sampler;
        let read = sampler.sample(self.proc, target.pid, &target.stat, survey, rate, see);
        self.done += survey.page_slots();
        if let Err(error) = read {
            self.memory.pages.truncate(pages_before);
            self.watch.forget(number);
            return Err(error);
        }
        self.watch.keep(number, target.pid, &target.stat);
        Ok(zeros)
    }

    /// Adds the process that was read.
    fn keep(&mut self, one: SurveyedProcess, zeros: Zeros) {
        let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.memory.processes.push(SampledProcess {
            pid: one.target.pid,
            comm: one.target.stat.comm,
            group: *self.groups.entry(one.group).or_insert(next),
            survey: one.survey,
            zero: zeros[0] + zeros[1],
            zero_offered: zeros[1],
        });
    }

    /// All that was read, with the names of the groups.
    fn finish(self) -> SampledMemory {
        let mut memory = self.memory;
        memory.groups = vec![String::new(); self.groups.len()];
        for (name, number) in self.groups {
            memory.groups[number as usize] = name;
        }
        memory
    }
}

/// Asks the kernel for the memory of each process.
fn survey(
    plan: AnalysisPlan,
    proc: &Proc,
    targets: Vec<SampleTarget>,
    sampler: &mut Sampler,
    missed: &mut UnreadProcesses<'_>,
    progress: &mut ProgressLine,
) -> anyhow::Result<Vec<SurveyedProcess>> {
    let all: u64 = targets.iter().map(|target| target.resident).sum();
    let mut done = 0;
    let mut surveyed = Vec::new();
    let in_time = || plan.spent() < plan.budget / 2;
    for target in targets {
        progress.show("asking for mappings", done as f64 / all.max(1) as f64);
        done += target.resident;
        if !in_time() && !surveyed.is_empty() {
            missed.leave(target, NOT_REACHED.to_owned());
            continue;
        }
        match sampler.survey(proc, target.pid, &mut || in_time()) {
            Ok(survey) => surveyed.push(SurveyedProcess {
                group: group(proc, target.pid),
                target,
                survey,
            }),
            Err(error) => missed.add(target, reason(&error))?,
        }
    }
    Ok(surveyed)
}

/// The unit of a process, else its control group.
fn group(proc: &Proc, pid: u32) -> String {
    let unit = Boundary::Unit.of(proc, pid).ok().flatten();
    let path = unit.or_else(|| proc.cgroup(pid).ok());
    path.unwrap_or_else(|| "(no control group)".to_owned())
}

/// Costs on this host, in processor time.
#[derive(Debug, Clone, Copy, Default)]
struct Trials {
    /// Opening a process.
    open: f64,
    /// Reading a place, where all are read.
    place: f64,
    /// Reading a page there.
    page: f64,
    /// Reading a place that is chosen by itself.
    single: f64,
}

impl Trials {
    /// Runs the trials on the largest readable process.
    fn of(proc: &Proc, surveyed: &[SurveyedProcess], sampler: &mut Sampler) -> Trials {
        let trial = |one: &SurveyedProcess, sampler: &mut Sampler| {
            let mut take = |survey: &Survey, rate: f64| {
                let before = clock::thread_cpu();
                let mut read = 0;
                let see = &mut |_| read += 1;
                let stat = &one.target.stat;
                let taken = sampler.sample(proc, one.target.pid, stat, survey, rate, see);
                let time = (clock::thread_cpu() - before) as f64;
                taken.map(|taken| (time, taken, read))
            };
            let (open, _, _) = take(&Survey::default(), 1.0)?;
            let first = one.survey.first(TRIAL_PLACES);
            let (time, taken, read) = take(&first, 1.0)?;
            let rate = (TRIAL_SINGLE_PLACES / one.survey.page_slots().max(1) as f64).min(0.02);
            let (alone, chosen, _) = take(&one.survey, rate)?;
            let each = |time: f64, of: u64| (time - open).max(0.0) / of.max(1) as f64;
            let place = each(time, taken);
            Ok::<Trials, proc::Error>(Trials {
                open,
                place,
                page: each(time, read),
                // Few were chosen in a small process.
                single: if chosen < 16 {
                    4.0 * place
                } else {
                    each(alone, chosen)
                },
            })
        };
        let mut trials = surveyed.iter().take(8);
        trials
            .find_map(|one| trial(one, sampler).ok())
            .unwrap_or_default()
    }

    /// The probability that the rest of the budget allows.
    fn rate(self, plan: AnalysisPlan, surveyed: &[SurveyedProcess]) -> f64 {
        let places: u64 = surveyed.iter().map(|one| one.survey.page_slots()).sum();
        let processes = surveyed.len() as f64;
        let again = self.again(watch::MAX_PAGES as f64, processes);
        let kept = again.min(plan.kept() as f64);
        let left = plan.budget.saturating_sub(plan.spent()) as f64 - kept;
        self.lasts(left * PLANNED_SHARE, processes, places.max(1) as f64)
    }

    /// Cost of reading this number of pages again, each by itself.
    fn again(self, pages: f64, processes: f64) -> f64 {
        self.single * pages + self.open * processes.min(pages)
    }

    /// Number of pages that can be read again at this cost.
    fn watched(self, kept: f64, processes: f64) -> usize {
        let all = (kept * PLANNED_SHARE - self.open * processes) / self.single.max(1.0);
        // With fewer pages than processes, each page needs opening a process.
        let few = kept * PLANNED_SHARE / (self.single + self.open).max(1.0);
        let pages = if few < processes { few } else { all };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not below 0, and `as` saturates"
        )]
        let pages = pages.max(0.0) as usize;
        pages.min(watch::MAX_PAGES)
    }

    fn lasts(self, left: f64, processes: f64, places: f64) -> f64 {
        let left = left - self.open * processes;
        let least = (MIN_PLACES / places).min(1.0);
        if left >= self.place * places {
            return 1.0;
        }
        // Choosing more than half one by one is never better than reading all.
        (left / (self.single.max(self.place) * places))
            .min(0.5)
            .max(least)
    }
}

/// Reason for a process that was not reached.
const NOT_REACHED: &str = "not reached within the budget: raise --budget";

/// Collects processes that are not read.
struct UnreadProcesses<'a> {
    selection: &'a Selection,
    processes: Vec<UnreadProcess>,
}

impl UnreadProcesses<'_> {
    /// # Errors
    /// The process was named by its id.
    fn add(&mut self, target: SampleTarget, why: String) -> anyhow::Result<()> {
        let mut named = self.selection.chosen.pids.iter();
        if named.any(|name| name.pid == target.pid) {
            let comm = target.stat.comm.escape_debug();
            return Err(anyhow!("--pid {}: {comm}: {why}", target.pid));
        }
        self.leave(target, why);
        Ok(())
    }

    fn leave(&mut self, target: SampleTarget, why: String) {
        self.processes.push(UnreadProcess {
            pid: target.pid,
            comm: target.stat.comm,
            why,
            pages: target.resident,
        });
    }
}

/// Why a process cannot be read, and the remedy.
fn reason(error: &proc::Error) -> String {
    match error {
        proc::Error::Gone { .. } => "ended".to_owned(),
        proc::Error::Read { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "no right to read its memory: run as root or with CAP_SYS_PTRACE, and no ptrace_scope=3"
                .to_owned()
        }
        error => error.to_string(),
    }
}

fn nobody(missed: &[UnreadProcess]) -> anyhow::Error {
    let first = missed.first();
    let first =
        first.map(|UnreadProcess { pid, comm, why, .. }| (*pid, comm.as_str(), why.as_str()));
    nobody_read(missed.len(), first)
}

//! Dynamic rates: the readings of each group, and the share of a core that its worker may use.
//!
//! # Problem
//! The frees and the processor time of a worker must be known each second, and an idle worker may
//! not be woken for that.
//!
//! # Approach
//! The supervisor reads all of it: processor time from the worker's clock, freed pages from the
//! counts of its domain, and the waiting time of tasks from the control groups of the group's
//! members, or else of its payer, or else of the host. Of an idle worker nothing else is read. Only
//! merged pages that were written are reported by the worker, once a second while there are more.
//! Turns come each second while any worker is busy, and ever less often, down to one in
//! [`MAX_INTERVAL`], while all are idle. A worker that could not be sent its share is sent it in
//! the next turn; a new worker begins with the share of its group.
//!
//! # Units
//! Pages freed: merged pages less frames made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uksm_linux::clock;
use uksm_linux::module::Device;
use uksm_policy::command::Nanos;
use uksm_redistribution::pressure::{self, Resource};
use uksm_redistribution::rates::{
    CORE, Change, GroupWork, MIN_USE_DIVISOR, RateStatus, RateTerms, Rates, Share, millionths,
};
use uksm_redistribution::settings::SizeControl;

use crate::config::cpu_total;
use crate::config::plan::Plan;
use crate::groups::supervisor::account::info;
use crate::groups::supervisor::placement::cgroup_tree;
use crate::groups::supervisor::worker_process::WorkerProcess;

/// Time between two turns while any worker is busy.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two turns while all are idle.
const MAX_INTERVAL: Duration = Duration::from_secs(8);

/// The rates of all groups whose rate is dynamic.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct GroupRates {
    proc_root: PathBuf,
    rates: Rates,
    next: Instant,
    interval: Duration,
    /// The last reading of each group.
    read: BTreeMap<String, Counters>,
    /// Groups whose worker has not received its share yet.
    unsent: Vec<String>,
}

/// Growing counters, at one reading.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    at: Nanos,
    cpu: Nanos,
    /// Merged pages written, since the worker started.
    written: u64,
    /// The counters at the last reading with a busy worker.
    working: BusyCounters,
}

#[derive(Debug, Clone, Copy, Default)]
struct BusyCounters {
    freed: u64,
    cpu: WaitingShare,
    memory: WaitingShare,
}

/// The kernel adds up the waiting time of tasks every two seconds: the share of the time between
/// two sums holds until the next.
#[derive(Debug, Clone, Copy, Default)]
struct WaitingShare {
    at: Nanos,
    total: Nanos,
    share: f64,
}

/// A sum that stays the same for this long means that no task waited.
const MAX_SUM_INTERVAL_NS: Nanos = 3_000_000_000;

impl WaitingShare {
    fn read(self, at: Nanos, total: Nanos) -> WaitingShare {
        let time = at - self.at;
        if self.at == 0 {
            let share = 0.0;
            return WaitingShare { at, total, share };
        }
        if total == self.total && time < MAX_SUM_INTERVAL_NS {
            return self;
        }
        let share = total.saturating_sub(self.total) as f64 / time.max(1) as f64;
        WaitingShare {
            at,
            total,
            share: share.min(1.0),
        }
    }

    /// The waiting part of this time.
    fn of(self, time: Nanos) -> Nanos {
        // A part of a whole number of nanoseconds.
        millionths(self.share).saturating_mul(time) / CORE
    }
}

impl GroupRates {
    /// No rates yet, for a host whose processes are at `proc_root`.
    pub(in crate::groups::supervisor) fn new(proc_root: &Path) -> GroupRates {
        GroupRates {
            proc_root: proc_root.to_owned(),
            rates: Rates::default(),
            next: Instant::now(),
            interval: INTERVAL,
            read: BTreeMap::new(),
            unsent: Vec::new(),
        }
    }

    /// Time of the next turn, if there is anything to do.
    pub(in crate::groups::supervisor) fn next(&self) -> Option<Instant> {
        (!self.is_idle()).then_some(self.next)
    }

    /// Whether no group's rate is dynamic, and all workers have received their shares.
    fn is_idle(&self) -> bool {
        self.rates.is_idle() && self.unsent.is_empty()
    }

    /// The rate of a group, if it is dynamic.
    pub(in crate::groups::supervisor) fn status(&self, group: &str) -> Option<RateStatus> {
        self.rates.status(group)
    }

    /// Divides the total among changed groups, before any worker is started.
    pub(in crate::groups::supervisor) fn divide(&mut self, workers: &mut [WorkerProcess]) {
        let plans = workers.iter().map(|worker| &worker.plan);
        let terms = |plan: &Plan| Some((plan.name.clone(), plan.rate?));
        let terms: BTreeMap<String, RateTerms> = plans.clone().filter_map(terms).collect();
        self.read.retain(|name, _| terms.contains_key(name));
        self.rates.follow(cpu_total::total(plans), &terms);
        for worker in workers {
            let share = self.rates.share(&worker.plan.name);
            match (share, worker.share) {
                (None, None) => continue,
                // Its rate is fixed now, or as before.
                (None, Some(_)) => allow(worker, millionths(worker.plan.resolved.params.cpu)),
                (Some(share), _) => allow(worker, share),
            }
            .unwrap_or_else(|name| self.unsent.push(name));
            if share.is_none() {
                worker.share = None;
            }
        }
        // The first turn compares with the readings of now.
        self.next = Instant::now();
        self.interval = INTERVAL;
    }

    /// Runs a turn, if it is time.
    pub(in crate::groups::supervisor) fn turn(
        &mut self,
        workers: &mut [WorkerProcess],
        now: Instant,
    ) {
        if self.is_idle() || now < self.next {
            return;
        }
        let mut seen = BTreeMap::new();
        for worker in workers.iter().filter(|worker| worker.plan.rate.is_some()) {
            let name = &worker.plan.name;
            let read = self.read.entry(name.clone()).or_default();
            if let Some(did) = look(worker, read, &self.proc_root) {
                seen.insert(name.clone(), did);
            }
        }
        let works = |did: &GroupWork| did.cpu > did.time / MIN_USE_DIVISOR;
        let is_first = seen.is_empty();
        self.interval = if is_first || seen.values().any(works) {
            INTERVAL
        } else {
            (2 * self.interval).min(MAX_INTERVAL)
        };
        self.next = Instant::now() + self.interval;
        let changes = self.rates.turn(&seen);
        changes.iter().for_each(log);
        let unsent = std::mem::take(&mut self.unsent);
        let changed = changes.iter().map(|change| &change.group).chain(&unsent);
        let changed: Vec<String> = changed.cloned().collect();
        for worker in workers {
            if !changed.contains(&worker.plan.name) {
                continue;
            }
            let share = self.rates.share(&worker.plan.name);
            let share = share.unwrap_or_else(|| millionths(worker.plan.resolved.params.cpu));
            if let Err(name) = allow(worker, share) {
                self.unsent.push(name);
            }
        }
    }
}

/// Lets a worker use this share.
///
/// # Errors
/// It was not sent: the group's name.
fn allow(worker: &mut WorkerProcess, share: Share) -> Result<(), String> {
    worker.allow(share as f64 / CORE as f64).map_err(|error| {
        tracing::debug!(
            "group {}: cannot send its share to the worker: {error}",
            worker.plan.name
        );
        worker.plan.name.clone()
    })
}

fn log(change: &Change) {
    if change.is_large() {
        tracing::info!("{change}");
    } else {
        tracing::debug!("{change}");
    }
}

/// Work and waits of a group since its last reading; none the first time.
fn look(worker: &WorkerProcess, last: &mut Counters, proc_root: &Path) -> Option<GroupWork> {
    let now = Counters {
        at: clock::now(),
        cpu: worker.account.cpu(),
        written: worker.written_pages(),
        working: last.working,
    };
    let before = std::mem::replace(last, now);
    let (time, cpu) = (now.at - before.at, now.cpu.saturating_sub(before.cpu));
    let written = now.written.saturating_sub(before.written);
    let is_first = before.at == 0;
    if !is_first && cpu <= time / MIN_USE_DIVISOR {
        return Some(GroupWork {
            time,
            cpu,
            written,
            ..GroupWork::default()
        });
    }
    let waited = |was: WaitingShare, resource| {
        let total = waited(&worker.plan, resource, proc_root);
        was.read(now.at, total)
    };
    last.working = BusyCounters {
        freed: freed(worker.domain.as_ref()).unwrap_or(before.working.freed),
        cpu: waited(before.working.cpu, Resource::Cpu),
        memory: waited(before.working.memory, Resource::Memory),
    };
    let (new, old) = (&last.working, &before.working);
    (!is_first).then(|| GroupWork {
        time,
        cpu,
        reclaimed: new.freed.saturating_sub(old.freed),
        written,
        cpu_waited: new.cpu.of(time),
        memory_waited: new.memory.of(time),
    })
}

/// Pages that merging has ever freed in a domain; none if the module does not answer.
fn freed(domain: Option<&Device>) -> Option<u64> {
    let info = info(domain?)?;
    Some((info.merged + info.zeroed).saturating_sub(info.frames_made))
}

/// Waiting time of a group's tasks: of the member that waited longest, else of the payer, else of
/// the host.
fn waited(plan: &Plan, resource: Resource, proc_root: &Path) -> Nanos {
    let members = plan.giving.iter().flat_map(|giving| &giving.members);
    let folders = members.filter_map(|member| match &member.place {
        SizeControl::Cgroup { folder, .. } => Some(folder.clone()),
        SizeControl::Machine { .. } => None,
    });
    let tree = cgroup_tree();
    let own = folders.filter_map(|folder| pressure::of_cgroup(&tree, &folder, resource));
    let payer = || {
        let folder = PathBuf::from(plan.book.as_ref()?.folder());
        pressure::of_cgroup(&tree, &folder, resource)
    };
    let host = || pressure::of_host(proc_root, resource);
    own.max().or_else(payer).or_else(host).unwrap_or(0)
}

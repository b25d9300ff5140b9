//! Dynamic rates: each turn sends workers the share of a core that they may use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use uksm_linux::clock;
use uksm_linux::module::Device;
use uksm_policy::command::Nanos;
use uksm_redistribution::pressure::{self, Resource};
use uksm_redistribution::rates::{
    CORE, Change, GroupWork, MIN_USE_DIVISOR, RateTerms, Share, millionths,
};
use uksm_redistribution::settings::SizeControl;

use crate::config::cpu_total;
use crate::config::plan::Plan;
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::accounts::info;
use crate::groups::supervisor::placement::cgroup_tree;
use crate::groups::supervisor::rates::{INTERVAL, LONGEST, Reading, Waiting, Working};
use crate::groups::supervisor::worker_process::WorkerProcess;

impl Supervisor<'_> {
    /// Divides the total among changed groups, before any worker is started.
    pub(in crate::groups::supervisor) fn divide(&mut self) {
        let plans = self.workers.iter().map(|worker| &worker.plan);
        let terms = |plan: &Plan| Some((plan.name.clone(), plan.rate?));
        let terms: BTreeMap<String, RateTerms> = plans.clone().filter_map(terms).collect();
        self.rates.read.retain(|name, _| terms.contains_key(name));
        self.rates.rates.follow(cpu_total::total(plans), &terms);
        for worker in &mut self.workers {
            let share = self.rates.rates.share(&worker.plan.name);
            match (share, worker.share) {
                (None, None) => continue,
                // Its rate is fixed now, or as before.
                (None, Some(_)) => allow(worker, millionths(worker.plan.resolved.params.cpu)),
                (Some(share), _) => allow(worker, share),
            }
            .unwrap_or_else(|name| self.rates.untold.push(name));
            if share.is_none() {
                worker.share = None;
            }
        }
        // The first turn compares with the readings of now.
        self.rates.next = Instant::now();
        self.rates.interval = INTERVAL;
    }

    /// Runs a turn, if it is time.
    pub(in crate::groups::supervisor) fn adjust_rates(&mut self) {
        if self.rates.is_idle() || Instant::now() < self.rates.next {
            return;
        }
        let rates = &mut self.rates;
        let mut seen = BTreeMap::new();
        for worker in self
            .workers
            .iter()
            .filter(|worker| worker.plan.rate.is_some())
        {
            let name = &worker.plan.name;
            let read = rates.read.entry(name.clone()).or_default();
            if let Some(did) = look(worker, read, &self.roots.proc_root) {
                seen.insert(name.clone(), did);
            }
        }
        let works = |did: &GroupWork| did.cpu > did.time / MIN_USE_DIVISOR;
        let is_first = seen.is_empty();
        rates.interval = if is_first || seen.values().any(works) {
            INTERVAL
        } else {
            (2 * rates.interval).min(LONGEST)
        };
        rates.next = Instant::now() + rates.interval;
        let changes = rates.rates.turn(&seen);
        changes.iter().for_each(log);
        let untold = std::mem::take(&mut rates.untold);
        let changed = changes.iter().map(|change| &change.group).chain(&untold);
        let changed: Vec<String> = changed.cloned().collect();
        for worker in &mut self.workers {
            if !changed.contains(&worker.plan.name) {
                continue;
            }
            let share = rates.rates.share(&worker.plan.name);
            let share = share.unwrap_or_else(|| millionths(worker.plan.resolved.params.cpu));
            if let Err(name) = allow(worker, share) {
                rates.untold.push(name);
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
fn look(worker: &WorkerProcess, last: &mut Reading, proc_root: &Path) -> Option<GroupWork> {
    let now = Reading {
        at: clock::now(),
        cpu: worker.account.cpu(),
        working: last.working,
    };
    let before = std::mem::replace(last, now);
    let (time, cpu) = (now.at - before.at, now.cpu.saturating_sub(before.cpu));
    let is_first = before.at == 0;
    if !is_first && cpu <= time / MIN_USE_DIVISOR {
        return Some(GroupWork {
            time,
            cpu,
            ..GroupWork::default()
        });
    }
    let waited = |was: Waiting, resource| {
        let total = waited(&worker.plan, resource, proc_root);
        was.read(now.at, total)
    };
    last.working = Working {
        freed: freed(worker.domain.as_ref()).unwrap_or(before.working.freed),
        cpu: waited(before.working.cpu, Resource::Cpu),
        memory: waited(before.working.memory, Resource::Memory),
    };
    let (new, old) = (&last.working, &before.working);
    (!is_first).then(|| GroupWork {
        time,
        cpu,
        reclaimed: new.freed.saturating_sub(old.freed),
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

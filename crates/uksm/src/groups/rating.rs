//! Dynamic rates, as the supervisor keeps them: what each group did is read, and workers are told what they may use now.
//!
//! # Problem
//! What a worker frees and uses must be known each second, and a worker that has nothing to do must not be woken for that.
//!
//! # Approach
//! The supervisor reads it all itself: a worker's processor time from its clock, what was freed from its domain's counts, and how long
//! tasks wait from the control groups of the group's members, or else from that which pays for it, or else from the host. Of a worker that used
//! nothing, nothing else is read. Turns come each second while anybody works, and ever more seldom, down to each
//! [`LONGEST`], while nobody does. A worker that was not told, because it does not read, is told at the next turn; one that is started begins
//! with what its group has.
//!
//! # Units
//! Pages freed: those merged less frames made. What is written afterwards is not taken off: merging the same pages again and again
//! counts each time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uksm_linux::clock;
use uksm_linux::module::Device;
use uksm_policy::command::Nanos;
use uksm_redistribution::pressure::{self, Resource};
use uksm_redistribution::rates::{
    CORE, Change, Rates, Seen, Share, Status, Terms, WORK, millionths,
};
use uksm_redistribution::settings::Place;

use super::accounts::info;
use super::placement::cgroup_tree;
use super::supervisor::Supervisor;
use super::upkeep::Upkeep;
use crate::config::cpu_total;
use crate::config::plan::Plan;

/// From one turn to the next while somebody works.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same while nobody does.
const LONGEST: Duration = Duration::from_secs(8);

/// The rates of all groups whose rate is dynamic.
#[derive(Debug)]
pub(super) struct Rating {
    rates: Rates,
    next: Instant,
    interval: Duration,
    /// What was read of each at the last turn.
    read: BTreeMap<String, Reading>,
    /// Groups whose worker is to be told still.
    untold: Vec<String>,
}

impl Default for Rating {
    fn default() -> Rating {
        Rating {
            rates: Rates::default(),
            next: Instant::now(),
            interval: INTERVAL,
            read: BTreeMap::new(),
            untold: Vec::new(),
        }
    }
}

/// What only grows, as it was read.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    at: Nanos,
    cpu: Nanos,
    /// What was read when its worker had worked last.
    working: Working,
}

#[derive(Debug, Clone, Copy, Default)]
struct Working {
    freed: u64,
    cpu: Waiting,
    memory: Waiting,
}

/// The kernel adds up every two seconds how long tasks waited: the share of the time between two sums holds until the next.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    at: Nanos,
    total: Nanos,
    share: f64,
}

/// A sum that stays so long is one of nobody who waited.
const SUMMED: Nanos = 3_000_000_000;

impl Waiting {
    fn read(self, at: Nanos, total: Nanos) -> Waiting {
        let time = at - self.at;
        if self.at == 0 {
            let share = 0.0;
            return Waiting { at, total, share };
        }
        if total == self.total && time < SUMMED {
            return self;
        }
        let share = total.saturating_sub(self.total) as f64 / time.max(1) as f64;
        Waiting {
            at,
            total,
            share: share.min(1.0),
        }
    }

    /// How long of this time.
    fn of(self, time: Nanos) -> Nanos {
        // A part of a whole number of nanoseconds.
        millionths(self.share).saturating_mul(time) / CORE
    }
}

impl Rating {
    /// When the next turn is, if there is anything to do.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.is_idle()).then_some(self.next)
    }

    /// Whether no group's rate is dynamic, and all workers know what they may use.
    fn is_idle(&self) -> bool {
        self.rates.is_idle() && self.untold.is_empty()
    }

    /// How a group stands, if its rate is dynamic.
    pub(super) fn status(&self, group: &str) -> Option<Status> {
        self.rates.status(group)
    }
}

impl Supervisor<'_> {
    /// The groups have changed: what they may use is divided anew, before any worker is started.
    pub(super) fn divide(&mut self) {
        let plans = self.workers.iter().map(|worker| &worker.plan);
        let terms = |plan: &Plan| Some((plan.name.clone(), plan.rate?));
        let terms: BTreeMap<String, Terms> = plans.clone().filter_map(terms).collect();
        self.rating.read.retain(|name, _| terms.contains_key(name));
        self.rating.rates.follow(cpu_total::total(plans), &terms);
        for worker in &mut self.workers {
            let share = self.rating.rates.share(&worker.plan.name);
            match (share, worker.share) {
                (None, None) => continue,
                // Its rate is fixed now, or is what it was before.
                (None, Some(_)) => allow(worker, millionths(worker.plan.resolved.params.cpu)),
                (Some(share), _) => allow(worker, share),
            }
            .unwrap_or_else(|name| self.rating.untold.push(name));
            if share.is_none() {
                worker.share = None;
            }
        }
        // What is read now is what the first turn begins from.
        self.rating.next = Instant::now();
        self.rating.interval = INTERVAL;
    }

    /// A turn, if it is time.
    pub(super) fn rate(&mut self) {
        if self.rating.is_idle() || Instant::now() < self.rating.next {
            return;
        }
        let rating = &mut self.rating;
        let mut seen = BTreeMap::new();
        for worker in self
            .workers
            .iter()
            .filter(|worker| worker.plan.rate.is_some())
        {
            let name = &worker.plan.name;
            let read = rating.read.entry(name.clone()).or_default();
            if let Some(did) = look(worker, read, &self.roots.proc_root) {
                seen.insert(name.clone(), did);
            }
        }
        let works = |did: &Seen| did.cpu > did.time / WORK;
        let is_first = seen.is_empty();
        rating.interval = if is_first || seen.values().any(works) {
            INTERVAL
        } else {
            (2 * rating.interval).min(LONGEST)
        };
        rating.next = Instant::now() + rating.interval;
        let changes = rating.rates.turn(&seen);
        changes.iter().for_each(log);
        let untold = std::mem::take(&mut rating.untold);
        let changed = changes.iter().map(|change| &change.group).chain(&untold);
        let changed: Vec<String> = changed.cloned().collect();
        for worker in &mut self.workers {
            if !changed.contains(&worker.plan.name) {
                continue;
            }
            let share = rating.rates.share(&worker.plan.name);
            let share = share.unwrap_or_else(|| millionths(worker.plan.resolved.params.cpu));
            if let Err(name) = allow(worker, share) {
                rating.untold.push(name);
            }
        }
    }
}

/// Lets a worker use this share.
///
/// # Errors
/// It was not told: its name.
fn allow(worker: &mut Upkeep, share: Share) -> Result<(), String> {
    worker.allow(share as f64 / CORE as f64).map_err(|error| {
        tracing::debug!("group {}: not told its share: {error}", worker.plan.name);
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

/// What a group did since it was read last; none the first time.
fn look(worker: &Upkeep, last: &mut Reading, proc_root: &Path) -> Option<Seen> {
    let now = Reading {
        at: clock::now(),
        cpu: worker.account.cpu(),
        working: last.working,
    };
    let before = std::mem::replace(last, now);
    let (time, cpu) = (now.at - before.at, now.cpu.saturating_sub(before.cpu));
    let is_first = before.at == 0;
    if !is_first && cpu <= time / WORK {
        return Some(Seen {
            time,
            cpu,
            ..Seen::default()
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
    (!is_first).then(|| Seen {
        time,
        cpu,
        reclaimed: new.freed.saturating_sub(old.freed),
        cpu_waited: new.cpu.of(time),
        memory_waited: new.memory.of(time),
    })
}

/// Pages that merging has freed in a domain, ever; none if the module does not answer.
fn freed(domain: Option<&Device>) -> Option<u64> {
    let info = info(domain?)?;
    Some((info.merged + info.zeroed).saturating_sub(info.frames_made))
}

/// How long a group's tasks have waited: where they waited longest.
fn waited(plan: &Plan, resource: Resource, proc_root: &Path) -> Nanos {
    let members = plan.giving.iter().flat_map(|giving| &giving.members);
    let folders = members.filter_map(|member| match &member.place {
        Place::Cgroup { folder, .. } => Some(folder.clone()),
        Place::Machine { .. } => None,
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

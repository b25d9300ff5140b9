//! `uksm reload`: the configuration is read again while the groups run.
//!
//! # Problem
//! One bad line must change nothing. A good file must take effect without merging all memory again,
//! and no process may go on sharing with a group that it has left.
//!
//! # Approach
//! The whole plan is made before any change. The change of a group decides the work: if only its
//! processes change, its worker keeps running; if settings change, its worker is restarted with the
//! same frames; if a constant of the domain changes (limits, seed, policy of merging, payer), the
//! group gets a new domain as well. The pages of a removed group are unmerged first. In the end all
//! processes are checked again: a process of another group is unmerged from its old one. Slow steps
//! (the end of workers, unmerging) come before, one step a turn (`task_turn.rs`).
//!
//! These are methods of the supervisor, because a reload can change all its parts.

use std::collections::BTreeMap;

use uksm_linux::selection::GroupId;
use uksm_policy::params::Contents;

use crate::config::current::AddedPlan;
use crate::config::plan::Plan;
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::audit;
use crate::groups::supervisor::group_change::GroupChange;
use crate::groups::supervisor::rights;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::setting;

/// Settings that are a domain's, fixed when it is made.
const DOMAINS: [&str; 6] = [
    "max_frames",
    "max_sharers",
    "seed",
    "merge",
    "merge_spaces",
    "merge_across_nodes",
];

/// The kind of change to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanChange {
    Nothing,
    Processes,
    Settings,
    Domain,
}

fn change(old: &Plan, new: &Plan) -> PlanChange {
    let differs = |name: &&str| old.texts.get(*name) != new.texts.get(*name);
    if old.book != new.book || DOMAINS.iter().any(differs) {
        PlanChange::Domain
    } else if old.texts != new.texts {
        PlanChange::Settings
    } else if old.selection != new.selection {
        PlanChange::Processes
    } else {
        PlanChange::Nothing
    }
}

/// The effect of a change on one group.
enum WorkerFate {
    /// None.
    Stays,
    /// It gets this plan.
    Becomes(Box<Plan>),
    /// It is dissolved.
    Goes,
}

impl Supervisor<'_> {
    /// The changes that the configuration asks for now.
    ///
    /// # Errors
    /// It is invalid, or changes a setting that needs a restart of the daemon.
    pub(in crate::groups::supervisor) fn wanted_by_file(&mut self) -> Result<GroupChange, String> {
        let plans = self.configuration.reload()?;
        self.refuse_what_is_fixed(&plans.daemon.texts())?;
        rights::warn_of_missing(&plans.rules);
        Ok(GroupChange::All(Box::new(plans)))
    }

    fn fate(&self, wanted: &GroupChange, worker: &WorkerProcess) -> WorkerFate {
        let own = &worker.plan;
        let becomes = |plan: Option<Plan>| {
            plan.map_or(WorkerFate::Goes, |plan| WorkerFate::Becomes(Box::new(plan)))
        };
        match wanted {
            GroupChange::All(plans) => becomes(match &own.formed {
                Some(formed) => self.formed.anew(formed, &plans.rules),
                None => plans
                    .groups
                    .iter()
                    .find(|plan| plan.name == own.name)
                    .cloned(),
            }),
            GroupChange::One(added) if added.plan.name == own.name => {
                becomes(Some(added.plan.clone()))
            }
            GroupChange::Gone(name) if *name == own.name => WorkerFate::Goes,
            GroupChange::One(_) | GroupChange::Gone(_) => WorkerFate::Stays,
        }
    }

    /// The groups whose workers have to end, and whether their shared pages are broken first.
    pub(in crate::groups::supervisor) fn affected(
        &self,
        wanted: &GroupChange,
    ) -> Vec<(GroupId, bool)> {
        let workers = self.workers.iter();
        let affected = workers.filter_map(|worker| match self.fate(wanted, worker) {
            WorkerFate::Stays => None,
            WorkerFate::Goes => Some((worker.id, true)),
            WorkerFate::Becomes(plan) => match change(&worker.plan, &plan) {
                PlanChange::Nothing | PlanChange::Processes => None,
                change => {
                    // Processes do not part from a dropped domain, so pages that may no longer be
                    // shared would stay shared.
                    let loses =
                        change == PlanChange::Domain && worker.plan.selection != plan.selection;
                    Some((worker.id, loses || shares_less(&worker.plan, &plan)))
                }
            },
        });
        affected.collect()
    }

    /// Applies a change. Workers of the affected groups have ended, or hang, and pages that may not
    /// be shared are broken, except in groups with faults, which stay as they are.
    ///
    /// # Errors
    /// The changes that failed, in one line; all others were made.
    pub(in crate::groups::supervisor) fn apply(
        &mut self,
        wanted: GroupChange,
        faults: &BTreeMap<GroupId, String>,
    ) -> Result<(), String> {
        let mut errors = Vec::new();
        let replaced = self.change_groups(&wanted, faults, &mut errors);
        for plan in self.new_groups(&wanted, replaced) {
            let name = plan.name.clone();
            let id = self.discovery.processes_mut().grouping().new_group();
            match self.factory.worker(id, plan, None) {
                Ok(worker) => self.workers.push(worker),
                Err(error) => errors.push(format!("group {name}: {error:#}")),
            }
        }
        let is_done = errors.is_empty();
        self.note_applied(wanted, is_done);
        self.settle();
        match is_done {
            true => Ok(()),
            false => Err(errors.join("; ")),
        }
    }

    /// Changes and dissolves the groups that are there. Answers the new plans of groups that need
    /// a new domain.
    fn change_groups(
        &mut self,
        wanted: &GroupChange,
        faults: &BTreeMap<GroupId, String>,
        errors: &mut Vec<String>,
    ) -> Vec<Plan> {
        let mut new = Vec::new();
        for mut worker in self.workers.take_all() {
            let fate = self.fate(wanted, &worker);
            if let Some(line) = faults.get(&worker.id) {
                errors.push(format!(
                    "group {}: stays as it is: {line}",
                    worker.plan.name
                ));
                worker.allow_start();
                self.workers.push(worker);
                continue;
            }
            let plan = match fate {
                WorkerFate::Stays => {
                    self.workers.push(worker);
                    continue;
                }
                WorkerFate::Goes => {
                    self.dissolve(worker);
                    continue;
                }
                WorkerFate::Becomes(plan) => *plan,
            };
            match change(&worker.plan, &plan) {
                // Settings that only the supervisor uses may still differ.
                PlanChange::Nothing | PlanChange::Processes => {
                    worker.plan = plan;
                    worker.allow_start();
                }
                PlanChange::Settings => {
                    audit::changed(&worker.plan, &plan);
                    worker.plan = plan;
                    worker.allow_start();
                }
                PlanChange::Domain => {
                    audit::changed(&worker.plan, &plan);
                    worker.plan = plan.clone();
                    self.dissolve(worker);
                    new.push(plan);
                    continue;
                }
            }
            self.workers.push(worker);
        }
        new
    }

    /// The plans of the groups that are to be made: these replaced ones, and those that are not
    /// there.
    fn new_groups(&self, wanted: &GroupChange, replaced: Vec<Plan>) -> Vec<Plan> {
        let mut new = replaced;
        let is_there = |plan: &Plan| self.workers.iter().any(|w| w.plan.name == plan.name);
        match wanted {
            GroupChange::All(plans) => {
                let missing = plans.groups.iter().filter(|plan| !is_there(plan));
                let missing =
                    missing.filter(|plan| !new.iter().any(|n: &Plan| n.name == plan.name));
                let missing: Vec<Plan> = missing.cloned().collect();
                new.extend(missing);
            }
            GroupChange::One(added) if !is_there(&added.plan) && new.is_empty() => {
                new.push(added.plan.clone());
            }
            _ => {}
        }
        new
    }

    /// Stores the rules and the added groups of a change.
    fn note_applied(&mut self, wanted: GroupChange, is_done: bool) {
        match wanted {
            GroupChange::All(plans) => {
                tracing::info!("reloaded, {}", self.workers.counted_groups());
                self.formed.set_rules(plans.rules);
            }
            GroupChange::One(added) if is_done => {
                let AddedPlan { added, plan } = *added;
                tracing::info!("group {}: added, or changed", plan.name);
                self.configuration.added.insert(plan.name, added);
            }
            GroupChange::Gone(name) if is_done => {
                self.configuration.added.remove(&name);
                tracing::info!("group {name}: removed");
            }
            GroupChange::One(_) | GroupChange::Gone(_) => {}
        }
    }

    /// Drops a group's domain. A worker that has not ended is put aside.
    fn dissolve(&mut self, mut worker: WorkerProcess) {
        worker.drop_domain();
        self.discovery.drop_domain(worker.id);
        self.workers.keep_until_end(worker);
    }

    /// Sorts the changed groups, checks processes again, and starts workers.
    fn settle(&mut self) {
        self.workers.sort();
        self.formed.forget_gone(&self.workers);
        self.regroup();
        self.workers.start_due();
    }

    /// # Errors
    /// The setting that needs a restart of the daemon.
    fn refuse_what_is_fixed(&self, new: &BTreeMap<String, String>) -> Result<(), String> {
        let old = &self.settings;
        let changed = setting::of_daemon_alone().find(|name| old.get(*name) != new.get(*name));
        match changed {
            Some(name) => Err(format!(
                "{name} cannot change while it runs: restart the daemon"
            )),
            None => Ok(()),
        }
    }
}

/// Whether some merged contents may no longer be merged.
fn shares_less(old: &Plan, new: &Plan) -> bool {
    let (old, new) = (&old.resolved.params, &new.resolved.params);
    let is_narrower = match old.merge {
        Contents::All => new.merge != Contents::All,
        Contents::Between => new.merge == Contents::Zero,
        Contents::Zero => return false,
    };
    is_narrower
        || new.merge_spaces > old.merge_spaces
        || (old.merge_across_nodes && !new.merge_across_nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::plans::tests::Host;

    #[test]
    fn what_has_changed_decides_what_is_done() {
        let host = Host::new();
        let plan = |text: &str| {
            let text = format!("[group.a]\ncomm = \"nginx\"\n{text}");
            host.plan(&text).unwrap().remove(0)
        };
        let old = plan("");
        for (text, change_is) in [
            ("", PlanChange::Nothing),
            ("exclude = { pid = 12 }", PlanChange::Processes),
            ("governor = \"low\"", PlanChange::Settings),
            ("merge = \"zero\"", PlanChange::Domain),
            ("merge_spaces = 2", PlanChange::Domain),
            ("merge_across_nodes = false", PlanChange::Domain),
            ("max_frames = 7", PlanChange::Domain),
            ("seed = 7", PlanChange::Domain),
            ("book = \"/x\"", PlanChange::Domain),
        ] {
            let new = plan(text);
            assert_eq!(change(&old, &new), change_is, "{text}");
            assert_eq!(shares_less(&old, &new), text.starts_with("merge"), "{text}");
            assert!(!shares_less(&new, &old), "{text}");
        }
    }

    #[test]
    fn what_may_not_be_shared_any_more_is_broken() {
        let host = Host::new();
        let plan = |text: &str| {
            let text = format!("[group.a]\ncomm = \"nginx\"\n{text}");
            host.plan(&text).unwrap().remove(0)
        };
        let zero = "merge = \"zero\"";
        let [two, three] = ["merge_spaces = 2", "merge_spaces = 3"];
        for (old, new, is_less) in [
            ("", zero, true),
            (zero, "", false),
            (zero, three, false),
            ("", three, true),
            (three, two, false),
            (two, three, true),
        ] {
            let is = shares_less(&plan(old), &plan(new));
            assert_eq!(is, is_less, "{old}, then {new}");
        }
    }
}

//! `uksm reload`: the configuration is read again while the groups run.
//!
//! # Problem
//! One bad line must change nothing; a good file must take effect without that memory is merged all over again, and no process may go on
//! sharing with a group that it is not in any more.
//!
//! # Approach
//! The whole plan is made before anything is done. Then, by what has changed in a group: nothing; its processes, which its
//! worker learns while it works; its settings, for which its worker is started again with the frames it has; what is fixed when a
//! domain is made (its limits, its seed, what may be merged, the control group that pays), for which it gets a new domain as well. A group that is gone
//! has all its pages broken first. In the end all processes are looked at again: who is of another group now parts from the old one.

use std::collections::BTreeMap;

use uksm_policy::params::Contents;
use uksm_policy::report::counted;

use super::answering::break_spaces;
use super::supervisor::Supervisor;
use super::upkeep::Upkeep;
use super::{Plan, Plans, audit};
use crate::setting;

/// Settings that are a domain's, fixed when it is made.
const DOMAINS: [&str; 5] = ["max_frames", "max_sharers", "seed", "merge", "merge_spaces"];

/// What of a group is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Processes,
    Settings,
    Domain,
}

fn change(old: &Plan, new: &Plan) -> Change {
    let differs = |name: &&str| old.texts.get(*name) != new.texts.get(*name);
    if old.book != new.book || DOMAINS.iter().any(differs) {
        Change::Domain
    } else if old.texts != new.texts {
        Change::Settings
    } else if old.selection != new.selection {
        Change::Processes
    } else {
        Change::Nothing
    }
}

impl Supervisor<'_> {
    /// Takes over these groups instead of those it has.
    ///
    /// # Errors
    /// What could not be changed, in one line; everything else was.
    pub(super) fn take_over(&mut self, plans: Plans) -> Result<(), String> {
        let Plans {
            daemon,
            groups: mut plans,
            rules,
        } = plans;
        self.refuse_what_is_fixed(&daemon.texts())?;
        let formed = self.workers.iter().filter_map(|w| w.plan.formed.as_ref());
        plans.extend(formed.filter_map(|formed| self.forming.anew(formed, &rules)));
        let mut faults = Vec::new();
        let old = std::mem::take(&mut self.workers).into_iter();
        let (mut stay, go): (Vec<Upkeep>, Vec<Upkeep>) =
            old.partition(|worker| plans.iter().any(|plan| plan.name == worker.plan.name));
        for mut worker in go {
            match dissolve(&mut worker) {
                Ok(()) => self.has_no_domain(&worker),
                Err(line) => {
                    faults.push(format!("group {}: {line}", worker.plan.name));
                    self.workers.push(worker);
                }
            }
        }
        for plan in plans {
            let old = stay.iter().position(|worker| worker.plan.name == plan.name);
            let old = old.map(|at| stay.remove(at));
            if let Err(fault) = self.make(old, plan) {
                faults.push(fault);
            }
        }
        self.forming.rules = rules;
        self.settle();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.join("; "))
        }
    }

    /// Makes of a group, or of none, what this says, and keeps it.
    ///
    /// # Errors
    /// It stays as it was, if there was one, in one line.
    fn make(&mut self, old: Option<Upkeep>, plan: Plan) -> Result<(), String> {
        let fault = |line: &dyn std::fmt::Display| format!("group {}: {line}", plan.name);
        if let Some(mut worker) = old {
            match alter(&mut worker, &plan) {
                Ok(Change::Domain) => self.has_no_domain(&worker),
                Ok(_) => {
                    self.workers.push(worker);
                    return Ok(());
                }
                Err(line) => {
                    self.workers.push(worker);
                    return Err(fault(&line));
                }
            }
        }
        let fault = fault(&"");
        let worker = self
            .upkeep(plan, None)
            .map_err(|error| format!("{fault}{error:#}"))?;
        self.workers.push(worker);
        Ok(())
    }

    /// Takes over one group, whether there is one of its name or not.
    ///
    /// # Errors
    /// As [`Supervisor::take_over`].
    pub(super) fn take_over_one(&mut self, plan: Plan) -> Result<(), String> {
        let old = self
            .workers
            .iter()
            .position(|worker| worker.plan.name == plan.name);
        let old = old.map(|at| self.workers.remove(at));
        let made = self.make(old, plan);
        self.settle();
        made
    }

    /// Dissolves one group, of which nothing is left to share.
    ///
    /// # Errors
    /// It stays.
    pub(super) fn dissolve(&mut self, name: &str) -> Result<(), String> {
        let Some(at) = self
            .workers
            .iter()
            .position(|worker| worker.plan.name == name)
        else {
            return Ok(());
        };
        let mut worker = self.workers.remove(at);
        let dissolved = dissolve(&mut worker);
        match &dissolved {
            Ok(()) => self.has_no_domain(&worker),
            Err(_) => self.workers.push(worker),
        }
        self.settle();
        dissolved.map_err(|line| format!("group {name}: {line}"))
    }

    /// The groups are others now.
    fn settle(&mut self) {
        self.workers.sort_by(|a, b| {
            let key = |w: &Upkeep| (w.plan.formed.is_some(), w.plan.selection.all);
            key(a).cmp(&key(b)).then(a.plan.name.cmp(&b.plan.name))
        });
        self.forget_gone();
        self.regroup();
        self.keep_up();
    }

    /// The processes of a group are attached nowhere.
    fn has_no_domain(&mut self, worker: &Upkeep) {
        self.processes.has_no_domain(worker.id);
        self.attachable.remove(&worker.id);
    }

    /// # Errors
    /// Something that only a new start can change.
    fn refuse_what_is_fixed(&self, new: &BTreeMap<String, String>) -> Result<(), String> {
        let old = &self.told;
        let changed = setting::of_daemon_alone().find(|name| old.get(*name) != new.get(*name));
        match changed {
            Some(name) => Err(format!(
                "{name} cannot change while it runs: restart the daemon"
            )),
            None => Ok(()),
        }
    }
}

/// Breaks all that a group's processes share with each other, and ends its worker and domain.
fn dissolve(worker: &mut Upkeep) -> Result<(), String> {
    break_all(worker)?;
    worker.end();
    worker.drop_domain();
    Ok(())
}

/// Breaks all that a group's processes share with each other.
fn break_all(worker: &mut Upkeep) -> Result<(), String> {
    if worker.pid().is_none() {
        return Ok(());
    }
    let spaces: Vec<u32> = worker.handover.here().map(|space| space.0).collect();
    let broken = match break_spaces(worker, &spaces) {
        Ok((_, _, 0)) => return Ok(()),
        Ok((_, _, stopped)) => format!(
            "in {} memory does not suffice for copies",
            counted(stopped, "process", "processes")
        ),
        Err(line) => line,
    };
    // This worker leaves them alone from now on; the next one does not.
    worker.end();
    Err(format!("it stays: {broken}"))
}

/// Whether contents that were merged may not be any more.
fn shares_less(old: &Plan, new: &Plan) -> bool {
    let params = |plan: &Plan| {
        (
            plan.resolved.params.merge,
            plan.resolved.params.merge_spaces,
        )
    };
    let ((before, held_by), (after, must_hold)) = (params(old), params(new));
    let is_narrower = match before {
        Contents::All => after != Contents::All,
        Contents::Between => after == Contents::Zero,
        Contents::Zero => return false,
    };
    is_narrower || must_hold > held_by
}

/// Makes a group what it is to be, and says what that took. Where that is another domain, nothing is left of the old group, and a
/// new one is to be made.
fn alter(worker: &mut Upkeep, plan: &Plan) -> Result<Change, String> {
    let change = change(&worker.plan, plan);
    match change {
        // What only the supervisor heeds may differ still.
        Change::Nothing | Change::Processes => worker.plan = plan.clone(),
        Change::Settings | Change::Domain => {
            // Of a domain that is gone nobody parts, and what may not be shared any more is shared.
            let loses = change == Change::Domain && worker.plan.selection != plan.selection;
            if loses || shares_less(&worker.plan, plan) {
                break_all(worker)?;
            }
            worker.end();
            audit::changed(&worker.plan, plan);
            worker.plan = plan.clone();
            if change == Change::Domain {
                worker.drop_domain();
            }
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::tests::Host;

    #[test]
    fn what_has_changed_decides_what_is_done() {
        let host = Host::new();
        let plan = |text: &str| {
            let text = format!("[group.a]\ncomm = \"nginx\"\n{text}");
            host.plan(&text).unwrap().remove(0)
        };
        let old = plan("");
        for (text, change_is) in [
            ("", Change::Nothing),
            ("exclude = { pid = 12 }", Change::Processes),
            ("governor = \"low\"", Change::Settings),
            ("merge = \"zero\"", Change::Domain),
            ("merge_spaces = 2", Change::Domain),
            ("max_frames = 7", Change::Domain),
            ("seed = 7", Change::Domain),
            ("book = \"/x\"", Change::Domain),
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

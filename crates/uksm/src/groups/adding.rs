//! Groups that are added, changed and removed while the daemon runs.
//!
//! # Problem
//! Whoever starts a customer's machine wants a group for it now. That must not read a file that somebody is editing, nor start anybody
//! else's worker again, nor let a group come to be that a file could not have.
//!
//! # Approach
//! The configuration as it was read last is kept, and the groups that were added beside it, by their keys. One group is planned against
//! all others and then becomes what was said, as with a reload. A reload plans the added ones again, with what the file
//! says now; if it names one of them, that is an error, and everything stays. Groups that a file or a rule names are changed there.
//!
//! Processes named by id were found once: who has ended meanwhile is nobody, and a later process with that id is not meant.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::Selection;

use super::reload::Wanted;
use super::supervisor::{Supervisor, check_cgroups};
use super::{Group, Plan, Plans, conflicts, members, part_of_bottom, plan, plan_one, sort};
use crate::config;
use crate::control::Change;
use crate::setting::Settings;

/// Reads the configuration again, with what the command line said over it.
pub(crate) type Read<'a> = Box<dyn Fn() -> Result<Settings, String> + 'a>;

/// What the daemon was told, by whomever.
pub(crate) struct Configuration<'a> {
    read: Read<'a>,
    proc: Proc,
    /// As it was read last.
    settings: Settings,
    /// By name.
    added: BTreeMap<String, Added>,
}

/// A group that is to be added or changed, and what it will be.
#[derive(Debug)]
pub(super) struct AddedPlan {
    added: Added,
    pub(super) plan: Plan,
}

/// A group that was added.
#[derive(Debug, Clone)]
struct Added {
    keys: BTreeMap<String, String>,
    /// Its processes, as they were when it was told.
    selection: Selection,
}

impl<'a> Configuration<'a> {
    /// This one, which `read` reads again.
    pub(crate) fn new(settings: Settings, proc: Proc, read: Read<'a>) -> Configuration<'a> {
        Configuration {
            read,
            proc,
            settings,
            added: BTreeMap::new(),
        }
    }

    /// Everything that it asks for.
    ///
    /// # Errors
    /// As [`plan`].
    pub(crate) fn plan(&self) -> Result<Plans, String> {
        plan(&self.with_added(&self.settings)?, &self.proc)
    }

    /// Reads it again. What cannot stand is not taken over.
    ///
    /// # Errors
    /// As [`plan`] and [`check_cgroups`], and a group that was added and stands in a file now.
    pub(super) fn reload(&mut self) -> Result<Plans, String> {
        let settings = (self.read)()?;
        let all = self.with_added(&settings)?;
        if !all.has_groups() {
            return Err("there are no groups any more: restart the daemon".to_owned());
        }
        let plans = plan(&all, &self.proc)?;
        check_cgroups(&plans.groups, &plans.rules, &self.proc)
            .map_err(|error| format!("{error:#}"))?;
        self.settings = settings;
        Ok(plans)
    }

    fn with_added(&self, settings: &Settings) -> Result<Settings, String> {
        let mut all = settings.clone();
        for (name, added) in &self.added {
            if let Some(group) = settings.groups.iter().find(|group| group.name == *name) {
                return Err(format!(
                    "{}: was added by `uksm group add` as well: remove it there, or by `uksm group remove {name}`",
                    group.origin
                ));
            }
            all.groups.push(added.group(name)?);
        }
        Ok(all)
    }

    /// What was added as, if it was.
    ///
    /// # Errors
    /// It was not: who has it, or that nobody has.
    fn added(&self, name: &str, workers: &[&Plan]) -> Result<&Added, String> {
        if let Some(added) = self.added.get(name) {
            return Ok(added);
        }
        let is_it = |plan: &&&Plan| plan.name == name;
        Err(match workers.iter().find(is_it) {
            Some(plan) if plan.formed.is_some() => format!(
                "{name}: is of {}: change the rule, and `uksm reload`",
                plan.origin
            ),
            Some(plan) => format!(
                "{name}: stands in {}: change it there, and `uksm reload`",
                plan.origin
            ),
            None => format!("{name}: no such group"),
        })
    }

    /// Plans one group as it would be with these keys, beside those that run. Nothing is changed.
    fn planned(
        &self,
        who: &str,
        name: &str,
        keys: BTreeMap<String, String>,
        running: &[&Plan],
    ) -> Result<(Added, Plan), String> {
        let group = config::told::group(who, name, &keys)?;
        let mut all = self.with_added(&self.settings)?;
        all.groups.retain(|other| other.name != name);
        all.groups.push(group.clone());
        sort(&mut all.groups);
        conflicts::between(&all.groups)?;
        let parts = all.groups.len() + all.rules.len();
        let new = plan_one(&all, &group, &self.proc, part_of_bottom(parts, 1))?;
        let plan_of = |of: &Group| match of.name == name {
            true => Some(&new),
            false => running.iter().find(|plan| plan.name == of.name).copied(),
        };
        let giving = all.groups.iter().map(|group| {
            let plan = plan_of(group);
            (&group.told, plan.and_then(|plan| plan.giving.as_ref()))
        });
        members::between(giving)?;
        let plans: Vec<Plan> = all.groups.iter().filter_map(plan_of).cloned().collect();
        conflicts::warn_of_processes(&plans, &self.proc);
        let mut selection = new.selection.clone();
        // What is excluded for all is added each time.
        selection.excluded = group.settings.targets.excluded.clone();
        Ok((Added { keys, selection }, new))
    }
}

impl Added {
    fn group(&self, name: &str) -> Result<Group, String> {
        let mut group = config::told::group(&who("add", name), name, &self.keys)?;
        group.settings.targets = self.selection.clone();
        group.is_pinned = true;
        Ok(group)
    }
}

/// Who says it, in errors.
fn who(what: &str, name: &str) -> String {
    format!("uksm group {what} {}", name.escape_debug())
}

impl Supervisor<'_> {
    /// What groups are to become when one is added, changed or removed.
    ///
    /// # Errors
    /// It cannot stand; nothing is changed.
    pub(super) fn wanted_by(&self, change: &Change) -> Result<Wanted, String> {
        match change {
            Change::Add { name, keys } => self.add(name, keys),
            Change::Set { name, keys, unset } => self.set(name, keys, unset),
            Change::Remove { name } => {
                self.configuration.added(name, &self.running())?;
                Ok(Wanted::Gone(name.clone()))
            }
        }
    }

    fn add(&self, name: &str, keys: &BTreeMap<String, String>) -> Result<Wanted, String> {
        let running = self.running();
        if let Some(plan) = running.iter().find(|plan| plan.name == name) {
            return Err(match self.configuration.added.contains_key(name) {
                true => format!("{name}: was added already: `uksm group set {name}` changes it"),
                false => format!("{name}: stands in {} already", plan.origin),
            });
        }
        self.planned("add", name, keys.clone(), &running)
    }

    fn set(
        &self,
        name: &str,
        changed: &BTreeMap<String, String>,
        unset: &[String],
    ) -> Result<Wanted, String> {
        let running = self.running();
        let mut keys = self.configuration.added(name, &running)?.keys.clone();
        for key in unset {
            if keys.remove(key).is_none() {
                return Err(format!("{}: {key}: is not set", who("set", name)));
            }
        }
        keys.extend(changed.clone());
        self.planned("set", name, keys, &running)
    }

    fn planned(
        &self,
        what: &str,
        name: &str,
        keys: BTreeMap<String, String>,
        running: &[&Plan],
    ) -> Result<Wanted, String> {
        let configuration = &self.configuration;
        let (added, plan) = configuration.planned(&who(what, name), name, keys, running)?;
        check_cgroups(std::slice::from_ref(&plan), &[], &configuration.proc)
            .map_err(|error| format!("{error:#}"))?;
        Ok(Wanted::One(Box::new(AddedPlan { added, plan })))
    }

    /// A group is what was asked for.
    pub(super) fn note_added(&mut self, AddedPlan { added, plan }: AddedPlan) {
        tracing::info!("group {}: added, or changed", plan.name);
        self.configuration.added.insert(plan.name, added);
    }

    /// A group is gone.
    pub(super) fn note_removed(&mut self, name: &str) {
        self.configuration.added.remove(name);
        tracing::info!("group {name}: removed");
    }

    fn running(&self) -> Vec<&Plan> {
        self.workers.iter().map(|worker| &worker.plan).collect()
    }
}

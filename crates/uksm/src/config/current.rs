//! The configuration in force: the files as last read, and the groups that commands added.
//!
//! # Problem
//! An operator who starts a customer's machine wants a group for it at once. That must not read a
//! file that is being edited, restart another group's worker, or make a group that a file could not
//! describe.
//!
//! # Approach
//! The last read configuration is kept, with the keys of the groups that commands added. One group
//! is planned against all others, and then takes effect as in a reload. A reload plans the added
//! groups again, with the new files; if a file names one of them, that is an error, and nothing
//! changes. Groups of a file or of a rule are changed there.
//!
//! Processes named by id are looked up once: those that have ended are left out, and a later
//! process with the same id is not meant.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::Selection;

use super::cgroups::check_cgroups;
use super::group::Group;
use super::plan::{Plan, part_of_bottom, plan_one};
use super::plans::{Plans, plan, sort};
use super::{Config, conflicts, group_keys, members};

/// Reads the configuration again, with the command line's settings over it.
pub(crate) type Read<'a> = Box<dyn Fn() -> Result<Config, String> + 'a>;

/// The configuration of the daemon, from files and commands.
pub(crate) struct Configuration<'a> {
    read: Read<'a>,
    pub(crate) proc: Proc,
    /// The last read configuration.
    config: Config,
    /// By name.
    pub(crate) added: BTreeMap<String, AddedGroup>,
}

/// A group that is to be added or changed, and its plan.
#[derive(Debug)]
pub(crate) struct AddedPlan {
    pub(crate) added: AddedGroup,
    pub(crate) plan: Plan,
}

/// A group that was added.
#[derive(Debug, Clone)]
pub(crate) struct AddedGroup {
    pub(crate) keys: BTreeMap<String, String>,
    /// Its processes when the command came.
    selection: Selection,
}

impl<'a> Configuration<'a> {
    /// This configuration, which `read` reads again.
    pub(crate) fn new(config: Config, proc: Proc, read: Read<'a>) -> Configuration<'a> {
        Configuration {
            read,
            proc,
            config,
            added: BTreeMap::new(),
        }
    }

    /// The plans of all its groups and rules.
    ///
    /// # Errors
    /// As [`plan`].
    pub(crate) fn plan(&self) -> Result<Plans, String> {
        plan(&self.with_added(&self.config)?, &self.proc)
    }

    /// Reads the configuration again. An invalid one is not used.
    ///
    /// # Errors
    /// As [`plan`] and [`check_cgroups`], and a file that names a group that was added.
    pub(crate) fn reload(&mut self) -> Result<Plans, String> {
        let config = (self.read)()?;
        let all = self.with_added(&config)?;
        if !all.has_groups() {
            return Err("there are no groups any more: restart the daemon".to_owned());
        }
        let plans = plan(&all, &self.proc)?;
        check_cgroups(&plans.groups, &plans.rules, &self.proc)
            .map_err(|error| format!("{error:#}"))?;
        self.config = config;
        Ok(plans)
    }

    fn with_added(&self, config: &Config) -> Result<Config, String> {
        let mut all = config.clone();
        for (name, added) in &self.added {
            if let Some(group) = config.groups.iter().find(|group| group.name == *name) {
                return Err(format!(
                    "{}: `uksm group add` has added a group of this name: choose another name, \
                     or run `uksm group remove {name}`",
                    group.origin
                ));
            }
            all.groups.push(added.group(name)?);
        }
        Ok(all)
    }

    /// The group that was added by this name.
    ///
    /// # Errors
    /// It was not added: where it is from, or that there is none.
    pub(crate) fn added(&self, name: &str, workers: &[&Plan]) -> Result<&AddedGroup, String> {
        if let Some(added) = self.added.get(name) {
            return Ok(added);
        }
        let is_it = |plan: &&&Plan| plan.name == name;
        Err(match workers.iter().find(is_it) {
            Some(plan) if plan.formed.is_some() => format!(
                "{name}: was formed by {}: change the rule, and run `uksm reload`",
                plan.origin
            ),
            Some(plan) => format!(
                "{name}: is configured in {}: change it there, and run `uksm reload`",
                plan.origin
            ),
            None => format!("{name}: no such group"),
        })
    }

    /// Plans one group with these keys, beside the running ones. Nothing is changed.
    pub(crate) fn planned(
        &self,
        who: &str,
        name: &str,
        keys: BTreeMap<String, String>,
        running: &[&Plan],
    ) -> Result<(AddedGroup, Plan), String> {
        let group = group_keys::group(who, name, &keys)?;
        let mut all = self.with_added(&self.config)?;
        all.groups.retain(|other| other.name != name);
        all.groups.push(group.clone());
        sort(&mut all.groups);
        conflicts::between(&all.groups)?;
        let parts = all.groups.len() + all.rules.len();
        let new = plan_one(&all.settings, &group, &self.proc, part_of_bottom(parts, 1))?;
        let plan_of = |of: &Group| match of.name == name {
            true => Some(&new),
            false => running.iter().find(|plan| plan.name == of.name).copied(),
        };
        let giving = all.groups.iter().map(|group| {
            let plan = plan_of(group);
            (
                &group.redistribution,
                plan.and_then(|plan| plan.giving.as_ref()),
            )
        });
        members::between(giving)?;
        let plans: Vec<Plan> = all.groups.iter().filter_map(plan_of).cloned().collect();
        conflicts::warn_of_processes(&plans, &self.proc);
        let mut selection = new.selection.clone();
        // Exclusions for all groups are added at each plan.
        selection.excluded = group.settings.targets.excluded.clone();
        Ok((AddedGroup { keys, selection }, new))
    }
}

impl AddedGroup {
    fn group(&self, name: &str) -> Result<Group, String> {
        let mut group = group_keys::group(&who("add", name), name, &self.keys)?;
        group.settings.targets = self.selection.clone();
        group.is_pinned = true;
        Ok(group)
    }
}

/// The command, as errors name it.
pub(crate) fn who(what: &str, name: &str) -> String {
    format!("uksm group {what} {}", name.escape_debug())
}

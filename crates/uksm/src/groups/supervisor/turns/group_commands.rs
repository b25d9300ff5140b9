//! Commands that add, change and remove groups while the daemon runs.

use std::collections::BTreeMap;

use crate::config::cgroups::check_cgroups;
use crate::config::current::{AddedPlan, who};
use crate::config::plan::Plan;
use crate::control::Change;
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::wanted::Wanted;

impl Supervisor<'_> {
    /// The plan of a command that adds, changes or removes a group.
    ///
    /// # Errors
    /// It is invalid; nothing is changed.
    pub(in crate::groups::supervisor) fn wanted_by(
        &self,
        change: &Change,
    ) -> Result<Wanted, String> {
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
                false => format!("{name}: is configured in {} already", plan.origin),
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

    /// Notes that a group was added or changed.
    pub(in crate::groups::supervisor) fn note_added(
        &mut self,
        AddedPlan { added, plan }: AddedPlan,
    ) {
        tracing::info!("group {}: added, or changed", plan.name);
        self.configuration.added.insert(plan.name, added);
    }

    /// Notes that a group was removed.
    pub(in crate::groups::supervisor) fn note_removed(&mut self, name: &str) {
        self.configuration.added.remove(name);
        tracing::info!("group {name}: removed");
    }

    fn running(&self) -> Vec<&Plan> {
        self.workers.iter().map(|worker| &worker.plan).collect()
    }
}

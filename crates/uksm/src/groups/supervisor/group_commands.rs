//! Commands that add, change and remove groups while the daemon runs: their plans.

use std::collections::BTreeMap;

use crate::config::cgroups::check_cgroups;
use crate::config::current::{AddedPlan, Configuration, who};
use crate::config::plan::Plan;
use crate::control::Change;
use crate::groups::supervisor::group_change::GroupChange;

/// The plan of a command that adds, changes or removes a group.
///
/// # Errors
/// It is invalid; nothing is changed.
pub(super) fn wanted_by(
    change: &Change,
    configuration: &Configuration<'_>,
    running: &[&Plan],
) -> Result<GroupChange, String> {
    match change {
        Change::Add { name, keys } => add(name, keys, configuration, running),
        Change::Set { name, keys, unset } => {
            let mut all = configuration.added(name, running)?.keys.clone();
            for key in unset {
                if all.remove(key).is_none() {
                    return Err(format!("{}: {key}: is not set", who("set", name)));
                }
            }
            all.extend(keys.clone());
            planned("set", name, all, (configuration, running))
        }
        Change::Remove { name } => {
            configuration.added(name, running)?;
            Ok(GroupChange::Gone(name.clone()))
        }
    }
}

fn add(
    name: &str,
    keys: &BTreeMap<String, String>,
    configuration: &Configuration<'_>,
    running: &[&Plan],
) -> Result<GroupChange, String> {
    if let Some(plan) = running.iter().find(|plan| plan.name == name) {
        return Err(match configuration.added.contains_key(name) {
            true => format!("{name}: was added already: `uksm group set {name}` changes it"),
            false => format!("{name}: is configured in {} already", plan.origin),
        });
    }
    planned("add", name, keys.clone(), (configuration, running))
}

fn planned(
    command: &str,
    name: &str,
    keys: BTreeMap<String, String>,
    (configuration, running): (&Configuration<'_>, &[&Plan]),
) -> Result<GroupChange, String> {
    let (added, plan) = configuration.planned(&who(command, name), name, keys, running)?;
    check_cgroups(std::slice::from_ref(&plan), &[], &configuration.proc)
        .map_err(|error| format!("{error:#}"))?;
    Ok(GroupChange::One(Box::new(AddedPlan { added, plan })))
}

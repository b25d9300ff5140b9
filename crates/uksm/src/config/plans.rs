//! The whole plan of a daemon with groups: its settings, its groups and its rules, ready to run.

use uksm_linux::proc::Proc;

use super::group::Group;
use super::plan::{Plan, part_of_bottom, plan_one};
use super::rule_plan::RulePlan;
use super::{Config, conflicts, cpu_total, members};
use crate::setting::ResolvedSettings;

/// The whole plan of a daemon with groups.
#[derive(Debug)]
pub(crate) struct Plans {
    /// The settings of the daemon as a whole.
    pub(crate) daemon: ResolvedSettings,
    /// The groups that name their processes, by name; the group of all others is last.
    pub(crate) groups: Vec<Plan>,
    /// Rules, in the order in which they are tried.
    pub(crate) rules: Vec<RulePlan>,
}

/// The configured groups, by name, ready to run. General settings hold for each group unless it has
/// its own; general exclusions always hold. A group of `all` has the processes of no other group.
/// The bottom level's share is one for the host: each group has a part of it, and each rule, whose
/// groups divide that.
///
/// # Errors
/// One line: a contradiction, an invalid setting, a process that cannot be pinned.
pub(crate) fn plan(config: &Config, proc: &Proc) -> Result<Plans, String> {
    let rules = config.rules.iter().map(|rule| &rule.origin);
    let settings = &config.settings;
    let mut origins = config.groups.iter().map(|group| &group.origin).chain(rules);
    if let Some(origin) = origins.next()
        && (settings.targets.all || !settings.targets.chosen.is_empty())
    {
        return Err(format!(
            "{origin}: groups and targets cannot both be named: put the targets into a group, or leave the \
             configuration out with --no-config"
        ));
    }
    let mut groups = config.groups.clone();
    sort(&mut groups);
    conflicts::between(&groups)?;
    let parts = config.groups.len() + config.rules.len();
    let mut plans: Vec<Plan> = Vec::new();
    for group in &groups {
        plans.push(plan_one(settings, group, proc, part_of_bottom(parts, 1))?);
    }
    cpu_total::check(&plans, settings.origin("cpu_total"))?;
    let rules: Result<Vec<RulePlan>, String> = config
        .rules
        .iter()
        .map(|rule| rule.plan(settings, proc, parts))
        .collect();
    let redistribution = groups.iter().map(|group| &group.redistribution);
    members::between(redistribution.zip(plans.iter().map(|plan| plan.giving.as_ref())))?;
    conflicts::warn_of_processes(&plans, proc);
    Ok(Plans {
        daemon: settings.resolve()?,
        groups: plans,
        rules: rules?,
    })
}

/// Sorts by name; the group of all others is last.
pub(super) fn sort(groups: &mut [Group]) {
    groups.sort_by(|a, b| a.is_rest().cmp(&b.is_rest()).then(a.name.cmp(&b.name)));
}

#[cfg(test)]
pub(crate) mod tests;

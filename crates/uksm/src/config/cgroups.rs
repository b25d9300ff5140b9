//! Whether the host has the control groups that a configuration needs.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use uksm_linux::proc::Proc;
use uksm_linux::selection::Cgroup;
use uksm_redistribution::cgroup_tree::CgroupTree;

use super::plan::Plan;
use super::rule_plan::RulePlan;

/// # Errors
/// Control groups are needed, and there is no tree of control groups v2.
pub(crate) fn check_cgroups(
    groups: &[Plan],
    rules: &[RulePlan],
    proc: &Proc,
) -> anyhow::Result<()> {
    let mount = Cgroup::MOUNT;
    let is_mounted = || {
        CgroupTree::mounted_at(Path::new(mount))
            .open(Path::new(mount))
            .is_ok()
    };
    let who = |is_so: &dyn Fn(&Plan) -> bool, is_rule_so: &dyn Fn(&RulePlan) -> bool| {
        let group = groups.iter().find(|plan| is_so(plan));
        let rule = rules.iter().find(|rule| is_rule_so(rule));
        let group = group.map(|plan| format!("group {}", plan.name));
        group.or_else(|| rule.map(|plan| format!("rule {}", plan.rule.name)))
    };
    if let Some(who) = who(&|plan| plan.book.is_some(), &RulePlan::has_book)
        && !is_mounted()
    {
        return Err(anyhow!(
            "{who}: {mount}: not a tree of control groups v2: leave book out, or boot with \
             systemd.unified_cgroup_hierarchy=1"
        ));
    }
    let depends = |plan: &Plan| plan.selection.depends_on_cgroups();
    if let Some(who) = who(&depends, &RulePlan::depends_on_cgroups) {
        // If there are control groups, this process is in one.
        let own = proc.cgroup(std::process::id());
        own.with_context(|| who)?;
    }
    Ok(())
}

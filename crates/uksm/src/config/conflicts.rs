//! Conflicts between groups: a process in two of them.
//!
//! # Problem
//! The group of a process decides with which processes it shares memory. It must not depend on
//! chance.
//!
//! # Approach
//! Two equal selectors, or one that includes another, are an error. Whether a pattern and a path
//! overlap, or a program's name and a control group, depends on the processes: so the processes at
//! the start are checked, unless all groups name control groups by their paths. A process in two
//! groups belongs to the first by name, at the start and later. That is a warning only, because any
//! user can give a process such a name.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, Selectors, include_each};
use uksm_policy::report::counted;

use super::group::Group;
use super::plan::Plan;

/// # Errors
/// Two groups name the same processes.
pub(super) fn between(groups: &[Group]) -> Result<(), String> {
    for (i, group) in groups.iter().enumerate() {
        for other in &groups[..i] {
            if let Some(what) = overlap(other, group).or_else(|| overlap(group, other)) {
                return Err(format!(
                    "{}: {what} is also in group {} ({}): exclude it from one of them",
                    group.origin, other.name, other.origin
                ));
            }
        }
    }
    Ok(())
}

/// A selector of `a` that `b` has as well, and that neither excludes.
fn overlap(a: &Group, b: &Group) -> Option<String> {
    let (a, b) = (&a.settings.targets, &b.settings.targets);
    if a.all && b.all {
        return Some("all".to_owned());
    }
    let without = [&a.excluded, &b.excluded];
    let pid = a.chosen.pids.iter().find(|pid| {
        b.chosen.pids.iter().any(|other| other.pid == pid.pid)
            && !without.iter().any(|not| not.pids.contains(pid))
    });
    let unit = same(a, b, |selectors| &selectors.units);
    let libvirt = same(a, b, |selectors| &selectors.libvirt);
    let comm = same(a, b, |selectors| &selectors.comms);
    let cgroup = a.chosen.cgroups.iter().find(|cgroup| {
        let path = if cgroup.is_one() {
            cgroup.path()
        } else {
            // A pattern conflicts only with the same pattern.
            return b.chosen.cgroups.contains(cgroup);
        };
        b.chosen.cgroups.iter().any(|other| other.holds(path))
            && !without
                .iter()
                .any(|not| not.cgroups.iter().any(|other| other.holds(path)))
    });
    None.or(pid.map(|pid| format!("pid {pid}")))
        .or(unit.map(|unit| format!("unit {unit}")))
        .or(libvirt.map(|domain| format!("libvirt {domain}")))
        .or(comm.map(|comm| format!("comm {comm}")))
        .or(cgroup.map(|cgroup| format!("cgroup {cgroup}")))
}

/// A selector that both have in the same text, and that neither excludes.
fn same<'a, T: PartialEq>(
    a: &'a Selection,
    b: &'a Selection,
    of: impl Fn(&'a Selectors) -> &'a Vec<T>,
) -> Option<&'a T> {
    let without = [of(&a.excluded), of(&b.excluded)];
    of(&a.chosen)
        .iter()
        .find(|name| of(&b.chosen).contains(name) && !without.iter().any(|not| not.contains(name)))
}

/// Warnings about running processes that are in two groups: one line for each pair of groups.
pub(super) fn among_processes(plans: &[Plan], proc: &Proc) -> Vec<String> {
    // The group of all others has only processes of no other group.
    let others: Vec<&Plan> = plans.iter().filter(|plan| !plan.selection.all).collect();
    let selections: Vec<&Selection> = others.iter().map(|plan| &plan.selection).collect();
    if selections
        .iter()
        .all(|selection| is_of_paths(&selection.chosen))
    {
        // `between` has reported them already.
        return Vec::new();
    }
    let mut pids = Vec::new();
    if let Err(error) = proc.list(&mut pids) {
        return vec![error.to_string()];
    }
    let mut found: BTreeMap<(&str, &str), (String, u64)> = BTreeMap::new();
    for pid in pids {
        let Ok(stat) = proc.stat(pid) else {
            continue;
        };
        if !stat.has_memory() {
            continue;
        }
        let mut of = others
            .iter()
            .zip(include_each(&selections, proc, pid, &stat));
        let mut next = || of.find(|(_, has)| *has).map(|(plan, _)| plan);
        if let (Some(first), Some(second)) = (next(), next()) {
            let process = || (format!("process {pid} ({})", stat.comm.escape_debug()), 0);
            let groups = (first.name.as_str(), second.name.as_str());
            found.entry(groups).or_insert_with(process).1 += 1;
        }
    }
    let line = |((first, second), (process, count)): ((&str, &str), (String, u64))| {
        let others = match count - 1 {
            0 => String::new(),
            more => format!(" and {}", counted(more, "other", "others")),
        };
        format!(
            "{process}{others} matches groups {first} and {second}, and stays in {first}: \
             exclude it from one of them"
        )
    };
    found.into_iter().map(line).collect()
}

/// Warns of processes that are in two groups.
pub(super) fn warn_of_processes(plans: &[Plan], proc: &Proc) {
    for line in among_processes(plans, proc) {
        tracing::warn!("{line}");
    }
}

/// Whether the selectors are paths of control groups only.
fn is_of_paths(selectors: &Selectors) -> bool {
    let Selectors {
        pids,
        cgroups,
        units,
        libvirt,
        comms,
    } = selectors;
    let others = [pids.len(), units.len(), libvirt.len(), comms.len()];
    others == [0; 4] && cgroups.iter().all(Cgroup::is_one)
}

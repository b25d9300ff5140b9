//! Whether a process is in two groups.
//!
//! # Problem
//! Which group a process is in must not depend on chance: that decides with whom it shares memory.
//!
//! # Approach
//! Two selectors that say the same, or of which one holds the other, contradict each other as they stand. Whether a
//! pattern and a path do, or a program's name and a control group, depends on the processes, so those that run
//! at the start are tried, unless all groups name control groups by their paths.

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, Selectors, include_each};

use super::{Group, Plan};

/// # Errors
/// Two groups name the same.
pub(super) fn between(groups: &[Group]) -> Result<(), String> {
    for (i, group) in groups.iter().enumerate() {
        for other in &groups[..i] {
            if let Some(what) = overlap(other, group).or_else(|| overlap(group, other)) {
                return Err(format!(
                    "{}: {what} is in group {} as well ({}): exclude it there, or here",
                    group.origin, other.name, other.origin
                ));
            }
        }
    }
    Ok(())
}

/// What `a` names that `b` has as well and neither excludes.
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
            // A pattern contradicts itself only.
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

/// What both name in the same words, and neither excludes.
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

/// # Errors
/// A process that runs now is in two groups.
pub(super) fn among_processes(plans: &[Plan], proc: &Proc) -> Result<(), String> {
    // The group of all others has what no other has.
    let others: Vec<&Plan> = plans.iter().filter(|plan| !plan.selection.all).collect();
    let selections: Vec<&Selection> = others.iter().map(|plan| &plan.selection).collect();
    if selections
        .iter()
        .all(|selection| is_of_paths(&selection.chosen))
    {
        // `between` has told already.
        return Ok(());
    }
    let mut pids = Vec::new();
    proc.list(&mut pids).map_err(|error| error.to_string())?;
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
            return Err(format!(
                "process {pid} ({}) is in groups {} and {}: exclude it in one of them",
                stat.comm, first.name, second.name
            ));
        }
    }
    Ok(())
}

/// Whether it names control groups by their paths, and nothing else.
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

//! Groups: processes that may share pages with each other, and with nobody else (Euro-Par'11 §3).
//!
//! # Problem
//! Customers of one host must not share memory: sharing leaks what they hold, and nobody knows who pays.
//!
//! # Approach
//! Each group has a domain of the module, which maps no frame into a space of another one, and a process of its own, its
//! *worker*, which can live in a control group of the operator's choice: CPU and memory of
//! deduplication are booked there. The daemon that was started is the *supervisor*: it makes the workers, holds
//! their domains, and starts a worker that died again, with the frames it had.
//!
//! A process is in one group at most. What can be told from the configuration, or from the processes there are, is an
//! error at the start ([`conflicts`]). Later the first group by name has it.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection};
use uksm_policy::params::{Governor, Params};

use members::Told;

use crate::setting::{Origin, Resolved, Settings};

mod accounts;
mod answering;
pub(crate) mod channel;
mod confinement;
mod conflicts;
mod ears;
pub(crate) mod giving;
mod handover;
mod keeping;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod members;
mod pace;
mod privileges;
mod readings;
mod reload;
pub(crate) mod setup;
pub(crate) mod supervisor;
mod upkeep;
mod watching;

/// Longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// Least that the bottom level of a group may use.
const LEAST_BOTTOM: f64 = 0.00001;

/// Settings that belong to the daemon as a whole.
const DAEMONS: [&str; 10] = [
    "socket",
    "device",
    "log",
    "account_dir",
    "account_interval",
    "account_days",
    "headroom_hold",
    "headroom_take",
    "pressure_hold",
    "pressure_take",
];

/// A group as it was configured.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Its name.
    pub(crate) name: String,
    /// Where it stands.
    pub(crate) origin: Origin,
    /// What is set for it, over what is set for all; and its processes.
    pub(crate) settings: Settings,
    /// The control group that pays for it; the daemon's own if none was named.
    pub(crate) book: Option<Cgroup>,
    /// Who is given what it freed.
    pub(crate) told: Told,
}

/// A group as it will run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: String,
    /// Its parameters.
    pub(crate) resolved: Resolved,
    /// All settings as texts.
    pub(crate) texts: BTreeMap<String, String>,
    /// Its processes.
    pub(crate) selection: Selection,
    /// The control group that pays for it.
    pub(crate) book: Option<Cgroup>,
    /// Who is given what it freed, if anybody is.
    pub(crate) giving: Option<uksm_redistribution::settings::Group>,
}

impl Group {
    /// One of this name, without processes.
    ///
    /// # Errors
    /// A name that could not stand in a file name.
    pub(crate) fn new(name: &str, origin: Origin) -> Result<Group, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            return Err(format!(
                "a group's name has 1 to {LONGEST_NAME} letters, digits, and - _ ."
            ));
        }
        Ok(Group {
            name: name.to_owned(),
            origin,
            settings: Settings::default(),
            book: None,
            told: Told::default(),
        })
    }

    /// Books its cost on this control group.
    ///
    /// # Errors
    /// It is no control group, or several.
    pub(crate) fn book(&mut self, text: &str) -> Result<(), String> {
        let cgroup: Cgroup = text.parse()?;
        if !cgroup.is_one() {
            return Err(format!("'{text}': one control group pays for a group"));
        }
        self.book = Some(cgroup);
        Ok(())
    }

    /// Whether it has what no other group has.
    fn is_rest(&self) -> bool {
        self.settings.targets.all
    }
}

/// The groups that were configured, by name, ready to run. What is set for all holds for each unless it says otherwise, and
/// so do those excluded. A group of `all` processes has those of no other. There are no hints unless asked for: each
/// worker would load programs of its own, and every read on the host would run them all. The bottom level's share is one for the host.
///
/// # Errors
/// One line: a contradiction, a setting that cannot stand, a process that cannot be named.
pub(crate) fn plan(settings: &Settings, proc: &Proc) -> Result<Vec<Plan>, String> {
    if settings.targets.all || !settings.targets.chosen.is_empty() {
        return Err(format!(
            "{}: groups and targets cannot both be named: put the targets into a group, or leave the \
             configuration out with --no-config",
            settings.groups[0].origin
        ));
    }
    let mut groups = settings.groups.clone();
    groups.sort_by(|a, b| a.is_rest().cmp(&b.is_rest()).then(a.name.cmp(&b.name)));
    conflicts::between(&groups)?;
    let mut plans: Vec<Plan> = Vec::new();
    for group in &groups {
        let refuse = |what: &dyn std::fmt::Display| format!("{}: {what}", group.origin);
        if let Some(name) = DAEMONS
            .iter()
            .find(|name| group.settings.text(name).is_some())
        {
            return Err(refuse(&format!("{name} is the daemon's, not a group's")));
        }
        let mut selection = group.settings.targets.clone();
        if selection.all && !selection.chosen.is_empty() {
            return Err(refuse(
                &"all is what no other group has: name nothing beside it",
            ));
        }
        selection.excluded.extend(settings.targets.excluded.clone());
        selection.pin(proc).map_err(|error| refuse(&error))?;
        let mut own = settings.clone();
        own.groups.clear();
        own.yield_to(group.settings.clone());
        let mut set_unless_told = |name, text| {
            if own.text(name).is_none() {
                own.set(name, text, group.origin.clone());
            }
        };
        set_unless_told("hint_runs", "0".to_owned());
        set_unless_told("bottom_cpu", part_of_bottom(groups.len()));
        let resolved = own.resolve()?;
        plans.push(Plan {
            name: group.name.clone(),
            texts: resolved.texts(),
            resolved,
            selection,
            book: group.book.clone(),
            giving: group.told.resolve(&group.name)?,
        });
    }
    let told = groups.iter().map(|group| &group.told);
    members::between(told.zip(plans.iter().map(|plan| plan.giving.as_ref())))?;
    conflicts::among_processes(&plans, proc)?;
    Ok(plans)
}

/// What of the bottom level's share one of so many groups may use: all of them together use what one daemon would.
fn part_of_bottom(groups: usize) -> String {
    let whole = Params::governor(Governor::Full).bottom_cpu;
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    (whole / f64::from(groups)).max(LEAST_BOTTOM).to_string()
}

#[cfg(test)]
mod tests;

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
//! A process is in one group at most. Where the configuration itself puts one into two, that is an error ([`conflicts`]). Else the
//! first group by name has it. Rules ([`rules`]) form groups of those that no group
//! names.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, Value};
use uksm_policy::params::{Governor, Params};

use members::Told;
use rules::RulePlan;

use crate::setting::{self, Origin, Resolved, Settings};

mod accounts;
pub(crate) mod adding;
mod answering;
mod audit;
mod breaking;
pub(crate) mod channel;
mod confinement;
mod conflicts;
mod ears;
mod forming;
pub(crate) mod giving;
mod handover;
mod hinting;
mod keeping;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod members;
mod pace;
mod placement;
mod privileges;
pub(crate) mod rate;
mod rating;
mod readings;
mod reload;
mod rights;
pub(crate) mod rules;
pub(crate) mod setup;
mod starting;
pub(crate) mod supervisor;
pub(crate) mod supervisor_requests;
mod tasks;
mod upkeep;
mod watching;

/// Longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// Least that the bottom level of a group may use.
const LEAST_BOTTOM: f64 = 0.00001;

/// What a name is made of.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

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
    /// How fast it may be.
    pub(crate) rate: rate::Told,
    /// Its processes were found before: who of them has ended is no mistake.
    pub(crate) is_pinned: bool,
}

/// A group as it will run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: String,
    /// Where it comes from, in words.
    pub(crate) origin: String,
    /// The rule that formed it, if one did, and what its processes have in common.
    pub(crate) formed: Option<(String, Value)>,
    /// Its parameters.
    pub(crate) resolved: Resolved,
    /// All settings as texts.
    pub(crate) texts: BTreeMap<String, String>,
    /// Its processes; of a group that a rule formed, those that the rule is about.
    pub(crate) selection: Selection,
    /// The control group that pays for it.
    pub(crate) book: Option<Cgroup>,
    /// Who is given what it freed, if anybody is.
    pub(crate) giving: Option<uksm_redistribution::settings::Group>,
    /// What its share of a core is bound to, if it is not fixed.
    pub(crate) rate: Option<uksm_redistribution::rates::Terms>,
}

impl Group {
    /// One of this name, without processes.
    ///
    /// # Errors
    /// A name that could not stand in a file name.
    pub(crate) fn new(name: &str, origin: Origin) -> Result<Group, String> {
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
            rate: rate::Told::default(),
            is_pinned: false,
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

/// Everything that a daemon with groups does.
#[derive(Debug)]
pub(crate) struct Plans {
    /// The settings of the daemon as a whole.
    pub(crate) daemon: Resolved,
    /// The groups that name their processes, by name, and that of all others at the end.
    pub(crate) groups: Vec<Plan>,
    /// What forms groups, in the order in which it is tried.
    pub(crate) rules: Vec<RulePlan>,
}

/// The groups that were configured, by name, ready to run. What is set for all holds for each unless it says otherwise, and
/// so do those excluded. A group of `all` processes has those of no other. The bottom level's share is one for the host:
/// each group has a part of it, and each rule, whose groups share that.
///
/// # Errors
/// One line: a contradiction, a setting that cannot stand, a process that cannot be named.
pub(crate) fn plan(settings: &Settings, proc: &Proc) -> Result<Plans, String> {
    let rules = settings.rules.iter().map(|rule| &rule.origin);
    let mut origins = settings
        .groups
        .iter()
        .map(|group| &group.origin)
        .chain(rules);
    if let Some(origin) = origins.next()
        && (settings.targets.all || !settings.targets.chosen.is_empty())
    {
        return Err(format!(
            "{origin}: groups and targets cannot both be named: put the targets into a group, or leave the \
             configuration out with --no-config"
        ));
    }
    let mut groups = settings.groups.clone();
    sort(&mut groups);
    conflicts::between(&groups)?;
    let parts = settings.groups.len() + settings.rules.len();
    let mut plans: Vec<Plan> = Vec::new();
    for group in &groups {
        plans.push(plan_one(settings, group, proc, part_of_bottom(parts, 1))?);
    }
    rate::check_total(&plans, settings.origin("cpu_total"))?;
    let rules: Result<Vec<RulePlan>, String> = settings
        .rules
        .iter()
        .map(|rule| rule.plan(settings, proc, parts))
        .collect();
    let told = groups.iter().map(|group| &group.told);
    members::between(told.zip(plans.iter().map(|plan| plan.giving.as_ref())))?;
    conflicts::warn_of_processes(&plans, proc);
    Ok(Plans {
        daemon: settings.resolve()?,
        groups: plans,
        rules: rules?,
    })
}

/// By name, and that of all others at the end.
fn sort(groups: &mut [Group]) {
    groups.sort_by(|a, b| a.is_rest().cmp(&b.is_rest()).then(a.name.cmp(&b.name)));
}

/// One group. `bottom` is its part of the bottom level's share.
fn plan_one(
    settings: &Settings,
    group: &Group,
    proc: &Proc,
    bottom: String,
) -> Result<Plan, String> {
    let refuse = |what: &dyn std::fmt::Display| format!("{}: {what}", group.origin);
    let mut selection = group.settings.targets.clone();
    if selection.all && !selection.chosen.is_empty() {
        return Err(refuse(
            &"all is what no other group has: name nothing beside it",
        ));
    }
    selection.excluded.extend(settings.targets.excluded.clone());
    if !group.is_pinned {
        pin(&mut selection, proc, &group.origin)?;
    }
    let resolved = resolve(settings, &group.settings, &group.origin, bottom)?;
    Ok(Plan {
        name: group.name.clone(),
        origin: match &group.origin {
            Origin::Option(_) => "uksm group add".to_owned(),
            origin @ Origin::Line { .. } => origin.to_string(),
        },
        formed: None,
        rate: group.rate.resolve(&resolved.params)?,
        texts: resolved.texts(),
        resolved,
        selection,
        book: group.book.clone(),
        giving: group.told.resolve(&group.name)?,
    })
}

/// Pins processes by id. One that has ended is an error for who has just named it; in a file it is left out, lest its owner keeps the daemon
/// from starting.
///
/// # Errors
/// What cannot be named, in one line.
fn pin(selection: &mut Selection, proc: &Proc, origin: &Origin) -> Result<(), String> {
    let refuse = |error: uksm_linux::selection::Error| format!("{origin}: {error}");
    if matches!(origin, Origin::Option(_)) {
        return selection.pin(proc).map_err(refuse);
    }
    for error in selection.pin_running(proc).map_err(refuse)? {
        tracing::warn!("{origin}: left out: {error}");
    }
    Ok(())
}

/// The settings of a group: its own, over those of all.
fn resolve(
    settings: &Settings,
    own: &Settings,
    origin: &Origin,
    bottom: String,
) -> Result<Resolved, String> {
    if let Some(name) = setting::of_daemon_alone().find(|name| own.text(name).is_some()) {
        return Err(format!("{origin}: {name} is the daemon's, not a group's"));
    }
    let mut all = settings.of_all();
    all.yield_to(own.clone());
    if all.text("bottom_cpu").is_none() {
        all.set("bottom_cpu", bottom, origin.clone());
    }
    all.resolve()
}

/// What of the bottom level's share one of so many parts may use, if it is one of so many groups that share it: all of them together
/// use what one daemon would.
fn part_of_bottom(parts: usize, groups: usize) -> String {
    let whole = Params::governor(Governor::Full).bottom_cpu;
    let among = u32::try_from(parts.saturating_mul(groups)).unwrap_or(u32::MAX);
    (whole / f64::from(among)).max(LEAST_BOTTOM).to_string()
}

#[cfg(test)]
mod tests;

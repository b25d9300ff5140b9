//! A group as it will run: its settings over those of all groups, checked, and its processes.

use std::collections::BTreeMap;

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, Value};
use uksm_policy::params::{Governor, Params};

use super::group::Group;
use crate::setting::{self, Origin, ResolvedSettings, Settings};

/// Minimum share of a group's bottom level.
const MIN_BOTTOM_SHARE: f64 = 0.00001;

/// A group as it will run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: String,
    /// Its origin, as text.
    pub(crate) origin: String,
    /// The rule that formed it, if one did, and the common value of its processes.
    pub(crate) formed: Option<(String, Value)>,
    /// Its parameters.
    pub(crate) resolved: ResolvedSettings,
    /// All settings as texts.
    pub(crate) texts: BTreeMap<String, String>,
    /// Its processes; for a formed group, those of its rule.
    pub(crate) selection: Selection,
    /// The control group that pays for it.
    pub(crate) book: Option<Cgroup>,
    /// The members that get its freed memory, if there are any.
    pub(crate) giving: Option<uksm_redistribution::settings::Group>,
    /// The bounds of its share of a core, if that is not fixed.
    pub(crate) rate: Option<uksm_redistribution::rates::RateTerms>,
}

/// Plans one group. `bottom` is its part of the bottom level's share.
pub(super) fn plan_one(
    settings: &Settings,
    group: &Group,
    proc: &Proc,
    bottom: String,
) -> Result<Plan, String> {
    let refuse = |what: &dyn std::fmt::Display| format!("{}: {what}", group.origin);
    let mut selection = group.settings.targets.clone();
    if selection.all && !selection.chosen.is_empty() {
        return Err(refuse(
            &"all means every process that no other group has: name nothing beside it",
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
        giving: group.redistribution.resolve(&group.name)?,
    })
}

/// Pins processes by id. One that has ended is an error in a command; in a file it is left out, so
/// that its owner cannot keep the daemon from starting.
///
/// # Errors
/// A selector that cannot be pinned, in one line.
pub(super) fn pin(selection: &mut Selection, proc: &Proc, origin: &Origin) -> Result<(), String> {
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
pub(super) fn resolve(
    settings: &Settings,
    own: &Settings,
    origin: &Origin,
    bottom: String,
) -> Result<ResolvedSettings, String> {
    if let Some(name) = setting::of_daemon_alone().find(|name| own.text(name).is_some()) {
        return Err(format!(
            "{origin}: {name} is a setting of the daemon, not of a group"
        ));
    }
    let mut all = settings.clone();
    all.yield_to(own.clone());
    if all.text("bottom_cpu").is_none() {
        all.set("bottom_cpu", bottom, origin.clone());
    }
    all.resolve()
}

/// The share of the bottom level for each group of a part, if there are `parts` parts and `groups`
/// groups in it: all of them together use as much as one daemon would.
pub(super) fn part_of_bottom(parts: usize, groups: usize) -> String {
    let whole = Params::governor(Governor::Full).bottom_cpu;
    let among = u32::try_from(parts.saturating_mul(groups)).unwrap_or(u32::MAX);
    (whole / f64::from(among)).max(MIN_BOTTOM_SHARE).to_string()
}

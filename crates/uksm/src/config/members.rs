//! The configuration of redistribution: the rule of a group, and its members.
//!
//! # Problem
//! Freed memory is given to control groups and virtual machines. The configuration names them, with
//! the minimum size of each. A mistake must be reported with its line before anything is changed,
//! and no two groups may move one limit.
//!
//! # Approach
//! Keys of `[group.NAME]` and of `[group.NAME.member.MEMBER]` are rows as all settings are, and are
//! kept as texts with their origins until all are read. A control group or a socket that does not
//! exist yet is no mistake: machines start later.
//!
//! # Units
//! Bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use uksm_input::names;
use uksm_linux::selection::Cgroup;
use uksm_policy::params::form::{choice, count, optional, size};
use uksm_redistribution::settings::{
    self, DEFAULT_MIN_RISE_BYTES, DEFAULT_STEP_BYTES, Limit, Rule, Scope, SizeControl,
};

use crate::setting::{Origin, Texts, refuse};

/// Maximum length of a socket's path.
const MAX_SOCKET: usize = 107;
const LARGEST: u64 = 1 << 50;

uksm_policy::parameters! {
    /// The rule of a group.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Rules, made by standard() {
        /// How the memory that the group freed is divided among its members.
        redistribute: Option<Rule> = None, choice("rule", [
            ("none", None),
            ("equal", Some(Rule::Equal)),
            ("entitlement", Some(Rule::Entitlement)),
            ("weights", Some(Rule::Weights)),
        ]);

        /// Whether freed memory is divided in the group, or among all groups with this scope `all`.
        redistribute_scope: Scope = Scope::Group, choice("scope", [
            ("group", Scope::Group),
            ("all", Scope::All),
        ]);

        /// Largest change of a member in a second.
        redistribute_step: u64 = DEFAULT_STEP_BYTES, size(1 << 20..=LARGEST);

        /// Smallest enlargement of a member.
        redistribute_least: u64 = DEFAULT_MIN_RISE_BYTES, size(4096..=LARGEST);
    }
}

uksm_policy::parameters! {
    /// What a member may have.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Sizes, made by standard() {
        /// Its size without freed memory.
        base: Option<u64> = None, optional("none", size(4096..=LARGEST));

        /// Its largest size.
        ceiling: Option<u64> = None, optional("none", size(4096..=LARGEST));

        /// Its weight with `redistribute = "weights"`.
        weight: u64 = 1, count(1..=10_000);

        /// Which limit of a control group moves.
        limit: Limit = Limit::High, choice("limit", [
            (Limit::High.file(), Limit::High),
            (Limit::Max.file(), Limit::Max),
        ]);
    }
}

/// Keys of a member's place.
const PLACES: [&str; 2] = ["cgroup", "qmp"];

/// The configured redistribution of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct RedistributionConfig {
    texts: Texts,
    members: Vec<MemberConfig>,
}

/// A configured member.
#[derive(Debug, Clone)]
pub(crate) struct MemberConfig {
    name: String,
    origin: Origin,
    texts: Texts,
}

/// The keys of a group for redistribution.
pub(crate) fn names() -> Vec<&'static str> {
    Rules::NAMES.to_vec()
}

/// The keys of a member.
pub(crate) fn member_names() -> Vec<&'static str> {
    Sizes::NAMES.iter().copied().chain(PLACES).collect()
}

impl RedistributionConfig {
    /// Sets a key of the group, which is one of [`names`].
    pub(crate) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.texts.insert(name, (text, origin));
    }

    /// Begins a member.
    pub(crate) fn member(&mut self, name: &str, origin: Origin) -> &mut MemberConfig {
        self.members.push(MemberConfig {
            name: name.to_owned(),
            origin,
            texts: Texts::new(),
        });
        let last = self.members.len() - 1;
        &mut self.members[last]
    }

    /// Reads the redistribution of a group. None if there is none.
    ///
    /// # Errors
    /// The invalid setting, and its line.
    pub(crate) fn resolve(&self, group: &str) -> Result<Option<settings::Group>, String> {
        let mut rules = Rules::standard();
        for (name, (text, _)) in &self.texts {
            let set = rules.set(name, text);
            set.map_err(|error| refuse(&self.texts, &error))?;
        }
        rules
            .check_each()
            .map_err(|error| refuse(&self.texts, &error))?;
        let members: Result<Vec<settings::Member>, String> =
            self.members.iter().map(MemberConfig::resolve).collect();
        let members = members?;
        if rules.redistribute_step < rules.redistribute_least {
            let set = ["redistribute_step", "redistribute_least"];
            let set = set.iter().find_map(|name| self.texts.get(name));
            let origin = set.map_or(String::new(), |(_, origin)| origin.to_string());
            return Err(format!(
                "{origin}: the largest change in a second is smaller than the smallest change"
            ));
        }
        match (self.texts.get("redistribute"), self.members.first()) {
            (None, Some(member)) => Err(format!(
                "{}: group {group} has this member, but no redistribute: set redistribute, or \
                 remove the member",
                member.origin
            )),
            (Some((_, origin)), None) if rules.redistribute.is_some() => Err(format!(
                "{origin}: the group has no members: name those that get the freed memory in \
                 [group.{group}.member.NAME]"
            )),
            _ => Ok(rules.redistribute.map(|rule| settings::Group {
                name: group.to_owned(),
                rule,
                scope: rules.redistribute_scope,
                step: rules.redistribute_step,
                least: rules.redistribute_least,
                members,
            })),
        }
    }
}

impl MemberConfig {
    /// Sets a key, which is one of [`member_names`].
    pub(crate) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.texts.insert(name, (text, origin));
    }

    fn resolve(&self) -> Result<settings::Member, String> {
        let mut sizes = Sizes::standard();
        for (name, (text, _)) in &self.texts {
            if !PLACES.contains(name) {
                let set = sizes.set(name, text);
                set.map_err(|error| refuse(&self.texts, &error))?;
            }
        }
        sizes
            .check_each()
            .map_err(|error| refuse(&self.texts, &error))?;
        let Some(base) = sizes.base else {
            return Err(format!(
                "{}: base is missing, the size below which the member never falls",
                self.origin
            ));
        };
        let ceiling = sizes.ceiling.unwrap_or(u64::MAX);
        if ceiling < base {
            let (text, origin) = &self.texts["ceiling"];
            return Err(format!("{origin} = {text}: is less than the member's base"));
        }
        Ok(settings::Member {
            name: self.name.clone(),
            place: self.place(sizes.limit)?,
            base,
            ceiling,
            weight: sizes.weight,
        })
    }

    fn place(&self, limit: Limit) -> Result<SizeControl, String> {
        match (self.texts.get("cgroup"), self.texts.get("qmp")) {
            (Some((text, origin)), None) => {
                let refuse = |what: &str| format!("{origin}: {what}");
                let cgroup: Cgroup = text.parse().map_err(|error: String| refuse(&error))?;
                if !cgroup.is_one() || cgroup.path().is_empty() {
                    return Err(refuse(&format!(
                        "'{text}': a member must be one control group, and not the root"
                    )));
                }
                Ok(SizeControl::Cgroup {
                    folder: PathBuf::from(cgroup.folder()),
                    limit,
                })
            }
            (None, Some((text, origin))) => {
                if let Some((_, origin)) = self.texts.get("limit") {
                    return Err(format!(
                        "{origin}: only control groups have a limit, and this member is a machine"
                    ));
                }
                let what = if !text.starts_with('/') {
                    "is not a path from the root"
                } else if names::first_no_name(text).is_some() || text == "/" {
                    "has an empty name, '.' or '..' in its path"
                } else if text.len() > MAX_SOCKET {
                    "is too long for a socket"
                } else if is_no_socket(text) {
                    "is not a socket"
                } else {
                    return Ok(SizeControl::Machine {
                        socket: PathBuf::from(text),
                    });
                };
                Err(format!("{origin}: '{text}' {what}"))
            }
            (Some(_), Some((_, origin))) => Err(format!(
                "{origin}: a member is a control group or a machine, not both"
            )),
            (None, None) => Err(format!(
                "{}: names no control group and no machine: set cgroup or qmp",
                self.origin
            )),
        }
    }
}

/// Whether the path is something other than a socket. A machine that does not run yet has nothing
/// there.
fn is_no_socket(path: &str) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// Checks that groups do not contradict each other.
///
/// # Errors
/// Two members are one control group or machine; groups that divide together have two rules.
pub(super) fn between<'a>(
    groups: impl Iterator<Item = (&'a RedistributionConfig, Option<&'a settings::Group>)> + Clone,
) -> Result<(), String> {
    let given = groups.filter_map(|(config, settings)| Some((config, settings?)));
    let mut seen: BTreeMap<PathBuf, &Origin> = BTreeMap::new();
    let mut of_all: Option<(Rule, &Origin)> = None;
    for (config, settings) in given {
        for (member, read) in config.members.iter().zip(&settings.members) {
            let path = match &read.place {
                SizeControl::Cgroup { folder, .. } => folder,
                SizeControl::Machine { socket } => socket,
            };
            if let Some(other) = seen.insert(path.clone(), &member.origin) {
                return Err(format!(
                    "{}: {} is a member already ({other})",
                    member.origin,
                    path.display()
                ));
            }
        }
        let Some((_, origin)) = config.texts.get("redistribute") else {
            continue;
        };
        if settings.scope != Scope::All {
            continue;
        }
        match of_all {
            Some((rule, other)) if rule != settings.rule => {
                return Err(format!(
                    "{origin}: groups that divide memory together need the same rule ({other} \
                     has another)"
                ));
            }
            _ => of_all = Some((settings.rule, origin)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

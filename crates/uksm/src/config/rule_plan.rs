//! A rule as it will run, and the names of the groups that it forms.
//!
//! # Problem
//! A formed group needs a name: for readers of a bill, for the file of its seed, and for systemd,
//! which stores its frames. Its value comes from the owner of a control group, and can be any text.
//! Two values may never have the same name, even if somebody wants that: a new supervisor would
//! give the frames of one group to the other.
//!
//! # Approach
//! The name is the rule's name, `@`, and the value, where `/` is written as `+`. No configured
//! group has an `@` in its name. A value with other special characters, or one that is too long, is
//! cut, has `_` in those places, and ends in `~` and [`DIGITS`] hexadecimal digits of its SHA-256.
//!
//! # Units
//! Nanoseconds; bytes of names.

use sha2::{Digest as _, Sha256};
use uksm_linux::proc::Proc;
use uksm_linux::selection::{By, Cgroup, Rule, Value};
use uksm_policy::command::Nanos;

use super::group::{MAX_GROUP_NAME_BYTES, is_plain};
use super::plan::{Plan, part_of_bottom, pin, resolve};
use super::rules::{Book, Numbers, RuleConfig, SELF};
use crate::setting::Settings;

/// Digits of a hash that replace characters that are not allowed in names: finding another value
/// with the same digits takes 2^64 tries.
const DIGITS: usize = 16;

/// A rule as it will run.
#[derive(Debug, Clone)]
pub(crate) struct RulePlan {
    /// The rule that sorts processes into groups.
    pub(crate) rule: Rule,
    /// Time until a group without processes is dissolved, in nanoseconds.
    pub(crate) dissolve_after: Nanos,
    book: Option<Book>,
    /// A group of the rule, without the parts that depend on its value.
    model: Plan,
}

impl RuleConfig {
    /// The rule, ready to run as one of `parts` parts of the configuration.
    ///
    /// # Errors
    /// One line: the invalid setting, and its place.
    pub(super) fn plan(
        &self,
        settings: &Settings,
        proc: &Proc,
        parts: usize,
    ) -> Result<RulePlan, String> {
        let refuse = |what: &dyn std::fmt::Display| format!("{}: {what}", self.origin);
        let mut by = None;
        let mut numbers = Numbers::standard();
        for (name, text, origin) in &self.texts {
            if *name == "by" {
                by = Some(By::read(text).map_err(|error| format!("{origin}: {error}"))?);
                continue;
            }
            let set = numbers.set(name, text).and_then(|()| numbers.check_each());
            set.map_err(|error| format!("{origin} = {text}: {}", error.bounds))?;
        }
        let Some(by) = by else {
            return Err(refuse(
                &"by is missing: write by = \"cgroup:DEPTH\", \"user\", \"unit\", \"pod\", \"env:NAME\" or \
                  \"file:PATH\"",
            ));
        };
        if let Some(Book::Own(origin)) = &self.book
            && !by.has_cgroups()
        {
            return Err(format!(
                "{origin} = {SELF}: a group formed by {by} has no control group of its own: name \
                 one"
            ));
        }
        let mut selection = self.settings.targets.clone();
        // A rule that names no processes is about all.
        selection.all |= selection.chosen.is_empty();
        if selection.all && !selection.chosen.is_empty() {
            return Err(refuse(
                &"a rule has all = true, or names processes, but not both",
            ));
        }
        selection.excluded.extend(settings.targets.excluded.clone());
        pin(&mut selection, proc, &self.origin)?;
        let most = usize::try_from(numbers.most).unwrap_or(usize::MAX);
        let bottom = part_of_bottom(parts, most);
        let resolved = resolve(settings, &self.settings, &self.origin, bottom)?;
        let model = Plan {
            name: self.name.clone(),
            origin: self.origin.to_string(),
            formed: None,
            rate: None,
            texts: resolved.texts(),
            resolved,
            selection: selection.clone(),
            book: None,
            giving: None,
        };
        let rule = Rule {
            name: self.name.clone(),
            by,
            selection,
            most,
        };
        Ok(RulePlan {
            rule,
            dissolve_after: numbers.dissolve_after,
            book: self.book.clone(),
            model,
        })
    }
}

impl RulePlan {
    /// The group of processes that have this value.
    pub(crate) fn group(&self, value: &Value) -> Plan {
        let book = match (&self.book, &value.cgroup) {
            (None, _) | (Some(Book::Own(_)), None) => None,
            (Some(Book::One(cgroup)), _) => Some(cgroup.clone()),
            (Some(Book::Own(_)), Some(path)) => Some(Cgroup::at(path)),
        };
        Plan {
            name: group_name(&self.rule.name, value),
            origin: format!("rule {}, {} {}", self.rule.name, self.rule.by, value.text),
            formed: Some((self.rule.name.clone(), value.clone())),
            book,
            ..self.model.clone()
        }
    }

    /// Whether a process's group depends on its control group.
    pub(crate) fn depends_on_cgroups(&self) -> bool {
        self.rule.by.depends_on_cgroups() || self.rule.selection.depends_on_cgroups()
    }

    /// Whether its groups are booked to a control group.
    pub(crate) fn has_book(&self) -> bool {
        self.book.is_some()
    }
}

/// The name of the group that this rule forms of this value. Distinct values of one rule have
/// distinct names.
fn group_name(rule: &str, value: &Value) -> String {
    let room = MAX_GROUP_NAME_BYTES - rule.len() - 1;
    let is_kept = |c: char| is_plain(c) || c == '@';
    let text = value.text.as_str();
    // All paths of control groups begin with a slash; of other values, not all do.
    let short = match &value.cgroup {
        Some(path) if path == text => text.strip_prefix('/').unwrap_or(text),
        _ => text,
    };
    let is_plain = short.chars().all(|c| is_kept(c) || c == '/');
    if is_plain && !short.is_empty() && short.len() <= room {
        return format!("{rule}@{}", short.replace('/', "+"));
    }
    let written = short.chars().map(|c| match c {
        '/' => '+',
        c if is_kept(c) => c,
        _ => '_',
    });
    let written: String = written.take(room - DIGITS - 1).collect();
    let hash = Sha256::digest(text.as_bytes());
    let digits: String = hash
        .iter()
        .take(DIGITS / 2)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("{rule}@{written}~{digits}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A value from a process, or from a file of it.
    fn value_of(text: &str) -> Value {
        Value {
            text: text.to_owned(),
            cgroup: None,
        }
    }

    fn path(text: &str) -> Value {
        Value {
            text: text.to_owned(),
            cgroup: Some(text.to_owned()),
        }
    }

    #[test]
    fn a_formed_group_is_named_by_its_value_as_far_as_that_can_be_written() {
        let pod = Value {
            text: "0b1c-2d".to_owned(),
            cgroup: Some("/kubepods/pod0b1c-2d".to_owned()),
        };
        for (value, name) in [
            (path("/tenants/a"), "t@tenants+a"),
            (value_of("1000"), "t@1000"),
            (
                path("/user.slice/user@1000.service"),
                "t@user.slice+user@1000.service",
            ),
            (pod, "t@0b1c-2d"),
            (value_of("/web"), "t@+web"),
            (value_of("web"), "t@web"),
        ] {
            assert_eq!(group_name("t", &value), name);
        }
        let name = group_name("t", &value_of("a b\\n"));
        assert!(
            name.starts_with("t@a_b_n~") && name.len() == 8 + DIGITS,
            "{name}"
        );
    }

    #[test]
    fn names_are_distinct_safe_and_short() {
        let long = |end: &str| "x/".repeat(200) + end;
        let values = [
            "a", "a+b", "a/b", "a b", "a_b", "a~b", "a@b", "ä", "", "\n", "..", ".", "a//b",
            "a/b/", "/a", "//a", "/a b", "+a", "/", "/ä",
        ];
        let mut values: Vec<String> = values.iter().map(ToString::to_string).collect();
        values.extend([long("a"), long("b"), long("")]);
        // A value that equals another one's name, cut and with its hash.
        let imitated = group_name("t", &value_of("a b"));
        values.push(imitated.strip_prefix("t@").unwrap().to_owned());
        let rules = ["t", "a-rule-of-24-characters_"];
        let mut names = BTreeSet::new();
        for rule in rules {
            for value in &values {
                let name = group_name(rule, &value_of(value));
                let is_safe = |c: char| is_plain(c) || "@+~".contains(c);
                assert!(
                    name.len() <= MAX_GROUP_NAME_BYTES && name.chars().all(is_safe),
                    "{name}"
                );
                assert!(names.insert(name), "{value:?} has another one's name");
            }
        }
        names.clear();
        for value in [
            "/a", "/a/b", "/a+b", "/a b", "/+a", "/", "//a", "/a\\x2d", "/a_x2d",
        ] {
            let name = group_name("t", &path(value));
            assert!(names.insert(name), "{value:?} has another one's name");
        }
        assert_eq!(rules[1].len(), crate::config::rules::MAX_RULE_NAME_BYTES);
    }
}

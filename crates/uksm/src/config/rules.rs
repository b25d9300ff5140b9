//! The configuration of rules that form groups.
//!
//! # Units
//! Nanoseconds; bytes of names.

use uksm_linux::selection::Cgroup;
use uksm_policy::command::Nanos;
use uksm_policy::params::form::{count, time};

use super::group::is_plain;
use crate::setting::{Origin, Settings};

/// Maximum length of a rule's name, which leaves room for the values of its groups.
pub(super) const MAX_RULE_NAME_BYTES: usize = 24;

const SECOND: Nanos = 1_000_000_000;

/// The value of `book` for a formed group's own control group.
pub(super) const SELF: &str = "self";

uksm_policy::parameters! {
    /// The numbers of a rule.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct Numbers, made by standard() {
        /// Largest number of groups that it forms. Further processes are in no group.
        most: u64 = 256, count(1..=4096);

        /// Time after which a group without a process is dissolved.
        dissolve_after: Nanos = 30 * SECOND, time(SECOND..=24 * 3600 * SECOND);
    }
}

/// Keys of a rule, besides those of a group.
pub(crate) fn names() -> Vec<&'static str> {
    Numbers::NAMES.iter().copied().chain(["by"]).collect()
}

/// A configured rule.
#[derive(Debug, Clone)]
pub(crate) struct RuleConfig {
    /// Its name.
    pub(crate) name: String,
    /// Its position in the configuration.
    pub(crate) origin: Origin,
    /// The settings of its groups, over general ones; and the processes that it is about.
    pub(crate) settings: Settings,
    /// Keys that only a rule has.
    pub(super) texts: Vec<(&'static str, String, Origin)>,
    pub(super) book: Option<Book>,
}

/// The payer of formed groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Book {
    /// Each group's own control group.
    Own(Origin),
    One(Cgroup),
}

impl RuleConfig {
    /// A rule of this name, about all processes.
    ///
    /// # Errors
    /// A name that cannot be part of a file name.
    pub(crate) fn new(name: &str, origin: Origin) -> Result<RuleConfig, String> {
        if name.is_empty() || name.len() > MAX_RULE_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(format!(
                "a rule's name has 1 to {MAX_RULE_NAME_BYTES} letters, digits, and - _ ."
            ));
        }
        Ok(RuleConfig {
            name: name.to_owned(),
            origin,
            settings: Settings::default(),
            texts: Vec::new(),
            book: None,
        })
    }

    /// Whether a variable of the environment sorts processes into its groups.
    pub(crate) fn is_by_environment(&self) -> bool {
        let by = self.texts.iter().rfind(|(name, ..)| *name == "by");
        by.is_some_and(|(_, text, _)| text.starts_with("env:"))
    }

    /// Maximum number of groups that it forms; the default, if the setting is invalid.
    pub(crate) fn most(&self) -> u64 {
        let mut numbers = Numbers::standard();
        for (name, text, _) in self.texts.iter().filter(|(name, ..)| *name != "by") {
            // An invalid setting is reported when the rule is planned.
            let _reported = numbers.set(name, text);
        }
        numbers.most
    }

    /// Sets a key, which is one of [`names`].
    pub(crate) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.texts.push((name, text, origin));
    }

    /// Books the costs of its groups on this control group, or on the group's own.
    ///
    /// # Errors
    /// It is no control group, or several.
    pub(crate) fn book(&mut self, text: &str, origin: Origin) -> Result<(), String> {
        self.book = Some(if text == SELF {
            Book::Own(origin)
        } else {
            let cgroup: Cgroup = text.parse()?;
            if !cgroup.is_one() {
                return Err(format!(
                    "'{text}': name one control group that pays for each group, or write \
                     '{SELF}' for the group's own"
                ));
            }
            Book::One(cgroup)
        });
        Ok(())
    }
}

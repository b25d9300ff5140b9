//! The configuration of a group.

use uksm_linux::selection::Cgroup;

use super::members::RedistributionConfig;
use super::rate::RateConfig;
use crate::setting::{Origin, Settings};

/// Maximum length of a name, in bytes.
pub(super) const MAX_GROUP_NAME_BYTES: usize = 64;

/// Whether a name may have this character.
pub(super) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// A configured group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Its name.
    pub(crate) name: String,
    /// Its position in the configuration.
    pub(crate) origin: Origin,
    /// Its own settings, over those of all groups; and its processes.
    pub(crate) settings: Settings,
    /// The control group that pays for it; the daemon's own if none is named.
    pub(crate) book: Option<Cgroup>,
    /// The members that get its freed memory.
    pub(crate) redistribution: RedistributionConfig,
    /// Its rate.
    pub(crate) rate: RateConfig,
    /// Its processes were looked up before: a process that has ended is no mistake.
    pub(crate) is_pinned: bool,
}

impl Group {
    /// A group of this name, without processes.
    ///
    /// # Errors
    /// A name that cannot be part of a file name.
    pub(crate) fn new(name: &str, origin: Origin) -> Result<Group, String> {
        if name.is_empty() || name.len() > MAX_GROUP_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(format!(
                "a group's name has 1 to {MAX_GROUP_NAME_BYTES} letters, digits, and - _ ."
            ));
        }
        Ok(Group {
            name: name.to_owned(),
            origin,
            settings: Settings::default(),
            book: None,
            redistribution: RedistributionConfig::default(),
            rate: RateConfig::default(),
            is_pinned: false,
        })
    }

    /// Books its costs on this control group.
    ///
    /// # Errors
    /// It is no control group, or several.
    pub(crate) fn book(&mut self, text: &str) -> Result<(), String> {
        let cgroup: Cgroup = text.parse()?;
        if !cgroup.is_one() {
            return Err(format!(
                "'{text}': name one control group that pays for the group"
            ));
        }
        self.book = Some(cgroup);
        Ok(())
    }

    /// Whether it has the processes that no other group has.
    pub(super) fn is_rest(&self) -> bool {
        self.settings.targets.all
    }
}

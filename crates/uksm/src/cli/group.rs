//! `uksm group`: what can be asked of groups, and how they are changed.
//!
//! Keys of a group are those of a file, as `KEY=VALUE`; only the daemon knows which there are, and
//! what they may be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{StatusArgs, SuggestArgs};
use crate::control::Change;

/// Options of `group`.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: GroupAction,
}

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// List the groups, one line for each
    List(ListArgs),
    /// Show one group in full, as `uksm status --group NAME`
    Show(ShowArgs),
    /// Add a group to the running daemon, until the daemon ends
    Add(AddArgs),
    /// Change settings of a group that was added
    Set(SetArgs),
    /// Remove a group that was added; its processes share nothing any more
    Remove(RemoveArgs),
    /// Read the named processes once and propose groups of them, with what each would save
    Suggest(Box<SuggestArgs>),
}

/// Options of `group list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    socket: PathBuf,
}

/// Options of `group show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The group's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// Options of `group add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The group's name
    pub(crate) name: String,
    /// Its keys, as in [group.NAME] of the configuration, with dots for tables: cgroup=/tenants/web
    /// governor=low exclude.comm=sshd 'comm=["a", "b"]'
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = key_and_value)]
    keys: Vec<(String, String)>,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Options of `group set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The group's name
    pub(crate) name: String,
    /// The keys to set, as for `group add`
    #[arg(required_unless_present = "unset", value_name = "KEY=VALUE", value_parser = key_and_value)]
    keys: Vec<(String, String)>,
    /// A key to return to its default [repeatable]
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Options of `group remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The group's name
    pub(crate) name: String,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Keys by name.
///
/// # Errors
/// One is named twice.
fn by_name(keys: Vec<(String, String)>) -> Result<BTreeMap<String, String>, String> {
    let mut named = BTreeMap::new();
    for (key, value) in keys {
        if named.insert(key.clone(), value).is_some() {
            return Err(format!(
                "{key} is named twice: write several as a list, '{key}=[\"a\", \"b\"]'"
            ));
        }
    }
    Ok(named)
}

impl AddArgs {
    /// What is asked.
    ///
    /// # Errors
    /// A key is named twice.
    pub(crate) fn change(self) -> Result<Change, String> {
        let keys = by_name(self.keys)?;
        let name = self.name;
        Ok(Change::Add { name, keys })
    }
}

impl SetArgs {
    /// What is asked.
    ///
    /// # Errors
    /// A key is named twice.
    pub(crate) fn change(self) -> Result<Change, String> {
        let (name, unset) = (self.name, self.unset);
        let keys = by_name(self.keys)?;
        Ok(Change::Set { name, keys, unset })
    }
}

impl ListArgs {
    /// The options of `status` that say the same, of a group or of all.
    pub(crate) fn status(self, group: Option<String>) -> StatusArgs {
        StatusArgs {
            group,
            json: self.json,
            socket: self.socket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_once_and_has_a_value() {
        assert_eq!(
            key_and_value("book=/a=b"),
            Ok(("book".to_owned(), "/a=b".to_owned()))
        );
        assert_eq!(key_and_value("book"), Err("write KEY=VALUE".to_owned()));
        let pair = |value: &str| ("comm".to_owned(), value.to_owned());
        assert_eq!(by_name(vec![pair("a")]).unwrap().len(), 1);
        let error = by_name(vec![pair("a"), pair("b")]).unwrap_err();
        assert!(error.starts_with("comm is named twice: write"), "{error}");
    }
}

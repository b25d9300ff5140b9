//! The keys of a group that a command adds or changes.
//!
//! # Problem
//! A command must accept all keys of a file, and refuse them for the same reasons. Two readers of
//! the same keys would diverge.
//!
//! # Approach
//! The keys are written as the text of a table, which is read like a file; only the origin in
//! errors differs ("uksm group add web: cpu"). No value can become more than one value: texts are
//! quoted by the library that reads them, and a text that looks like a list is parsed by itself
//! first.

use std::collections::BTreeMap;

use toml::de::DeTable;

use super::group::Group;
use super::{File, TextSource};
use crate::setting::Origin;

/// Maximum length of all keys and values together, in bytes. The message that carries them has the
/// same limit.
const MAX_BYTES: usize = 64 << 10;

/// The group of this name with these keys, which come from `who`.
///
/// # Errors
/// As for a table in a file; one line that begins with `who`.
pub(crate) fn group(
    who: &str,
    name: &str,
    keys: &BTreeMap<String, String>,
) -> Result<Group, String> {
    let refuse = |what: &str| format!("{who}: {what}");
    Group::new(name, Origin::Option(who.to_owned()))
        .map_err(|error| refuse(&format!("{}: {error}", name.escape_debug())))?;
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut text = format!("[group.{}]\n", quoted(name));
    for (key, value) in keys {
        let is_name = |part: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            !part.is_empty() && part.chars().all(is_plain)
        };
        if !key.split('.').all(is_name) {
            return Err(refuse(&format!("'{key}' is not a key")));
        }
        let value = match value.as_str() {
            truth @ ("true" | "false") => truth.to_owned(),
            list if list.starts_with('[') => list_of(list).ok_or_else(|| {
                refuse(&format!("{key}: '{}' is not a list", list.escape_debug()))
            })?,
            text => quoted(text),
        };
        text += &format!("{key} = {value}\n");
    }
    if text.len() > MAX_BYTES {
        return Err(refuse(&format!(
            "must be at most {MAX_BYTES} bytes together"
        )));
    }
    let file = File {
        source: TextSource::Command(who),
        text: &text,
    };
    let table =
        DeTable::parse(&text).map_err(|error| refuse(&error.message().replace('\n', " ")))?;
    let mut groups = Vec::new();
    for (key, value) in table.get_ref() {
        file.groups(key, value, &mut groups)?;
    }
    groups.pop().ok_or_else(|| refuse("no group"))
}

/// A list in canonical form.
fn list_of(text: &str) -> Option<String> {
    let mut table: toml::Table = toml::from_str(&format!("list = {text}")).ok()?;
    let list = table.remove("list")?;
    (table.is_empty() && list.is_array()).then(|| list.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_of(pairs: &[(&str, &str)]) -> Result<Group, String> {
        let pairs = pairs
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()));
        group("uksm group add web", "web", &pairs.collect())
    }

    #[test]
    fn keys_of_a_command_are_those_of_a_file() {
        let group = group_of(&[
            ("cgroup", "[\"/a\", '/b']"),
            ("comm", "nginx"),
            ("exclude.pid", "7"),
            ("governor", "low"),
            ("cpu", "3%"),
            ("book", "/a"),
            ("redistribute", "equal"),
            ("member.one.cgroup", "/a"),
            ("member.one.base", "1GiB"),
        ])
        .unwrap();
        assert_eq!(
            (group.name.as_str(), group.origin.to_string().as_str()),
            ("web", "uksm group add web")
        );
        let targets = &group.settings.targets;
        assert_eq!(
            (targets.chosen.cgroups.len(), targets.chosen.comms.len()),
            (2, 1)
        );
        assert_eq!(targets.excluded.pids.len(), 1);
        assert_eq!(group.settings.text("cpu"), Some("3%"));
        assert_eq!(group.book.unwrap().path(), "/a");
        assert!(group.redistribution.resolve("web").unwrap().is_some());
        assert!(group_of(&[("all", "true")]).unwrap().settings.targets.all);
    }

    #[test]
    fn each_mistake_names_the_command_and_the_key() {
        for (key, value, says) in [
            (
                "v_dupe",
                "1",
                "v_dupe: no such key: known are account_days, ",
            ),
            ("all", "1", "all: must be true or false"),
            ("pid", "0", "pid: '0' is not a process id"),
            ("book", "x", "book: 'x' is not the path of a control group"),
            (
                "exclude.all",
                "true",
                "all: no such key: known are cgroup, ",
            ),
            ("a b", "1", "'a b' is not a key"),
            ("", "1", "'' is not a key"),
            ("cpu.", "1", "'cpu.' is not a key"),
            ("comm", "[1, 2\n", "comm: '[1, 2\\n' is not a list"),
            (
                "comm",
                "[1]\nlog = 7",
                "comm: '[1]\\nlog = 7' is not a list",
            ),
            (
                "comm",
                "[1]\n[group.x]",
                "comm: '[1]\\n[group.x]' is not a list",
            ),
        ] {
            let error = group_of(&[(key, value)]).unwrap_err();
            assert_eq!(
                error
                    .strip_prefix("uksm group add web: ")
                    .map(|rest| rest.starts_with(says)),
                Some(true),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = group_of(&[("cpu", "1.5")])
            .unwrap()
            .settings
            .resolve()
            .unwrap_err();
        assert!(
            error.starts_with("uksm group add web: cpu = 1.5: must be "),
            "{error}"
        );
        let error = group_of(&[("exclude", "x"), ("exclude.comm", "x")]).unwrap_err();
        assert!(error.starts_with("uksm group add web: "), "{error}");
    }

    #[test]
    fn a_value_is_one_value_whatever_is_in_it() {
        for value in [
            "a\"\nlog = \"x",
            "'''",
            "\"\"\"",
            "\\",
            "a\u{7}b",
            "= ] }",
            "ä",
        ] {
            let group = group_of(&[("governor", value)]).unwrap();
            assert_eq!(group.settings.text("governor"), Some(value));
        }
        let error = group("who", "a\"]\nx = 1", &BTreeMap::new()).unwrap_err();
        assert!(error.contains("a group's name has 1 to 64"), "{error}");
    }
}

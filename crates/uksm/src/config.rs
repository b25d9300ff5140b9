//! Configuration files.
//!
//! `/etc/uksm/config.toml` and the files of `conf.d` beside it have the same settings as the
//! options. An error names file, line and key, before anything is done. So each file is parsed into
//! keys and values with their positions. A setting of a later file replaces that of an earlier one;
//! lists of targets add up. A group is in one file. An unknown key is an error.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use uksm_input::regular_file;
use uksm_linux::selection::{Selection, Selectors};

use crate::setting::{self, Origin, Settings};

pub(crate) mod cgroups;
mod conflicts;
pub(crate) mod cpu_total;
pub(crate) mod current;
pub(crate) mod group;
mod group_keys;
pub(crate) mod members;
pub(crate) mod plan;
pub(crate) mod plans;
pub(crate) mod rate;
pub(crate) mod rule_plan;
pub(crate) mod rules;

use group::Group;
use members::RedistributionConfig;
use rules::RuleConfig;

/// The file that is read if none is named.
pub(crate) const DEFAULT: &str = "/etc/uksm/config.toml";

/// A configuration: general settings, groups, and rules that form groups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Settings for all groups, and the processes of a daemon without groups.
    pub(crate) settings: Settings,
    /// Groups of processes that may share pages with each other only.
    pub(crate) groups: Vec<Group>,
    /// Rules that form groups, in their order.
    pub(crate) rules: Vec<RuleConfig>,
}

impl Config {
    /// Whether there are or may be groups.
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty() || !self.rules.is_empty()
    }
}

/// Reads the file and then those of `conf.d` beside it, by name. A file that was not `named` may be
/// missing.
///
/// # Errors
/// Unreadable, not TOML, an unknown key, a value of the wrong kind: file, line and key.
pub(crate) fn read(path: &Path, named: bool, config: &mut Config) -> Result<(), String> {
    match regular_file::read_text(path) {
        Ok(text) => parse(path, &text, config)?,
        Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(path, &error)),
    }
    let folder = path.parent().unwrap_or(Path::new(".")).join("conf.d");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(&folder, &error)),
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let file = entry.map_err(|error| unreadable(&folder, &error))?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(file);
        }
    }
    files.sort();
    for file in files {
        let text = regular_file::read_text(&file).map_err(|error| unreadable(&file, &error))?;
        parse(&file, &text, config)?;
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{}: cannot read the configuration: {error}", path.display())
}

fn parse(path: &Path, text: &str, config: &mut Config) -> Result<(), String> {
    let file = File {
        source: TextSource::File(path),
        text,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| file.line(&span));
        format!(
            "{}:{line}: {}",
            path.display(),
            error.message().replace('\n', " ")
        )
    })?;
    for (key, value) in table.get_ref() {
        let name = key.get_ref().as_ref();
        match name {
            "targets" => file.targets(key, value, &mut config.settings.targets)?,
            "group" => file.groups(key, value, &mut config.groups)?,
            "rule" => file.rules(key, value, &mut config.rules)?,
            _ => file.setting(key, value, "", &mut config.settings)?,
        }
    }
    Ok(())
}

/// The name among these that a key has.
fn known(key: &Key<'_>, names: Vec<&'static str>) -> Option<&'static str> {
    names.into_iter().find(|name| key.get_ref() == name)
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Value<'a> = Spanned<DeValue<'a>>;

/// The source of a text.
#[derive(Clone, Copy)]
enum TextSource<'a> {
    File(&'a Path),
    /// The keys of a command.
    Command(&'a str),
}

struct File<'a> {
    source: TextSource<'a>,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        before.iter().filter(|&&b| b == b'\n').count() + 1
    }

    fn fault(&self, key: &Key<'_>, what: &str) -> String {
        match self.source {
            TextSource::File(path) => format!(
                "{}:{}: {}: {what}",
                path.display(),
                self.line(&key.span()),
                key.get_ref()
            ),
            TextSource::Command(who) => format!("{who}: {}: {what}", key.get_ref()),
        }
    }

    fn unknown(&self, key: &Key<'_>, table: &str) -> String {
        let settings = setting::names;
        let targets = ["all", "pid", "cgroup", "unit", "libvirt", "comm", "exclude"];
        let mut names: Vec<&str> = match table {
            "" => settings().chain(["targets", "group", "rule"]).collect(),
            "rule" => {
                let own = rules::names().into_iter().chain(["book"]);
                settings().chain(targets).chain(own).collect()
            }
            "group" => {
                let own = members::names().into_iter().chain(["book", "member"]);
                let own = own.chain(rate::names());
                settings().chain(targets).chain(own).collect()
            }
            "member" => members::member_names(),
            "targets" => targets.to_vec(),
            _ => targets[1..6].to_vec(),
        };
        names.sort_unstable();
        self.fault(key, &format!("no such key: known are {}", names.join(", ")))
    }

    /// A scalar, or a list of them separated by commas, as an option's text.
    fn text(&self, key: &Key<'_>, value: &Value<'_>) -> Result<String, String> {
        match value.get_ref() {
            DeValue::Array(items) => {
                let items: Result<Vec<String>, String> =
                    items.iter().map(|item| self.scalar(key, item)).collect();
                Ok(items?.join(","))
            }
            _ => self.scalar(key, value),
        }
    }

    fn scalar(&self, key: &Key<'_>, value: &Value<'_>) -> Result<String, String> {
        Ok(match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Integer(number) => {
                let parsed = u64::from_str_radix(number.as_str(), number.radix());
                parsed
                    .map_err(|_| self.fault(key, "number too large"))?
                    .to_string()
            }
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(truth) => truth.to_string(),
            other => {
                let kind = other.type_str();
                return Err(self.fault(key, &format!("takes a text or a number, not a {kind}")));
            }
        })
    }

    fn origin(&self, key: &Key<'_>) -> Origin {
        match self.source {
            TextSource::File(path) => Origin::Line {
                path: path.to_owned(),
                line: self.line(&key.span()),
                key: key.get_ref().to_string(),
            },
            TextSource::Command(who) => Origin::Option(format!("{who}: {}", key.get_ref())),
        }
    }

    /// The origin of a group of this name.
    fn origin_of_group(&self, key: &Key<'_>) -> Origin {
        match self.source {
            TextSource::File(_) => self.origin(key),
            TextSource::Command(who) => Origin::Option(who.to_owned()),
        }
    }

    /// Reads a key of the file itself, or of a group, that is a setting.
    fn setting(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        table: &str,
        settings: &mut Settings,
    ) -> Result<(), String> {
        let Some(name) = setting::named(key.get_ref().as_ref()) else {
            return Err(self.unknown(key, table));
        };
        settings.set(name, self.text(key, value)?, self.origin(key));
        Ok(())
    }

    fn targets(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        targets: &mut Selection,
    ) -> Result<(), String> {
        for (key, value) in self.table(key, value)? {
            if !self.target(key, value, targets)? {
                return Err(self.unknown(key, "targets"));
            }
        }
        Ok(())
    }

    /// Reads a key that selects processes. False if it does not.
    fn target(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        targets: &mut Selection,
    ) -> Result<bool, String> {
        match key.get_ref().as_ref() {
            "all" => match value.get_ref().as_bool() {
                Some(all) => targets.all = all,
                None => return Err(self.fault(key, "must be true or false")),
            },
            "exclude" => {
                for (key, value) in self.table(key, value)? {
                    if !self.selector(key, value, &mut targets.excluded)? {
                        return Err(self.unknown(key, "exclude"));
                    }
                }
            }
            _ => return self.selector(key, value, &mut targets.chosen),
        }
        Ok(true)
    }

    fn groups(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        groups: &mut Vec<Group>,
    ) -> Result<(), String> {
        for (key, value) in self.table(key, value)? {
            let mut group = Group::new(key.get_ref().as_ref(), self.origin_of_group(key))
                .map_err(|error| self.fault(key, &error))?;
            if let Some(other) = groups.iter().find(|other| other.name == group.name) {
                return Err(self.fault(key, &format!("is set in {} already", other.origin)));
            }
            for (key, value) in self.table(key, value)? {
                if key.get_ref() == "book" {
                    let book = self.scalar(key, value)?;
                    group.book(&book).map_err(|error| self.fault(key, &error))?;
                } else if key.get_ref() == "member" {
                    self.members(key, value, &mut group.redistribution)?;
                } else if let Some(name) = known(key, members::names()) {
                    let text = self.scalar(key, value)?;
                    group.redistribution.set(name, text, self.origin(key));
                } else if let Some(name) = known(key, rate::names()) {
                    let text = self.scalar(key, value)?;
                    group.rate.set(name, text, self.origin(key));
                } else if !self.target(key, value, &mut group.settings.targets)? {
                    self.setting(key, value, "group", &mut group.settings)?;
                }
            }
            groups.push(group);
        }
        Ok(())
    }

    /// Reads rules in the order of their lines.
    fn rules(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        rules: &mut Vec<RuleConfig>,
    ) -> Result<(), String> {
        let mut tables: Vec<_> = self.table(key, value)?.iter().collect();
        tables.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in tables {
            let mut rule = RuleConfig::new(key.get_ref().as_ref(), self.origin(key))
                .map_err(|error| self.fault(key, &error))?;
            if let Some(other) = rules.iter().find(|other| other.name == rule.name) {
                return Err(self.fault(key, &format!("is set in {} already", other.origin)));
            }
            for (key, value) in self.table(key, value)? {
                if key.get_ref() == "book" {
                    let book = self.scalar(key, value)?;
                    rule.book(&book, self.origin(key))
                        .map_err(|error| self.fault(key, &error))?;
                } else if let Some(name) = known(key, rules::names()) {
                    let text = self.scalar(key, value)?;
                    rule.set(name, text, self.origin(key));
                } else if !self.target(key, value, &mut rule.settings.targets)? {
                    self.setting(key, value, "rule", &mut rule.settings)?;
                }
            }
            rules.push(rule);
        }
        Ok(())
    }

    /// Reads the members of a group.
    fn members(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        members: &mut RedistributionConfig,
    ) -> Result<(), String> {
        for (key, value) in self.table(key, value)? {
            let member = members.member(key.get_ref().as_ref(), self.origin(key));
            for (key, value) in self.table(key, value)? {
                let Some(name) = known(key, members::member_names()) else {
                    return Err(self.unknown(key, "member"));
                };
                member.set(name, self.scalar(key, value)?, self.origin(key));
            }
        }
        Ok(())
    }

    fn table<'v>(&self, key: &Key<'_>, value: &'v Value<'v>) -> Result<&'v DeTable<'v>, String> {
        value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.fault(key, "must be a table"))
    }

    /// Reads a key that is a kind of selector. False if it is none.
    fn selector(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        selectors: &mut Selectors,
    ) -> Result<bool, String> {
        match key.get_ref().as_ref() {
            "pid" => self.list(key, value, &mut selectors.pids),
            "cgroup" => self.list(key, value, &mut selectors.cgroups),
            "unit" => self.list(key, value, &mut selectors.units),
            "libvirt" => self.list(key, value, &mut selectors.libvirt),
            "comm" => self.list(key, value, &mut selectors.comms),
            _ => return Ok(false),
        }?;
        Ok(true)
    }

    fn list<T: FromStr<Err = String>>(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        list: &mut Vec<T>,
    ) -> Result<(), String> {
        let mut push = |item: &Value<'_>| {
            let text = self.scalar(key, item)?;
            list.push(
                text.parse()
                    .map_err(|error: String| self.fault(key, &error))?,
            );
            Ok(())
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().try_for_each(push),
            _ => push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, String> {
        let mut config = Config::default();
        parse(Path::new("/etc/uksm/config.toml"), text, &mut config)?;
        Ok(config.settings)
    }

    #[test]
    fn settings_and_targets_are_read() {
        let settings = settings(
            "governor = \"low\"\nv_dup = 0.2\nlevel_rounds = [\"1s\", \"1s\", \"1s\", \"2s\"]\n\
             seed = 0x10\nlocked = true\n[targets]\ncomm = \"redis*\"\npid = [7, \"8@99\"]\n\
             [targets.exclude]\ncgroup = [\"/system.slice\"]\n",
        )
        .unwrap();
        assert_eq!(settings.text("v_dup"), Some("0.2"));
        let resolved = settings.resolve().unwrap();
        assert_eq!(
            (
                resolved.params.v_dup,
                resolved.daemon.seed,
                resolved.params.locked
            ),
            (0.2, Some(16), true)
        );
        assert_eq!(resolved.params.level_rounds.unwrap().len(), 4);
        assert_eq!(settings.targets.chosen.pids.len(), 2);
        assert_eq!(settings.targets.excluded.cgroups.len(), 1);
    }

    #[test]
    fn each_mistake_names_file_line_and_key() {
        for (text, says) in [
            (
                "# x\n\nv_dupe = 1\n",
                "/etc/uksm/config.toml:3: v_dupe: no such key: known are account_days",
            ),
            (
                "v_dup = {}\n",
                "/etc/uksm/config.toml:1: v_dup: takes a text or a number, not a ",
            ),
            (
                "\n[targets]\nname = 1\n",
                "/etc/uksm/config.toml:3: name: no such key: known are all, cgroup",
            ),
            (
                "[targets]\nall = 1\n",
                "/etc/uksm/config.toml:2: all: must be true or false",
            ),
            (
                "[targets]\npid = 0\n",
                "/etc/uksm/config.toml:2: pid: '0' is not a process id",
            ),
            (
                "targets = 1\n",
                "/etc/uksm/config.toml:1: targets: must be a table",
            ),
            (
                "[targets.exclude]\nall = true\n",
                "/etc/uksm/config.toml:2: all: no such key: known are cgroup",
            ),
            ("a = 1\nb\n", "/etc/uksm/config.toml:2: "),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.starts_with(says), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_value_out_of_bounds_names_its_line() {
        let error = settings("governor = \"full\"\ncpu = 1.5\n")
            .unwrap()
            .resolve()
            .unwrap_err();
        assert!(
            error.starts_with("/etc/uksm/config.toml:2: cpu = 1.5: must be "),
            "{error}"
        );
    }

    #[test]
    fn the_example_is_accepted_as_it_is_and_with_all_its_lines() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/config.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let plain = settings(&text).unwrap();
        plain.resolve().unwrap();
        assert_eq!(plain.targets, Default::default(), "it names nobody");
        let all: String = text
            .lines()
            .map(|line| {
                if line.starts_with("# ") {
                    line
                } else {
                    line.trim_start_matches('#')
                }
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let all = settings(&all).unwrap();
        all.resolve().unwrap();
        assert!(all.targets.all && !all.targets.excluded.is_empty());
    }

    #[test]
    fn later_files_win_and_their_targets_add_up() {
        let root = tempfile::tempdir().unwrap();
        let main = root.path().join("config.toml");
        std::fs::create_dir(root.path().join("conf.d")).unwrap();
        std::fs::write(&main, "v_dup = 0.1\n[targets]\ncomm = \"a\"\n").unwrap();
        std::fs::write(root.path().join("conf.d/20-b.toml"), "v_dup = 0.3\n").unwrap();
        std::fs::write(
            root.path().join("conf.d/10-a.toml"),
            "v_dup = 0.2\n[targets]\ncomm = \"b\"\n",
        )
        .unwrap();
        std::fs::write(root.path().join("conf.d/notes.txt"), "not toml").unwrap();
        let mut config = Config::default();
        read(&main, true, &mut config).unwrap();
        let settings = config.settings;
        assert_eq!(settings.text("v_dup"), Some("0.3"));
        assert_eq!(settings.targets.chosen.comms.len(), 2);
    }

    #[test]
    fn a_missing_file_is_an_error_only_if_it_was_named() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("config.toml");
        read(&path, false, &mut Config::default()).unwrap();
        let error = read(&path, true, &mut Config::default()).unwrap_err();
        assert!(
            error.contains("config.toml: cannot read the configuration: "),
            "{error}"
        );
    }
}

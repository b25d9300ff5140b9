//! Rules that form groups by themselves.
//!
//! # Problem
//! Customers come and go, and writing a group into a file for each is too much work.
//!
//! # Approach
//! A rule selects processes, and names the property that separates them ([`By`]). Each value of
//! that property is a group, made when the first process with it is seen. A rule has a maximum
//! number of groups, because a user who can make any number of control groups must not be able to
//! make as many workers. Processes beyond the maximum are in no group at all, rather than in one
//! with strangers.
//!
//! A value from a process's own memory, its environment, is read when the process joins a group,
//! and again when it has called exec. Many programs overwrite their environment for a title, and
//! would leave their group for that.
//!
//! # Source
//! Euro-Par'11 §3: a group is the set of processes that its provider puts together.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::labels::Labels;
use super::{Candidate, GroupId, Selection};
use crate::boundary::{self, Boundary};
use crate::cgroup_path;
use crate::proc;

/// Maximum length of the value of a variable that names a group, in bytes.
const MAX_VALUE_BYTES: usize = 255;

/// The property by which a rule separates processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// A property that the kernel shows.
    Boundary(Boundary),
    /// The label of the process's control group in a file.
    Labels(Labels),
}

/// The value that the processes of a formed group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    /// The value as text; distinct for distinct groups.
    pub text: String,
    /// The path of the control group, if the value is one.
    pub cgroup: Option<String>,
}

impl By {
    /// Parses the text that [`fmt::Display`] writes; a file of labels is read.
    ///
    /// # Errors
    /// The text is invalid, or a file of labels is bad: one line.
    pub fn read(text: &str) -> Result<By, String> {
        if let Some(file) = text.strip_prefix("file:") {
            if !file.starts_with('/') {
                return Err(format!(
                    "'{file}': write the absolute path of the file of labels"
                ));
            }
            return Labels::read(Path::new(file)).map(By::Labels);
        }
        match Boundary::from_str(text) {
            Ok(Boundary::All) => {
                Err("all is one group: write [group.NAME] with all = true".to_owned())
            }
            Ok(boundary) => Ok(By::Boundary(boundary)),
            Err(_) if !text.starts_with("cgroup:") => Err(format!(
                "'{text}' forms no groups: write cgroup:DEPTH, user, unit, pod, env:NAME or file:PATH"
            )),
            Err(error) => Err(error),
        }
    }

    /// Whether a value is a control group, so that it can pay for its group.
    #[must_use]
    pub fn has_cgroups(&self) -> bool {
        matches!(
            self,
            By::Boundary(Boundary::Cgroup(_) | Boundary::Unit | Boundary::Pod)
        )
    }

    /// Whether the value depends on the control group of a process.
    #[must_use]
    pub fn depends_on_cgroups(&self) -> bool {
        self.has_cgroups() || matches!(self, By::Labels(_))
    }

    /// Whether the value is read once, from the environment.
    #[must_use]
    pub fn is_taken_once(&self) -> bool {
        matches!(self, By::Boundary(Boundary::Environment(_)))
    }

    /// The value of a process; none if it has none.
    fn value(&self, candidate: &Candidate<'_>) -> proc::Result<Option<Value>> {
        let plain = |text: String| Value { text, cgroup: None };
        let is_path = |path: String| Value {
            text: path.clone(),
            cgroup: Some(path),
        };
        let boundary = match self {
            By::Labels(labels) => {
                let label = labels.of(candidate.cgroup()?);
                return Ok(label.map(|label| plain(label.to_owned())));
            }
            By::Boundary(boundary) => boundary,
        };
        let (proc, pid) = (candidate.proc, candidate.pid);
        Ok(match boundary {
            Boundary::All => None,
            Boundary::User => Some(plain(proc.user(pid)?.to_string())),
            Boundary::Cgroup(depth) => {
                let path = candidate.cgroup()?;
                // A path with fewer names belongs to no group.
                let is_deep = path.len() > 1 && path.split('/').count() > *depth;
                is_deep.then(|| is_path(cgroup_path::cut(path, *depth)))
            }
            Boundary::Unit => cgroup_path::unit(candidate.cgroup()?).map(is_path),
            Boundary::Pod => cgroup_path::pod(candidate.cgroup()?).map(|(id, path)| Value {
                text: id,
                cgroup: Some(path),
            }),
            Boundary::Environment(name) => boundary::environment(proc, pid, name)?
                .filter(|value| value.len() <= MAX_VALUE_BYTES)
                .map(plain),
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Boundary(boundary) => boundary.fmt(f),
            By::Labels(labels) => write!(f, "file:{}", labels.file().display()),
        }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The property by which it separates processes.
    pub by: By,
    /// The processes that it selects.
    pub selection: Selection,
    /// Maximum number of groups that it forms.
    pub most: usize,
}

/// A group that a rule has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormedGroup {
    /// The group.
    pub group: GroupId,
    /// The rule's name.
    pub rule: String,
    /// The value that its processes have in common.
    pub value: Value,
}

/// The result of a rule for a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RuleResult {
    /// The process is in this group.
    In(GroupId),
    /// The process needs a new group, and the rule has its maximum number.
    Full,
    /// The rule does not apply to the process.
    Other,
}

/// A rule and the groups that it has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleGroups {
    pub(super) rule: Rule,
    formed: BTreeMap<Value, GroupId>,
    /// The value of the first process without a group since the last [`RuleGroups::take_left_out`].
    left_out: Option<Value>,
}

impl RuleGroups {
    /// A rule that has formed these groups.
    pub(super) fn new(
        rule: Rule,
        formed: impl IntoIterator<Item = (Value, GroupId)>,
    ) -> RuleGroups {
        RuleGroups {
            rule,
            formed: formed.into_iter().collect(),
            left_out: None,
        }
    }

    /// The result for a process that is in the group `current`, or in none yet. `next` makes the id
    /// of a new group.
    pub(super) fn result(
        &mut self,
        candidate: &Candidate<'_>,
        current: Option<GroupId>,
        next: impl FnOnce(&Value) -> GroupId,
    ) -> proc::Result<RuleResult> {
        if !self.rule.selection.include_candidate(candidate)? {
            return Ok(RuleResult::Other);
        }
        if self.rule.by.is_taken_once()
            && let Some(current) = current
            && self.formed.values().any(|&group| group == current)
        {
            return Ok(RuleResult::In(current));
        }
        let Some(value) = self.rule.by.value(candidate)? else {
            return Ok(RuleResult::Other);
        };
        if let Some(&group) = self.formed.get(&value) {
            return Ok(RuleResult::In(group));
        }
        if self.formed.len() >= self.rule.most {
            self.left_out.get_or_insert(value);
            return Ok(RuleResult::Full);
        }
        let group = next(&value);
        self.formed.insert(value, group);
        Ok(RuleResult::In(group))
    }

    /// A group is gone.
    pub(super) fn dissolve(&mut self, group: GroupId) {
        self.formed.retain(|_, of| *of != group);
    }

    /// The value of the first process without a group since the last call, if there was one.
    pub(super) fn take_left_out(&mut self) -> Option<Value> {
        self.left_out.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Proc;
    use std::path::Path;

    fn process(root: &Path, cgroup: &str, environment: &[u8]) {
        let folder = root.join("7");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        std::fs::write(folder.join("status"), "Name:\tx\nUid:\t1000\t33\t33\t33\n").unwrap();
        std::fs::write(folder.join("environ"), environment).unwrap();
        let stat = "7 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 70 4096 1 0\n";
        std::fs::write(folder.join("stat"), stat).unwrap();
    }

    fn value(by: &str, cgroup: &str, environment: &[u8]) -> Option<(String, Option<String>)> {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), cgroup, environment);
        let proc = Proc::at(root.path());
        let stat = proc.stat(7).unwrap();
        let candidate = Candidate::new(&proc, 7, &stat);
        let value = By::read(by).unwrap().value(&candidate).unwrap();
        value.map(|value| (value.text, value.cgroup))
    }

    #[test]
    fn each_kind_of_rule_has_a_value_of_a_process() {
        let path = |path: &str| Some((path.to_owned(), Some(path.to_owned())));
        let plain = |text: &str| Some((text.to_owned(), None));
        let deep = "/t.slice/a/x.service/y";
        assert_eq!(value("cgroup:2", deep, b""), path("/t.slice/a"));
        assert_eq!(value("cgroup:4", deep, b""), path(deep));
        assert_eq!(value("cgroup:5", deep, b""), None, "not so deep");
        assert_eq!(value("cgroup:1", "/", b""), None);
        assert_eq!(value("unit", deep, b""), None, "below what is no slice");
        assert_eq!(
            value("unit", "/t.slice/x.service/y.service", b""),
            path("/t.slice/x.service")
        );
        assert_eq!(value("unit", "/t", b""), None);
        assert_eq!(value("user", deep, b""), plain("33"));
        let pod = "/kubepods/burstable/podab-1";
        let inside = format!("{pod}/c");
        assert_eq!(
            value("pod", &inside, b""),
            Some(("ab-1".to_owned(), Some(pod.to_owned())))
        );
        assert_eq!(value("env:T", deep, b"A=1\0T=a b\n\0"), plain("a b\\n"));
        assert_eq!(value("env:T", deep, b"TT=1\0T=\0"), None);
        let long = [b"T=".as_slice(), &[b'x'; 256]].concat();
        assert_eq!(value("env:T", deep, &long), None, "no name of a group");
        assert_eq!(value("env:T", deep, &long[..257]).unwrap().0.len(), 255);
    }

    #[test]
    fn labels_are_read_from_a_file_that_is_named_whole() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("tenants");
        std::fs::write(&file, "/t/a blue\n").unwrap();
        let by = format!("file:{}", file.display());
        assert_eq!(By::read(&by).unwrap().to_string(), by);
        assert_eq!(value(&by, "/t/a/x", b""), Some(("blue".to_owned(), None)));
        assert_eq!(value(&by, "/t/b", b""), None);
        assert!(
            By::read("file:tenants")
                .unwrap_err()
                .contains("the absolute path")
        );
        std::fs::write(&file, "/t/a\n").unwrap();
        assert!(
            By::read(&by)
                .unwrap_err()
                .contains("tenants:1: a line must be")
        );
    }

    #[test]
    fn what_forms_no_groups_is_named() {
        for (text, expected) in [
            ("all", "all is one group"),
            ("", "'' forms no groups"),
            ("users", "'users' forms no groups"),
            ("env:", "'env:' forms no groups"),
            ("cgroup:0", "'0' is not a depth of control groups (1 to 64)"),
        ] {
            let error = By::read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        for text in ["cgroup:3", "user", "unit", "pod", "env:TENANT"] {
            assert_eq!(By::read(text).unwrap().to_string(), text);
        }
    }

    fn forming(by: &str, most: usize) -> RuleGroups {
        let selection = Selection {
            all: true,
            ..Selection::default()
        };
        let rule = Rule {
            name: "r".to_owned(),
            by: By::read(by).unwrap(),
            selection,
            most,
        };
        RuleGroups::new(rule, [])
    }

    /// The result for a process that has this variable, and is in this group.
    fn result(
        forming: &mut RuleGroups,
        tenant: &str,
        current: Option<u32>,
        next: u32,
    ) -> RuleResult {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), "/", format!("T={tenant}\0").as_bytes());
        let proc = Proc::at(root.path());
        let stat = proc.stat(7).unwrap();
        let candidate = Candidate::new(&proc, 7, &stat);
        let result = forming.result(&candidate, current.map(GroupId), |_| GroupId(next));
        result.unwrap()
    }

    #[test]
    fn a_group_is_formed_for_each_value_until_there_are_too_many() {
        let mut forming = forming("env:T", 2);
        assert_eq!(
            result(&mut forming, "a", None, 1),
            RuleResult::In(GroupId(1))
        );
        assert_eq!(
            result(&mut forming, "b", None, 2),
            RuleResult::In(GroupId(2))
        );
        assert_eq!(
            result(&mut forming, "a", None, 3),
            RuleResult::In(GroupId(1))
        );
        assert_eq!(forming.take_left_out(), None);
        assert_eq!(result(&mut forming, "c", None, 3), RuleResult::Full);
        assert_eq!(result(&mut forming, "d", None, 3), RuleResult::Full);
        assert_eq!(forming.take_left_out().unwrap().text, "c");
        assert_eq!(forming.take_left_out(), None, "reported once");
        assert_eq!(result(&mut forming, "", None, 3), RuleResult::Other);
        forming.dissolve(GroupId(1));
        assert_eq!(
            result(&mut forming, "c", None, 3),
            RuleResult::In(GroupId(3))
        );
    }

    #[test]
    fn who_writes_over_its_environment_stays_where_it_is() {
        let mut forming = forming("env:T", 2);
        assert_eq!(
            result(&mut forming, "a", None, 1),
            RuleResult::In(GroupId(1))
        );
        assert_eq!(
            result(&mut forming, "b", Some(1), 2),
            RuleResult::In(GroupId(1))
        );
        // The current group is of another rule, or of none.
        assert_eq!(
            result(&mut forming, "b", Some(9), 2),
            RuleResult::In(GroupId(2))
        );
    }

    #[test]
    fn a_process_that_moves_between_control_groups_moves_between_groups() {
        let mut forming = forming("cgroup:1", 2);
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        for (path, current, group) in [("/a", None, 1), ("/b", Some(1), 2), ("/a/x", Some(2), 1)] {
            process(root.path(), path, b"");
            let stat = proc.stat(7).unwrap();
            let candidate = Candidate::new(&proc, 7, &stat);
            let result = forming.result(&candidate, current.map(GroupId), |_| GroupId(group));
            assert_eq!(result.unwrap(), RuleResult::In(GroupId(group)), "{path}");
        }
    }
}

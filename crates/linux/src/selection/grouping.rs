//! The group of a process.
//!
//! # Problem
//! A process may match the selectors of several groups, but must be in one: the group decides which
//! processes it shares memory with.
//!
//! # Approach
//! Groups are ordered, and a process is in the first one that selects it: first the groups that
//! name their processes, then those formed by rules ([`Rule`]), in the order of the rules, then the
//! groups of all other processes. Excluding processes from all groups requires no knowledge of the
//! groups.

use super::group_id::GroupId;
use super::rule::{RuleGroups, RuleResult};
use super::{Candidate, FormedGroup, ProcessName, Rule, Selection, Selectors, Value};
use crate::proc::{self, Proc, Stat};

/// Groups of processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grouping {
    /// In the order in which they are tried, except that groups of all processes come after the
    /// rules.
    groups: Vec<(GroupId, Selection)>,
    rules: Vec<RuleGroups>,
    /// Processes in no group.
    excluded: Selectors,
    /// The last id that was assigned.
    last: u32,
    /// Groups formed since the last `take_formed`.
    formed: Vec<FormedGroup>,
}

/// A rule and the groups that it has formed already.
pub type RuleWithGroups = (Rule, Vec<(Value, GroupId)>);

impl Grouping {
    /// These groups, in this order.
    #[must_use]
    pub fn of(groups: Vec<(GroupId, Selection)>) -> Grouping {
        Grouping {
            groups,
            ..Grouping::default()
        }
    }

    /// The id of a new group.
    pub fn new_group(&mut self) -> GroupId {
        self.last += 1;
        GroupId(self.last)
    }

    /// Replaces groups and rules; excluded processes stay excluded. Formed groups that are not
    /// among the rules' groups are forgotten.
    pub fn regroup(&mut self, groups: Vec<(GroupId, Selection)>, rules: Vec<RuleWithGroups>) {
        self.groups = groups;
        let rules = rules.into_iter();
        self.rules = rules
            .map(|(rule, formed)| RuleGroups::new(rule, formed))
            .collect();
        self.formed.clear();
    }

    /// Excludes these processes. Processes by id that have ended since are forgotten, and
    /// duplicates are dropped: each check of a process goes through all selectors.
    pub fn exclude(&mut self, selectors: Selectors, proc: &Proc) {
        self.excluded.add(selectors, proc);
    }

    /// Whether these can be excluded as well: see [`Selectors::has_room_for`].
    ///
    /// # Errors
    /// There are too many: one line.
    pub fn has_room_for(&self, selectors: &Selectors) -> Result<(), String> {
        self.excluded.has_room_for(selectors)
    }

    /// The groups that were formed since the last call.
    pub fn take_formed(&mut self) -> Vec<FormedGroup> {
        std::mem::take(&mut self.formed)
    }

    /// Rules that had their maximum number of groups and left processes out since the last call:
    /// the rule's name and maximum, and the value of the first such process.
    pub fn take_left_out(&mut self) -> Vec<(String, usize, Value)> {
        let left_out = self.rules.iter_mut().filter_map(|forming| {
            let value = forming.take_left_out()?;
            Some((forming.rule.name.clone(), forming.rule.most, value))
        });
        left_out.collect()
    }

    /// A formed group is gone; a later process with its value forms another one.
    pub fn dissolve(&mut self, group: GroupId) {
        self.rules
            .iter_mut()
            .for_each(|forming| forming.dissolve(group));
        self.formed.retain(|formed| formed.group != group);
    }

    /// The group of a process that is in the group `current`, or in none yet. A new group is formed
    /// if necessary.
    ///
    /// # Errors
    /// The input of its group cannot be read.
    pub fn group_of(
        &mut self,
        proc: &Proc,
        (pid, stat): (u32, &Stat),
        current: Option<GroupId>,
    ) -> proc::Result<Option<GroupId>> {
        let candidate = Candidate::new(proc, pid, stat);
        for (id, selection) in self.groups.iter().filter(|(_, named)| !named.all) {
            if selection.include_candidate(&candidate)? {
                let is_excluded = self.excluded.leave_out(&candidate)?;
                return Ok((!is_excluded).then_some(*id));
            }
        }
        if !self.rules.is_empty() && self.excluded.leave_out(&candidate)? {
            return Ok(None);
        }
        for forming in &mut self.rules {
            let name = forming.rule.name.clone();
            let next = |value: &Value| {
                self.last += 1;
                let group = GroupId(self.last);
                self.formed.push(FormedGroup {
                    group,
                    rule: name,
                    value: value.clone(),
                });
                group
            };
            match forming.result(&candidate, current, next)? {
                RuleResult::In(group) => return Ok(Some(group)),
                RuleResult::Full => return Ok(None),
                RuleResult::Other => {}
            }
        }
        for (id, selection) in self.groups.iter().filter(|(_, named)| named.all) {
            if selection.include_candidate(&candidate)? {
                let is_excluded = self.excluded.leave_out(&candidate)?;
                return Ok((!is_excluded).then_some(*id));
            }
        }
        Ok(None)
    }

    /// Whether a process would be in a group if it were not excluded from that group or from all.
    /// False for a process whose control group cannot be read.
    #[must_use]
    pub fn excludes(&self, proc: &Proc, pid: u32, stat: &Stat) -> bool {
        let candidate = Candidate::new(proc, pid, stat);
        let has = |selectors: &Selectors| selectors.select_candidate(&candidate).unwrap_or(false);
        let is_excluded = has(&self.excluded);
        self.selections()
            .filter(|of| of.names(&candidate).unwrap_or(false))
            .any(|of| is_excluded || has(&of.excluded))
    }

    /// Whether a process that was never checked may join a group when it is. True for a process
    /// that cannot be read.
    #[must_use]
    pub fn may_choose(&self, proc: &Proc, pid: u32, stat: &Stat) -> bool {
        let candidate = Candidate::new(proc, pid, stat);
        let has = |selectors: &Selectors| selectors.select_candidate(&candidate).unwrap_or(false);
        let mut selections = self.selections();
        !has(&self.excluded)
            && selections.any(|of| of.names(&candidate).unwrap_or(true) && !has(&of.excluded))
    }

    /// Processes named by id.
    pub fn named(&self) -> impl Iterator<Item = ProcessName> + '_ {
        let chosen = self.selections().map(|selection| &selection.chosen);
        chosen.flat_map(|chosen| chosen.pids.iter().copied())
    }

    /// Whether processes must be searched for, other than those named by id.
    #[must_use]
    pub fn need_search(&self) -> bool {
        self.any(Selection::need_search)
    }

    /// [`Selection::depends_on_names`] for any group.
    #[must_use]
    pub fn depends_on_names(&self) -> bool {
        !self.excluded.comms.is_empty() || self.any(Selection::depends_on_names)
    }

    /// Whether the group of a process can change without an event, for example by another control
    /// group.
    #[must_use]
    pub fn depends_on_cgroups(&self) -> bool {
        !self.rules.is_empty()
            || self.excluded.depend_on_cgroups()
            || self.any(Selection::depends_on_cgroups)
    }

    /// Whether the group of a process can change by the environment of a program that it executes.
    #[must_use]
    pub fn depends_on_environments(&self) -> bool {
        self.rules
            .iter()
            .any(|forming| forming.rule.by.is_taken_once())
    }

    fn selections(&self) -> impl Iterator<Item = &Selection> {
        let rules = self.rules.iter().map(|forming| &forming.rule.selection);
        self.groups
            .iter()
            .map(|(_, selection)| selection)
            .chain(rules)
    }

    fn any(&self, is_so: impl Fn(&Selection) -> bool) -> bool {
        self.selections().any(is_so)
    }
}

impl Selectors {
    /// Whether these exclude a process. Names that its user chose count too: excluding too much
    /// merges nothing that must not be merged.
    pub(super) fn leave_out(&self, candidate: &Candidate<'_>) -> proc::Result<bool> {
        if self.select_candidate(candidate)? {
            return Ok(true);
        }
        if self.units.is_empty() && self.libvirt.is_empty() {
            return Ok(false);
        }
        let path = candidate.cgroup()?;
        Ok(self.units.iter().any(|unit| unit.is_named_in(path))
            || self.libvirt.iter().any(|domain| domain.is_named_in(path)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::selection::By;

    fn selection(cgroup: Option<&str>) -> Selection {
        let mut selection = Selection {
            all: cgroup.is_none(),
            ..Selection::default()
        };
        let paths = cgroup.map(|path| path.parse().unwrap());
        selection.chosen.cgroups.extend(paths);
        selection
    }

    fn rule(name: &str, by: &str, cgroup: Option<&str>) -> Rule {
        Rule {
            name: name.to_owned(),
            by: By::read(by).unwrap(),
            selection: selection(cgroup),
            most: 2,
        }
    }

    fn group_of(grouping: &mut Grouping, root: &Path, cgroup: &str) -> Option<u32> {
        let folder = root.join("7");
        std::fs::create_dir_all(&folder).unwrap();
        let stat = "7 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 70 4096 1 0\n";
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        std::fs::write(folder.join("status"), "Uid:\t1\t33\t1\t1\n").unwrap();
        let proc = Proc::at(root);
        let stat = proc.stat(7).unwrap();
        let group = grouping.group_of(&proc, (7, &stat), None);
        group.unwrap().map(|group| group.0)
    }

    #[test]
    fn groups_that_name_come_first_then_rules_in_order_then_what_is_left() {
        let root = tempfile::tempdir().unwrap();
        let mut grouping = Grouping::default();
        let (rest, named) = (grouping.new_group(), grouping.new_group());
        let groups = vec![(rest, selection(None)), (named, selection(Some("/t/a")))];
        let rules = vec![
            (rule("tenants", "cgroup:2", Some("/t")), vec![]),
            (rule("users", "user", Some("/u")), vec![]),
        ];
        grouping.regroup(groups.clone(), rules.clone());
        let mut of = |path: &str| group_of(&mut grouping, root.path(), path);
        assert_eq!(of("/t/a/x"), Some(named.0));
        assert_eq!(of("/t/b"), Some(3));
        assert_eq!(of("/u"), Some(4));
        assert_eq!(of("/t/c/x"), Some(5));
        assert_eq!(of("/t/d"), None, "with nobody, rather than with strangers");
        assert_eq!(of("/t"), Some(rest.0), "no rule applies");
        assert_eq!(of("/t/b/y"), Some(3));
        let formed = grouping.take_formed();
        let of = |formed: &FormedGroup| {
            (
                formed.group.0,
                formed.rule.clone(),
                formed.value.text.clone(),
            )
        };
        let formed: Vec<_> = formed.iter().map(of).collect();
        let is = |group, rule: &str, value: &str| (group, rule.to_owned(), value.to_owned());
        assert_eq!(
            formed,
            [
                is(3, "tenants", "/t/b"),
                is(4, "users", "33"),
                is(5, "tenants", "/t/c")
            ]
        );
        assert!(grouping.take_formed().is_empty());
        let left_out = grouping.take_left_out();
        assert_eq!((left_out.len(), left_out[0].2.text.as_str()), (1, "/t/d"));
        // A dissolved group makes room, and a group that must stay stays.
        grouping.dissolve(GroupId(3));
        assert_eq!(group_of(&mut grouping, root.path(), "/t/d"), Some(6));
        let value = formed_value("/t/c");
        let rules = rules.into_iter().zip([vec![(value, GroupId(5))], vec![]]);
        grouping.regroup(groups, rules.map(|((rule, _), of)| (rule, of)).collect());
        assert_eq!(group_of(&mut grouping, root.path(), "/t/c"), Some(5));
        assert_eq!(group_of(&mut grouping, root.path(), "/t/d"), Some(7));
    }

    fn formed_value(path: &str) -> Value {
        Value {
            text: path.to_owned(),
            cgroup: Some(path.to_owned()),
        }
    }

    #[test]
    fn who_is_left_alone_forms_no_group() {
        let root = tempfile::tempdir().unwrap();
        let mut grouping = Grouping::default();
        grouping.regroup(vec![], vec![(rule("tenants", "cgroup:1", None), vec![])]);
        assert!(grouping.need_search() && grouping.depends_on_cgroups());
        grouping.exclude(selection(Some("/a")).chosen, &Proc::at(root.path()));
        assert_eq!(group_of(&mut grouping, root.path(), "/a/x"), None);
        assert!(grouping.take_formed().is_empty());
        assert_eq!(group_of(&mut grouping, root.path(), "/b"), Some(1));
    }

    #[test]
    fn a_process_that_may_be_chosen_is_distinguished_from_excluded_and_unknown_ones() {
        let root = tempfile::tempdir().unwrap();
        let mut grouping = Grouping::default();
        let mut named = selection(Some("/a"));
        named.excluded = selection(Some("/a/not")).chosen;
        let named = vec![(GroupId(1), named)];
        let under_t = (rule("tenants", "cgroup:2", Some("/t")), vec![]);
        grouping.regroup(named.clone(), vec![under_t]);
        grouping.exclude(selection(Some("/t/x")).chosen, &Proc::at(root.path()));
        let chosen = |grouping: &mut Grouping, cgroup: &str| {
            let _group = group_of(grouping, root.path(), cgroup);
            let proc = Proc::at(root.path());
            let stat = proc.stat(7).unwrap();
            let may = grouping.may_choose(&proc, 7, &stat);
            (may, grouping.excludes(&proc, 7, &stat))
        };
        for (cgroup, is) in [
            ("/a", (true, false)),
            ("/a/not", (false, true)),
            ("/t/y", (true, false)),
            ("/t/x", (false, true)),
            ("/elsewhere", (false, false)),
        ] {
            assert_eq!(chosen(&mut grouping, cgroup), is, "{cgroup}");
        }
        // A rule without named processes is for all.
        grouping.regroup(named, vec![(rule("users", "user", None), vec![])]);
        assert_eq!(chosen(&mut grouping, "/elsewhere"), (true, false));
        std::fs::remove_file(root.path().join("7/cgroup")).unwrap();
        let proc = Proc::at(root.path());
        let stat = proc.stat(7).unwrap();
        assert!(grouping.may_choose(&proc, 7, &stat), "it is not known");
    }

    #[test]
    fn what_is_left_alone_is_kept_once_and_as_long_as_it_lives() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        let mut grouping = Grouping::default();
        let process = |pid: u32| {
            let folder = root.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            let stat =
                format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 4096 1 0\n");
            std::fs::write(folder.join("stat"), stat).unwrap();
            folder
        };
        for pid in 1..=100_u32 {
            let folder = process(pid);
            let mut selectors = selection(Some("/a")).chosen;
            selectors.pids = vec![format!("{pid}@{pid}").parse().unwrap()];
            selectors.comms = vec!["y".parse().unwrap()];
            grouping.exclude(selectors, &proc);
            std::fs::remove_dir_all(folder).unwrap();
        }
        let lives = process(101);
        let id = |text: &str| Selectors {
            pids: vec![text.parse().unwrap()],
            ..Selectors::default()
        };
        grouping.exclude(id("101@101"), &proc);
        grouping.exclude(id("101@7"), &proc);
        let kept = &grouping.excluded;
        let pids: Vec<String> = kept.pids.iter().map(ToString::to_string).collect();
        assert_eq!(pids, ["101@101"]);
        assert_eq!((kept.cgroups.len(), kept.comms.len()), (1, 1));
        drop(lives);
    }
}

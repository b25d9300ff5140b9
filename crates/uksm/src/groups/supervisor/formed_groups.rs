//! Groups that rules form: they come and go while the supervisor runs.
//!
//! # Problem
//! A group begins with its first process, which waits meanwhile, and ends when no process is left.
//! A worker for each process that runs for a moment would cost more than it saves. Frames of an
//! earlier supervisor must find their group again.
//!
//! # Approach
//! The search for processes reports which groups were formed. Each gets a worker, and its processes
//! are attached as soon as the worker has a domain, as in any group. A group whose last space has
//! been gone for the time that its rule sets is dissolved (`turns/formation.rs`). Its spaces and
//! its worker are gone then, so nothing has to be unmerged. Domains of formed groups that systemd
//! has stored are kept for [`KEPT`] after the start.
//!
//! # Units
//! Instants of the monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use uksm_linux::selection::{GroupId, RuleWithGroups, Value};

use crate::config::plan::Plan;
use crate::config::rule_plan::RulePlan;
use crate::groups::supervisor::worker_process::WorkerProcess;

/// By this time after the start, most groups of existing processes have been formed.
const KEPT: Duration = Duration::from_secs(60);

/// Rules, and the state of the groups that they form.
#[derive(Debug, Default)]
pub(super) struct FormedGroups {
    /// In the order in which they are tried.
    pub(super) rules: Vec<RulePlan>,
    /// Groups without processes, and the time at which each is due to be dissolved.
    pub(super) deserted: BTreeMap<GroupId, Instant>,
    /// Domains of an earlier supervisor, by group, and the end of the time for which they are kept.
    pub(super) kept: BTreeMap<String, OwnedFd>,
    pub(super) kept_until: Option<Instant>,
    /// Rules for which the limit of groups was logged.
    pub(super) full: BTreeSet<String>,
}

impl FormedGroups {
    /// A state with these rules and no groups.
    pub(super) fn new(rules: Vec<RulePlan>) -> FormedGroups {
        FormedGroups {
            rules,
            ..FormedGroups::default()
        }
    }

    /// Keeps those of these domains that groups of the rules may have had; answers the others.
    pub(super) fn keep(&mut self, kept: BTreeMap<String, OwnedFd>) -> BTreeMap<String, OwnedFd> {
        let is_formed = |name: &String| {
            let rule = name.split_once('@').map(|(rule, _)| rule);
            self.rules.iter().any(|plan| Some(&*plan.rule.name) == rule)
        };
        let (formed, others) = kept.into_iter().partition(|(name, _)| is_formed(name));
        self.kept = formed;
        self.kept_until = (!self.kept.is_empty()).then(|| Instant::now() + KEPT);
        others
    }

    /// Whether it keeps domains for groups that may be formed.
    pub(super) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The rules, each with its groups.
    pub(super) fn grouping(&self, workers: &[WorkerProcess]) -> Vec<RuleWithGroups> {
        let with_groups = |plan: &RulePlan| {
            let groups = workers.iter().filter_map(|worker| {
                let (rule, value) = worker.plan.formed.as_ref()?;
                (*rule == plan.rule.name).then(|| (value.clone(), worker.id))
            });
            (plan.rule.clone(), groups.collect())
        };
        self.rules.iter().map(with_groups).collect()
    }

    /// The plan of a formed group by these rules; none if they no longer form it.
    pub(super) fn anew(&self, (rule, value): &(String, Value), rules: &[RulePlan]) -> Option<Plan> {
        let of = |rules: &[RulePlan]| rules.iter().find(|plan| plan.rule.name == *rule).cloned();
        let (old, new) = (of(&self.rules)?, of(rules)?);
        // With another `by`, the same value would mean another group.
        let is_same = old.rule.by.to_string() == new.rule.by.to_string();
        is_same.then(|| new.group(value))
    }

    /// Time of the next work.
    pub(super) fn next(&self) -> Option<Instant> {
        let deserted = self.deserted.values().copied();
        deserted.chain(self.kept_until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::plans::tests::Host;

    fn rules(text: &str) -> Vec<RulePlan> {
        Host::new().plans(text).unwrap().rules
    }

    #[test]
    fn domains_that_formed_groups_may_have_had_are_kept() {
        let mut formed = FormedGroups::new(rules("[rule.t]\nby = \"user\"\n"));
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let kept = ["t@7", "u@7", "t", "web"].map(|name| (name.to_owned(), file()));
        let others = formed.keep(kept.into());
        assert_eq!(others.into_keys().collect::<Vec<_>>(), ["t", "u@7", "web"]);
        assert!(formed.kept.contains_key("t@7") && formed.has_kept());
        assert!(formed.next().is_some(), "until they are let go");
        let mut none = FormedGroups::new(vec![]);
        assert_eq!(none.keep(BTreeMap::new()).len(), 0);
        assert_eq!(none.next(), None, "nothing to wait for");
    }

    #[test]
    fn after_a_reload_a_formed_group_is_what_its_rule_says_if_that_is_by_the_same() {
        let old = "[rule.t]\nby = \"user\"\n";
        let formed = FormedGroups::new(rules(old));
        let value = Value {
            text: "7".to_owned(),
            cgroup: None,
        };
        let of_t = ("t".to_owned(), value.clone());
        let anew = |of: &(String, Value), text: &str| formed.anew(of, &rules(text));
        let plan = anew(&of_t, &format!("{old}governor = \"low\"\n")).unwrap();
        assert_eq!(
            (plan.name.as_str(), plan.resolved.daemon.governor.name()),
            ("t@7", "low")
        );
        assert_eq!(plan.formed, Some(of_t.clone()));
        assert!(anew(&of_t, "[rule.t]\nby = \"cgroup:1\"\n").is_none());
        assert!(anew(&of_t, "[rule.u]\nby = \"user\"\n").is_none());
        assert!(anew(&("u".to_owned(), value), old).is_none());
    }
}

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
//! been gone for the time that its rule sets is dissolved. Its spaces and
//! its worker are gone then, so nothing has to be unmerged. Domains of formed groups that systemd
//! has stored are kept for [`KEPT_FOR`] after the start.
//!
//! # Units
//! Instants of the monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use uksm_linux::selection::{FormedGroup, GroupId, RuleWithGroups, Value};
use uksm_policy::report::counted;

use crate::config::plan::Plan;
use crate::config::plans::Plans;
use crate::config::rule_plan::RulePlan;
use crate::groups::supervisor::fd_store;
use crate::groups::supervisor::task::END_TIMEOUT;
use crate::groups::supervisor::turns::process_discovery::ProcessDiscovery;
use crate::groups::supervisor::worker_factory::WorkerFactory;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::groups::supervisor::workers::Workers;
use crate::hash_seed;

/// By this time after the start, most groups of existing processes have been formed.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Rules, and the state of the groups that they form.
#[derive(Debug, Default)]
pub(in crate::groups::supervisor) struct FormedGroups {
    /// In the order in which they are tried.
    rules: Vec<RulePlan>,
    /// Groups without processes, and the time at which each is due to be dissolved.
    deserted: BTreeMap<GroupId, Instant>,
    /// Domains of an earlier supervisor, by group, and the end of the time for which they are kept.
    kept: BTreeMap<String, OwnedFd>,
    kept_until: Option<Instant>,
    /// Rules for which the limit of groups was logged.
    full: BTreeSet<String>,
}

/// The effect of dissolving empty groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::groups::supervisor) enum DissolveResult {
    /// No group was dissolved.
    Nothing,
    /// Some groups were dissolved.
    Groups,
    /// The same, and a full rule can form groups again.
    GroupsOfFullRule,
}

impl FormedGroups {
    /// A state with these rules and no groups.
    pub(in crate::groups::supervisor) fn new(rules: Vec<RulePlan>) -> FormedGroups {
        FormedGroups {
            rules,
            ..FormedGroups::default()
        }
    }

    /// Keeps those of these domains that groups of the rules may have had; answers the others.
    pub(in crate::groups::supervisor) fn keep(
        &mut self,
        kept: BTreeMap<String, OwnedFd>,
    ) -> BTreeMap<String, OwnedFd> {
        let is_formed = |name: &String| {
            let rule = name.split_once('@').map(|(rule, _)| rule);
            self.rules.iter().any(|plan| Some(&*plan.rule.name) == rule)
        };
        let (formed, others) = kept.into_iter().partition(|(name, _)| is_formed(name));
        self.kept = formed;
        self.kept_until = (!self.kept.is_empty()).then(|| Instant::now() + KEPT_FOR);
        others
    }

    /// Whether it keeps domains for groups that may be formed.
    pub(in crate::groups::supervisor) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The rules, each with its groups.
    pub(in crate::groups::supervisor) fn grouping(
        &self,
        workers: &[WorkerProcess],
    ) -> Vec<RuleWithGroups> {
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
    pub(in crate::groups::supervisor) fn anew(
        &self,
        (rule, value): &(String, Value),
        rules: &[RulePlan],
    ) -> Option<Plan> {
        let of = |rules: &[RulePlan]| rules.iter().find(|plan| plan.rule.name == *rule).cloned();
        let (old, new) = (of(&self.rules)?, of(rules)?);
        // With another `by`, the same value would mean another group.
        let is_same = old.rule.by.to_string() == new.rule.by.to_string();
        is_same.then(|| new.group(value))
    }

    /// Replaces the rules.
    pub(in crate::groups::supervisor) fn set_rules(&mut self, rules: Vec<RulePlan>) {
        self.rules = rules;
    }

    /// Gives each newly formed group a worker, and warns of processes that were left out. While a
    /// configuration with these rules is about to take effect (`planned`), no group of a removed
    /// rule is formed. Answers whether the set of groups has changed.
    pub(in crate::groups::supervisor) fn turn(
        &mut self,
        workers: &mut Workers,
        discovery: &mut ProcessDiscovery,
        factory: &WorkerFactory,
        planned: Option<&Plans>,
    ) -> bool {
        let grouping = discovery.processes_mut().grouping();
        let formed = grouping.take_formed();
        let left_out = grouping.take_left_out();
        for (rule, most, value) in left_out {
            if self.full.insert(rule.clone()) {
                tracing::warn!(
                    "rule {rule}: has formed its maximum of {}: processes of {} and others are \
                     in no group: raise most, or exclude some",
                    counted(most as u64, "group", "groups"),
                    value.text
                );
            }
        }
        let has_formed = !formed.is_empty();
        for FormedGroup { group, rule, value } in formed {
            let of = (rule, value);
            // It would be ended before that change is done, and the next one, too.
            let goes = planned.is_some_and(|plans| self.anew(&of, &plans.rules).is_none());
            let (rule, value) = of;
            let mut rules = self.rules.iter();
            let rule = rules.find(|plan| plan.rule.name == rule && !goes);
            let Some(rule) = rule else {
                // Its processes are checked again after the change of groups.
                discovery.processes_mut().grouping().dissolve(group);
                continue;
            };
            let plan = rule.group(&value);
            let name = plan.name.clone();
            if workers.iter().any(|worker| worker.plan.name == name) {
                // A collision of SHA-256.
                tracing::warn!("group {name} exists already: {} gets no group", value.text);
                continue;
            }
            let kept = self.kept.remove(&name);
            match factory.worker(group, plan, kept) {
                Ok(worker) => {
                    tracing::info!("group {name}: formed by {}", worker.plan.origin);
                    workers.push(worker);
                    self.deserted.remove(&group);
                }
                Err(error) => {
                    tracing::warn!("group {name}: {error:#}");
                    // Its next process forms it again.
                    discovery.processes_mut().grouping().dissolve(group);
                }
            }
        }
        has_formed
    }

    /// Dissolves groups that have been empty for long, when their workers have ended.
    pub(in crate::groups::supervisor) fn dissolve_deserted(
        &mut self,
        workers: &mut Workers,
        discovery: &mut ProcessDiscovery,
    ) -> DissolveResult {
        let now = Instant::now();
        if self.kept_until.is_some_and(|until| until <= now) {
            self.kept_until = None;
            for (group, file) in std::mem::take(&mut self.kept) {
                fd_store::give_up(&group, file);
            }
        }
        let mut dissolved = DissolveResult::Nothing;
        for group in self.deserted_for_long(workers, discovery, now) {
            self.deserted.remove(&group);
            let Some(mut worker) = workers.remove(group) else {
                continue;
            };
            tracing::info!("group {}: has no processes: dissolved", worker.plan.name);
            worker.drop_domain();
            let socket = &worker.plan.resolved.daemon.socket;
            hash_seed::forget(&hash_seed::of_group(socket, &worker.plan.name));
            let formed = worker.plan.formed.as_ref();
            if formed.is_some_and(|(rule, _)| self.full.remove(rule)) {
                dissolved = DissolveResult::GroupsOfFullRule;
            } else if dissolved == DissolveResult::Nothing {
                dissolved = DissolveResult::Groups;
            }
            discovery.dissolve(group);
        }
        dissolved
    }

    /// The groups that have been empty for long, and whose workers have ended; ends the others'
    /// workers.
    fn deserted_for_long(
        &mut self,
        workers: &mut [WorkerProcess],
        discovery: &ProcessDiscovery,
        now: Instant,
    ) -> Vec<GroupId> {
        let mut over = Vec::new();
        for worker in workers {
            let Some((rule, _)) = &worker.plan.formed else {
                continue;
            };
            let deserted = &mut self.deserted;
            if !worker.handover.is_empty() {
                if deserted.remove(&worker.id).is_some() {
                    // The worker may have been ended.
                    worker.allow_start();
                }
                continue;
            }
            if worker.is_held() {
                over.push(worker.id);
                continue;
            }
            let rule = self.rules.iter().find(|plan| plan.rule.name == *rule);
            let stay = rule.map_or(0, |plan| plan.dissolve_after);
            let stay = Duration::from_nanos(stay);
            let until = *deserted.entry(worker.id).or_insert(now + stay);
            if until > now {
                continue;
            }
            // A process that cannot be attached, or waits for that, counts as in the group.
            if discovery
                .processes()
                .failures()
                .any(|(_, of, _)| of == worker.id)
            {
                deserted.insert(worker.id, now + stay);
                continue;
            }
            worker.end();
            match worker.has_ended() {
                true => over.push(worker.id),
                // Its exit is noted when it comes.
                false => _ = deserted.insert(worker.id, now + END_TIMEOUT),
            }
        }
        over
    }

    /// Forgets the state of removed groups, and which rules are full.
    pub(in crate::groups::supervisor) fn forget_gone(&mut self, workers: &[WorkerProcess]) {
        let is_there = |group: &GroupId| workers.iter().any(|worker| worker.id == *group);
        self.deserted.retain(|group, _| is_there(group));
        self.full.clear();
    }

    /// Time of the next work.
    pub(in crate::groups::supervisor) fn next(&self) -> Option<Instant> {
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
    fn reload_keeps_a_formed_group_if_its_rule_has_the_same_by() {
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

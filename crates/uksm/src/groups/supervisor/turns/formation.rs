//! Formation of groups by rules, and their dissolution when they are empty.

use std::time::{Duration, Instant};

use uksm_linux::selection::{FormedGroup, GroupId};
use uksm_policy::report::counted;

use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::fd_store;
use crate::groups::supervisor::task::END_TIMEOUT;
use crate::seed;

impl Supervisor<'_> {
    /// Gives each formed group a worker, and warns of processes that were left out. While rules are
    /// about to change, no group of a removed rule is formed.
    pub(in crate::groups::supervisor) fn form_groups(&mut self) {
        let grouping = self.processes.grouping();
        let formed = grouping.take_formed();
        let left_out = grouping.take_left_out();
        for (rule, most, value) in left_out {
            if self.formed.full.insert(rule.clone()) {
                tracing::warn!(
                    "rule {rule}: has formed its maximum of {}: processes of {} and others are \
                     in no group: raise most, or exclude some",
                    counted(most as u64, "group", "groups"),
                    value.text
                );
            }
        }
        if formed.is_empty() {
            return;
        }
        for FormedGroup { group, rule, value } in formed {
            let of = (rule, value);
            // It would be ended before that change is done, and the next one, too.
            let goes = self.task.as_ref().is_some_and(|task| match task.plans() {
                Some(plans) => self.formed.anew(&of, &plans.rules).is_none(),
                None => false,
            });
            let (rule, value) = of;
            let mut rules = self.formed.rules.iter();
            let rule = rules.find(|plan| plan.rule.name == rule && !goes);
            let Some(rule) = rule else {
                // Its processes are checked again after the change of groups.
                self.processes.grouping().dissolve(group);
                continue;
            };
            let plan = rule.group(&value);
            let name = plan.name.clone();
            if self.workers.iter().any(|worker| worker.plan.name == name) {
                // A collision of SHA-256.
                tracing::warn!("group {name} exists already: {} gets no group", value.text);
                continue;
            }
            let kept = self.formed.kept.remove(&name);
            match self.new_worker_of(group, plan, kept) {
                Ok(worker) => {
                    tracing::info!("group {name}: formed by {}", worker.plan.origin);
                    self.workers.push(worker);
                    self.formed.deserted.remove(&group);
                }
                Err(error) => {
                    tracing::warn!("group {name}: {error:#}");
                    // Its next process forms it again.
                    self.processes.grouping().dissolve(group);
                }
            }
        }
        self.share_anew();
        self.start_due_workers();
    }

    /// Dissolves groups that have been empty for long, when their workers have ended.
    pub(in crate::groups::supervisor) fn dissolve_deserted(&mut self) {
        let now = Instant::now();
        if self.formed.kept_until.is_some_and(|until| until <= now) {
            self.formed.kept_until = None;
            for (group, file) in std::mem::take(&mut self.formed.kept) {
                fd_store::give_up(&group, file);
            }
        }
        let mut over = Vec::new();
        for worker in &mut self.workers {
            let Some((rule, _)) = &worker.plan.formed else {
                continue;
            };
            let deserted = &mut self.formed.deserted;
            if !worker.handover.is_empty() {
                if deserted.remove(&worker.id).is_some() {
                    // The worker may have been ended.
                    worker.go_on();
                }
                continue;
            }
            if worker.is_held() {
                over.push(worker.id);
                continue;
            }
            let rule = self
                .formed
                .rules
                .iter()
                .find(|plan| plan.rule.name == *rule);
            let stay = rule.map_or(0, |plan| plan.dissolve_after);
            let stay = Duration::from_nanos(stay);
            let until = *deserted.entry(worker.id).or_insert(now + stay);
            if until > now {
                continue;
            }
            // A process that cannot be attached, or waits for that, counts as in the group.
            if self.processes.failures().any(|(_, of, _)| of == worker.id) {
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
        if over.is_empty() {
            return;
        }
        let mut is_room = false;
        for group in over {
            self.formed.deserted.remove(&group);
            let Some(at) = self.workers.iter().position(|worker| worker.id == group) else {
                continue;
            };
            let mut worker = self.workers.remove(at);
            tracing::info!("group {}: has no processes: dissolved", worker.plan.name);
            worker.drop_domain();
            let socket = &worker.plan.resolved.daemon.socket;
            seed::forget(&seed::of_group(socket, &worker.plan.name));
            let formed = worker.plan.formed.as_ref();
            is_room |= formed.is_some_and(|(rule, _)| self.formed.full.remove(rule));
            self.attachable.remove(&group);
            self.processes.dissolve(group);
        }
        if is_room {
            // Processes that were left out are checked again.
            self.regroup();
        } else {
            self.share_anew();
        }
    }

    /// Forgets the state of removed groups, and which rules are full.
    pub(in crate::groups::supervisor) fn forget_gone(&mut self) {
        let workers = &self.workers;
        let is_there = |group: &GroupId| workers.iter().any(|worker| worker.id == *group);
        self.formed.deserted.retain(|group, _| is_there(group));
        self.formed.full.clear();
    }
}

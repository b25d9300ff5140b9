//! The loop between guard, targets and members: one turn a second.
//!
//! # Problem
//! Freed memory changes all the time; members answer late or not at all; groups come and go when a
//! configuration is read again.
//!
//! # Approach
//! A turn takes the figures of freed memory, reads the last report of each member's thread, calls
//! guard and targets, and leaves orders with the threads. It never waits. Freed memory counts for
//! [`FREED_VALIDITY_NS`] if a group's worker does not answer: its frames still exist. Until a new
//! member was seen, or could not be, no member of its pool is given more, because its size is
//! unknown. A member that is removed from the configuration gets its original limit back.
//!
//! # Units
//! Bytes, [`Nanos`].
//!
//! # Source
//! Euro-Par'11 §3.1, §3.2.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cgroup_tree::CgroupTree;
use crate::contribution::contributions;
use crate::event::Event;
use crate::guard::{Guard, Marks, Nanos, Observation, Phase};
use crate::host;
use crate::member_thread::{MemberReport, MemberThread};
use crate::restore_journal::RestoreJournal;
use crate::settings::{Group, Member, Scope};
use crate::size_control_actuator::actuator;
use crate::stale_limits::StaleLimits;
use crate::status::{GroupStatus, MemberStatus, RedistributionStatus};
use crate::targets;

const SECOND: Nanos = 1_000_000_000;

/// The report of a group's freed memory is valid for this time.
const FREED_VALIDITY_NS: Nanos = 60 * SECOND;
/// A member that has more than asked for this time is reported.
const LATE_AFTER_NS: Nanos = 30 * SECOND;

/// The shortest time between two reported failures of a member.
const MIN_FAILURE_GAP_NS: Nanos = 60 * SECOND;
/// The longest wait at the end for members to put back the original values.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The memory freed by each group, by name. For a missing group it is unknown now.
pub type Freed = BTreeMap<String, FreedBy>;

/// The memory freed by the merging of one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreedBy {
    /// Bytes, of all its processes.
    pub bytes: u64,
    /// The part of each process, in any unit: only the proportion counts.
    pub by_process: BTreeMap<u32, u64>,
    /// Bytes of pages to which uksm gave their own copies so far, since the group began.
    pub copied: u64,
}

/// The locations of files.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The process file system.
    pub proc: PathBuf,
    /// The control groups of members.
    pub cgroups: CgroupTree,
    /// The file that keeps the values before the first change, for the next daemon if this one is
    /// killed.
    pub before: PathBuf,
}

/// Redistribution of all groups.
#[derive(Debug)]
pub struct Redistribution {
    groups: Vec<GroupState>,
    guard: Guard,
    roots: Roots,
    journal: RestoreJournal,
    /// None before the first configuration.
    stale_limits: Option<StaleLimits>,
    /// Events to return from the next turn.
    pending: Vec<Event>,
    available: u64,
    /// [`FreedBy::copied`] of each group at the last turn, and the sum of its growth.
    copied: BTreeMap<String, u64>,
    copied_by_us: u64,
}

/// One group.
#[derive(Debug)]
struct GroupState {
    settings: Group,
    members: Vec<MemberState>,
    /// Its freed memory, and the time of that report.
    freed: Option<(Nanos, FreedBy)>,
}

/// One member.
#[derive(Debug)]
struct MemberState {
    settings: Member,
    /// None if its thread could not be started.
    thread: Option<MemberThread>,
    /// The size that was asked last; none before it was seen, and while it is gone.
    asked: Option<u64>,
    freed: u64,
    wanted: u64,
    /// The error of its last report, if it could not be seen or changed.
    error: Option<String>,
    /// The error of the last event, and the time of the last failure event.
    reported: Option<String>,
    failed_at: Option<Nanos>,
    /// The report of its thread at the beginning of this turn.
    report: MemberReport,
    late: Option<LateMember>,
}

/// A member that has more than was asked, and since when.
#[derive(Debug, Clone, Copy)]
struct LateMember {
    since: Nanos,
    is_reported: bool,
}

impl Redistribution {
    /// A redistribution without groups, whose guard has these marks.
    #[must_use]
    pub fn new(roots: Roots, marks: Marks) -> Redistribution {
        let (journal, error) = RestoreJournal::of(&roots.before);
        let error = error.map(|error| Event::Unkept {
            error: error.to_string(),
        });
        Redistribution {
            journal,
            stale_limits: None,
            pending: error.into_iter().collect(),
            groups: Vec::new(),
            guard: Guard::new(marks),
            roots,
            available: 0,
            copied: BTreeMap::new(),
            copied_by_us: 0,
        }
    }

    /// Sets the groups. Unchanged members continue. The first time, changes that an earlier daemon
    /// left are undone at places that are no members any more.
    pub fn follow(&mut self, groups: &[Group]) {
        let members = groups.iter().flat_map(|group| &group.members);
        let places: Vec<_> = members.map(|member| &member.place).collect();
        let journal = &self.journal;
        self.stale_limits
            .get_or_insert_with(|| StaleLimits::of(journal, &places))
            .leave(&places);
        if self.groups.len() == groups.len()
            && self
                .groups
                .iter()
                .zip(groups)
                .all(|(own, new)| own.settings == *new)
        {
            return;
        }
        let mut old = std::mem::take(&mut self.groups);
        self.groups = groups
            .iter()
            .map(|group| take_over(group, &mut old, (&self.roots.cgroups, &self.journal)))
            .collect();
    }

    /// Whether there are no groups, and nothing to put back.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
            && self.pending.is_empty()
            && self
                .stale_limits
                .as_ref()
                .is_some_and(StaleLimits::is_empty)
    }

    /// Undoes the changes that an earlier daemon left, and waits for that a bounded time: for a
    /// daemon without redistribution.
    #[must_use]
    pub fn put_back_only(roots: Roots) -> Vec<Event> {
        let mut own = Redistribution::new(roots, Marks::standard());
        own.follow(&[]);
        let mut events = std::mem::take(&mut own.pending);
        if let Some(stale_limits) = &mut own.stale_limits {
            let deadline = Instant::now() + RELEASE_TIMEOUT;
            events.extend(stale_limits.await_all(deadline, (&own.roots.cgroups, &own.journal)));
        }
        events
    }

    /// One turn. Returns the events; never waits.
    pub fn turn(&mut self, now: Nanos, freed: &Freed) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.pending);
        if let Some(stale_limits) = &mut self.stale_limits {
            events.extend(stale_limits.turn(now, (&self.roots.cgroups, &self.journal)));
        }
        if self.groups.is_empty() {
            return events;
        }
        let seen = host::observe(&self.roots.proc).map_err(|error| error.to_string());
        let seen = seen.map(|seen| self.without_our_copies(seen, freed));
        self.available = seen.as_ref().map_or(0, |seen| seen.available);
        let moved = self
            .guard
            .observe(now, seen.as_ref().map_err(String::as_str));
        events.extend(moved.map(Event::Guard));
        for group in &mut self.groups {
            group.take_in(now, freed, &mut events);
        }
        for pool in self.pools() {
            self.decide(&pool, &mut events);
        }
        events
    }

    /// What was observed, without the copies that uksm makes when it gives frames back: they take
    /// the place of the frames.
    fn without_our_copies(&mut self, seen: Observation, freed: &Freed) -> Observation {
        for (name, by) in freed {
            let before = self.copied.insert(name.clone(), by.copied);
            self.copied_by_us += by.copied.saturating_sub(before.unwrap_or(by.copied));
        }
        let copied = seen.copied.map(|all| all.saturating_sub(self.copied_by_us));
        Observation { copied, ..seen }
    }

    /// Groups, by index, that divide their freed memory together.
    fn pools(&self) -> Vec<Vec<usize>> {
        let of_all = |at: &usize| self.groups[*at].settings.scope == Scope::All;
        let (all, single): (Vec<usize>, Vec<usize>) = (0..self.groups.len()).partition(of_all);
        let single = single.into_iter().map(|at| vec![at]);
        single.chain((!all.is_empty()).then_some(all)).collect()
    }

    fn decide(&mut self, pool: &[usize], events: &mut Vec<Event>) {
        let Some(&first) = pool.first() else {
            return;
        };
        // Groups of one scope have one rule: the configuration is refused otherwise.
        let rule = self.groups[first].settings.rule;
        let groups = || pool.iter().map(|&at| &self.groups[at]);
        let members: Vec<targets::PoolMember> =
            groups().flat_map(GroupState::pool_members).collect();
        let phase = match self.guard.phase() {
            // The size of a member that was never seen, and the memory it freed, are unknown.
            Phase::Giving if !groups().all(GroupState::is_seen) => Phase::Holding,
            phase => phase,
        };
        let asked = targets::asked(rule, &members, phase);
        let due = targets::due(rule, &members);
        let mut sizes = asked.into_iter().zip(due);
        for &at in pool {
            let group = &mut self.groups[at];
            for member in &mut group.members {
                if let Some((asked, due)) = sizes.next() {
                    member.wanted = due;
                    events.extend(member.ask(&group.settings.name, asked));
                }
            }
        }
    }

    /// Undoes all changes, also those that an earlier daemon left, and waits for that a bounded
    /// time.
    pub fn release(&mut self) -> Vec<Event> {
        let stale_limits = self.stale_limits.take();
        let groups = std::mem::take(&mut self.groups);
        let members = || {
            groups
                .iter()
                .flat_map(|group| group.members.iter().map(move |m| (group, m)))
        };
        for (_, member) in members() {
            member.thread.iter().for_each(MemberThread::release);
        }
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        let mut events = Vec::new();
        for (group, member) in members() {
            let put_back = member
                .thread
                .as_ref()
                .map(|thread| thread.await_release(deadline));
            if let Some(Err(error)) = put_back {
                events.push(Event::Failed {
                    group: group.settings.name.clone(),
                    member: member.settings.name.clone(),
                    error: format!("the original value is not restored: {error}"),
                });
            }
        }
        // Before the first configuration, all entries are an earlier daemon's.
        let mut stale_limits = stale_limits.unwrap_or_else(|| StaleLimits::of(&self.journal, &[]));
        events.extend(stale_limits.await_all(deadline, (&self.roots.cgroups, &self.journal)));
        events
    }

    /// The status of all groups.
    #[must_use]
    pub fn status(&self) -> RedistributionStatus {
        RedistributionStatus {
            phase: self.guard.phase(),
            reason: self.guard.reason().to_owned(),
            available_bytes: self.available,
            groups: self.groups.iter().map(GroupState::status).collect(),
        }
    }
}

/// The new state of a group, with its old members.
fn take_over(
    group: &Group,
    old: &mut [GroupState],
    own: (&CgroupTree, &RestoreJournal),
) -> GroupState {
    let mut before = old.iter_mut().find(|own| own.settings.name == group.name);
    let freed = before.as_ref().and_then(|own| own.freed.clone());
    let members = group.members.iter().map(|member| {
        let kept = before.as_mut().and_then(|own| {
            let at = own.members.iter().position(|held| {
                held.settings.name == member.name && held.settings.place == member.place
            })?;
            Some(own.members.remove(at))
        });
        let kept = kept.map(|held| MemberState {
            asked: held
                .asked
                .map(|asked| asked.clamp(member.base, member.ceiling)),
            settings: member.clone(),
            ..held
        });
        kept.unwrap_or_else(|| MemberState::new(member, own))
    });
    GroupState {
        members: members.collect(),
        settings: group.clone(),
        freed,
    }
}

impl GroupState {
    /// Takes its freed memory, and the reports of its members.
    fn take_in(&mut self, now: Nanos, freed: &Freed, events: &mut Vec<Event>) {
        if let Some(freed) = freed.get(&self.settings.name) {
            self.freed = Some((now, freed.clone()));
        }
        self.freed
            .take_if(|(reported, _)| now.saturating_sub(*reported) >= FREED_VALIDITY_NS);
        for member in &mut self.members {
            member.take_in(now, &self.settings.name, events);
        }
        let nothing = FreedBy::default();
        let freed = self.freed.as_ref().map_or(&nothing, |(_, freed)| freed);
        let processes: Vec<&[u32]> = self.members.iter().map(MemberState::processes).collect();
        let each = contributions(freed.bytes, &freed.by_process, &processes);
        for (member, freed) in self.members.iter_mut().zip(each) {
            member.freed = freed;
        }
    }

    /// Whether each member has been seen, or could not be.
    fn is_seen(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.thread.is_none() || member.report.done > 0)
    }

    fn pool_members(&self) -> Vec<targets::PoolMember> {
        let settings = &self.settings;
        let members = self.members.iter();
        members
            .map(|member| member.pool_member(settings.step, settings.least))
            .collect()
    }

    fn status(&self) -> GroupStatus {
        let members: Vec<MemberStatus> = self.members.iter().map(MemberState::status).collect();
        GroupStatus {
            name: self.settings.name.clone(),
            rule: self.settings.rule,
            scope: self.settings.scope,
            freed_bytes: self.freed.as_ref().map_or(0, |(_, freed)| freed.bytes),
            given_bytes: members.iter().map(|member| member.given_bytes).sum(),
            members,
        }
    }
}

impl MemberState {
    fn new(settings: &Member, (tree, journal): (&CgroupTree, &RestoreJournal)) -> MemberState {
        let (thread, error) = match MemberThread::new(actuator(&settings.place, tree, journal)) {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(format!("cannot start its thread: {error}"))),
        };
        MemberState {
            settings: settings.clone(),
            thread,
            asked: None,
            freed: 0,
            wanted: settings.base,
            error,
            reported: None,
            failed_at: None,
            report: MemberReport::default(),
            late: None,
        }
    }

    fn real(&self) -> Option<u64> {
        Some(self.report.sizes.as_ref()?.real)
    }

    fn processes(&self) -> &[u32] {
        let sizes = self.report.sizes.as_ref();
        sizes.map_or(&[], |sizes| &sizes.processes)
    }

    fn take_in(&mut self, now: Nanos, group: &str, events: &mut Vec<Event>) {
        let Some(thread) = &self.thread else {
            return;
        };
        self.report = thread.report();
        let report = self.report.clone();
        let member = || (group.to_owned(), self.settings.name.clone());
        // A monitor may report another error each second, or fail and answer in turns.
        let is_due = report.error.is_none()
            || self
                .failed_at
                .is_none_or(|at| now.saturating_sub(at) >= MIN_FAILURE_GAP_NS);
        if report.error != self.reported && is_due {
            if report.error.is_some() {
                self.failed_at = Some(now);
            }
            self.reported.clone_from(&report.error);
            let (group, member) = member();
            events.push(match &report.error {
                Some(error) => Event::Failed {
                    group,
                    member,
                    error: error.clone(),
                },
                None => Event::Recovered { group, member },
            });
        }
        let Some(sizes) = report.sizes else {
            // It holds no memory, and starts over if it comes back.
            (self.asked, self.late) = (None, None);
            self.error = report.error;
            return;
        };
        let bounds = (self.settings.base, self.settings.ceiling);
        let asked = *self
            .asked
            .get_or_insert_with(|| sizes.real.clamp(bounds.0, bounds.1));
        if sizes.real <= asked {
            self.late = None;
        } else {
            let late = self.late.get_or_insert(LateMember {
                since: now,
                is_reported: false,
            });
            if !late.is_reported && now.saturating_sub(late.since) >= LATE_AFTER_NS {
                late.is_reported = true;
                let (group, member) = member();
                events.push(Event::Late {
                    group,
                    member,
                    asked,
                    real: sizes.real,
                });
            }
        }
        self.error = report.error;
    }

    fn pool_member(&self, step: u64, least: u64) -> targets::PoolMember {
        let base = self.settings.base;
        targets::PoolMember {
            base,
            ceiling: self.settings.ceiling,
            weight: self.settings.weight,
            freed: self.freed,
            asked: self.asked.unwrap_or(base),
            real: self.real().unwrap_or(base),
            answers: self.asked.is_some() && self.error.is_none(),
            step,
            least,
        }
    }

    /// Leaves the order with its thread in each turn: another program may have overwritten the
    /// limit.
    fn ask(&mut self, group: &str, size: u64) -> Option<Event> {
        let thread = self.thread.as_ref()?;
        let Some(from) = self.asked else {
            thread.look();
            return None;
        };
        thread.set(size);
        self.asked = Some(size);
        (from != size).then(|| Event::Asked {
            group: group.to_owned(),
            member: self.settings.name.clone(),
            from,
            to: size,
        })
    }

    fn status(&self) -> MemberStatus {
        let base = self.settings.base;
        MemberStatus {
            name: self.settings.name.clone(),
            base_bytes: base,
            freed_bytes: self.freed,
            given_bytes: self.asked.map_or(0, |asked| asked.saturating_sub(base)),
            wanted_bytes: self.wanted,
            real_bytes: self.real(),
            error: self.error.clone(),
        }
    }
}

#[cfg(test)]
mod tests;

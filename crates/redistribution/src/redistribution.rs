//! The loop between policy, guard and members: one turn a second.
//!
//! # Problem
//! Freed memory changes all the time; members answer late or not at all; groups come and go when a
//! configuration is read again.
//!
//! # Approach
//! A turn takes the figures of freed memory, reads the last report of each member's thread, calls
//! guard and policy, and leaves orders with the threads. It never waits. Freed memory counts for
//! [`KNOWN_FOR`] if a group's worker does not answer: its frames still exist. Until a new member
//! was seen, or could not be, no member of its pool is given more, because its size is unknown. A
//! member that is removed from the configuration gets its original limit back.
//!
//! # Units
//! Bytes, [`Nanos`].
//!
//! # Source
//! Euro-Par'11 §3.1, §3.2.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::before::Book;
use crate::cgroup_tree::CgroupTree;
use crate::contribution::contributions;
use crate::event::Event;
use crate::guard::{Guard, Marks, Nanos, Phase};
use crate::hand::{Hand, Report};
use crate::host;
use crate::leftovers::Leftovers;
use crate::place_actuator::actuator;
use crate::policy;
use crate::settings::{Group, Member, Scope};
use crate::status::{GroupStatus, MemberStatus, Status};

const SECOND: Nanos = 1_000_000_000;

/// The report of a group's freed memory is valid for this time.
const KNOWN_FOR: Nanos = 60 * SECOND;
/// A member that has more than asked for this time is reported.
const LATE_AFTER: Nanos = 30 * SECOND;

/// The shortest time between two reported failures of a member.
const MIN_FAILURE_GAP_NS: Nanos = 60 * SECOND;
/// The longest wait at the end for members to put back the original values.
const RELEASE_TIME: Duration = Duration::from_secs(3);

/// The memory freed by each group, by name. For a missing group it is unknown now.
pub type Freed = BTreeMap<String, FreedBy>;

/// The memory freed by the merging of one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreedBy {
    /// Bytes, of all its processes.
    pub bytes: u64,
    /// The part of each process, in any unit: only the proportion counts.
    pub by_process: BTreeMap<u32, u64>,
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
    groups: Vec<Giving>,
    guard: Guard,
    roots: Roots,
    book: Book,
    /// None before the first configuration.
    leftovers: Option<Leftovers>,
    /// Events to return from the next turn.
    pending: Vec<Event>,
    available: u64,
}

/// One group.
#[derive(Debug)]
struct Giving {
    settings: Group,
    members: Vec<Held>,
    /// Its freed memory, and the time of that report.
    freed: Option<(Nanos, FreedBy)>,
}

/// One member.
#[derive(Debug)]
struct Held {
    settings: Member,
    /// None if there was cannot start its thread.
    hand: Option<Hand>,
    /// The size that was asked last; none before it was seen, and while it is gone.
    asked: Option<u64>,
    freed: u64,
    wanted: u64,
    /// The error of its last report, if it could not be seen or changed.
    error: Option<String>,
    /// The error of the last event, and the time of the last failure event.
    told: Option<String>,
    failed_at: Option<Nanos>,
    /// The report of its thread at the beginning of this turn.
    seen: Report,
    late: Option<Late>,
}

/// A member that has more than was asked, and since when.
#[derive(Debug, Clone, Copy)]
struct Late {
    since: Nanos,
    is_told: bool,
}

impl Redistribution {
    /// A redistribution without groups, whose guard has these marks.
    #[must_use]
    pub fn new(roots: Roots, marks: Marks) -> Redistribution {
        let (book, error) = Book::of(&roots.before);
        let error = error.map(|error| Event::Unkept {
            error: error.to_string(),
        });
        Redistribution {
            book,
            leftovers: None,
            pending: error.into_iter().collect(),
            groups: Vec::new(),
            guard: Guard::new(marks),
            roots,
            available: 0,
        }
    }

    /// Sets the groups. Unchanged members continue. The first time, changes that an earlier daemon
    /// left are undone at places that are no members any more.
    pub fn follow(&mut self, groups: &[Group]) {
        let members = groups.iter().flat_map(|group| &group.members);
        let places: Vec<_> = members.map(|member| &member.place).collect();
        let book = &self.book;
        self.leftovers
            .get_or_insert_with(|| Leftovers::of(book, &places))
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
            .map(|group| take_over(group, &mut old, (&self.roots.cgroups, &self.book)))
            .collect();
    }

    /// Whether there are no groups, and nothing to put back.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
            && self.pending.is_empty()
            && self.leftovers.as_ref().is_some_and(Leftovers::is_empty)
    }

    /// Undoes the changes that an earlier daemon left, and waits for that a bounded time: for a
    /// daemon without redistribution.
    #[must_use]
    pub fn put_back_only(roots: Roots) -> Vec<Event> {
        let mut own = Redistribution::new(roots, Marks::standard());
        own.follow(&[]);
        let mut events = std::mem::take(&mut own.pending);
        if let Some(leftovers) = &mut own.leftovers {
            let deadline = Instant::now() + RELEASE_TIME;
            events.extend(leftovers.await_all(deadline, (&own.roots.cgroups, &own.book)));
        }
        events
    }

    /// One turn. Returns the events; never waits.
    pub fn turn(&mut self, now: Nanos, freed: &Freed) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.pending);
        if let Some(leftovers) = &mut self.leftovers {
            events.extend(leftovers.turn(now, (&self.roots.cgroups, &self.book)));
        }
        if self.groups.is_empty() {
            return events;
        }
        let seen = host::observe(&self.roots.proc).map_err(|error| error.to_string());
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
        let members: Vec<policy::Member> = groups().flat_map(Giving::for_policy).collect();
        let phase = match self.guard.phase() {
            // The size of a member that was never seen, and the memory it freed, are unknown.
            Phase::Giving if !groups().all(Giving::is_seen) => Phase::Holding,
            phase => phase,
        };
        let asked = policy::asked(rule, &members, phase);
        let due = policy::due(rule, &members);
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
        let leftovers = self.leftovers.take();
        let groups = std::mem::take(&mut self.groups);
        let members = || {
            groups
                .iter()
                .flat_map(|group| group.members.iter().map(move |m| (group, m)))
        };
        for (_, member) in members() {
            member.hand.iter().for_each(Hand::release);
        }
        let deadline = Instant::now() + RELEASE_TIME;
        let mut events = Vec::new();
        for (group, member) in members() {
            let put_back = member
                .hand
                .as_ref()
                .map(|hand| hand.await_release(deadline));
            if let Some(Err(error)) = put_back {
                events.push(Event::Failed {
                    group: group.settings.name.clone(),
                    member: member.settings.name.clone(),
                    error: format!("the original value is not restored: {error}"),
                });
            }
        }
        // Before the first configuration, all entries are an earlier daemon's.
        let mut leftovers = leftovers.unwrap_or_else(|| Leftovers::of(&self.book, &[]));
        events.extend(leftovers.await_all(deadline, (&self.roots.cgroups, &self.book)));
        events
    }

    /// The status of all groups.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            phase: self.guard.phase(),
            reason: self.guard.reason().to_owned(),
            available_bytes: self.available,
            groups: self.groups.iter().map(Giving::status).collect(),
        }
    }
}

/// The new state of a group, with its old members.
fn take_over(group: &Group, old: &mut [Giving], own: (&CgroupTree, &Book)) -> Giving {
    let mut before = old.iter_mut().find(|own| own.settings.name == group.name);
    let freed = before.as_ref().and_then(|own| own.freed.clone());
    let members = group.members.iter().map(|member| {
        let kept = before.as_mut().and_then(|own| {
            let at = own.members.iter().position(|held| {
                held.settings.name == member.name && held.settings.place == member.place
            })?;
            Some(own.members.remove(at))
        });
        let kept = kept.map(|held| Held {
            asked: held
                .asked
                .map(|asked| asked.clamp(member.base, member.ceiling)),
            settings: member.clone(),
            ..held
        });
        kept.unwrap_or_else(|| Held::new(member, own))
    });
    Giving {
        members: members.collect(),
        settings: group.clone(),
        freed,
    }
}

impl Giving {
    /// Takes its freed memory, and the reports of its members.
    fn take_in(&mut self, now: Nanos, freed: &Freed, events: &mut Vec<Event>) {
        if let Some(freed) = freed.get(&self.settings.name) {
            self.freed = Some((now, freed.clone()));
        }
        self.freed
            .take_if(|(told, _)| now.saturating_sub(*told) >= KNOWN_FOR);
        for member in &mut self.members {
            member.take_in(now, &self.settings.name, events);
        }
        let nothing = FreedBy::default();
        let freed = self.freed.as_ref().map_or(&nothing, |(_, freed)| freed);
        let processes: Vec<&[u32]> = self.members.iter().map(Held::processes).collect();
        let each = contributions(freed.bytes, &freed.by_process, &processes);
        for (member, freed) in self.members.iter_mut().zip(each) {
            member.freed = freed;
        }
    }

    /// Whether each member has been seen, or could not be.
    fn is_seen(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.hand.is_none() || member.seen.done > 0)
    }

    fn for_policy(&self) -> Vec<policy::Member> {
        let settings = &self.settings;
        let members = self.members.iter();
        members
            .map(|member| member.for_policy(settings.step, settings.least))
            .collect()
    }

    fn status(&self) -> GroupStatus {
        let members: Vec<MemberStatus> = self.members.iter().map(Held::status).collect();
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

impl Held {
    fn new(settings: &Member, (tree, book): (&CgroupTree, &Book)) -> Held {
        let (hand, error) = match Hand::new(actuator(&settings.place, tree, book)) {
            Ok(hand) => (Some(hand), None),
            Err(error) => (None, Some(format!("cannot start its thread: {error}"))),
        };
        Held {
            settings: settings.clone(),
            hand,
            asked: None,
            freed: 0,
            wanted: settings.base,
            error,
            told: None,
            failed_at: None,
            seen: Report::default(),
            late: None,
        }
    }

    fn real(&self) -> Option<u64> {
        Some(self.seen.sizes.as_ref()?.real)
    }

    fn processes(&self) -> &[u32] {
        let sizes = self.seen.sizes.as_ref();
        sizes.map_or(&[], |sizes| &sizes.processes)
    }

    fn take_in(&mut self, now: Nanos, group: &str, events: &mut Vec<Event>) {
        let Some(hand) = &self.hand else {
            return;
        };
        self.seen = hand.report();
        let report = self.seen.clone();
        let member = || (group.to_owned(), self.settings.name.clone());
        // A monitor may report another error each second, or fail and answer in turns.
        let is_due = report.error.is_none()
            || self
                .failed_at
                .is_none_or(|at| now.saturating_sub(at) >= MIN_FAILURE_GAP_NS);
        if report.error != self.told && is_due {
            if report.error.is_some() {
                self.failed_at = Some(now);
            }
            self.told.clone_from(&report.error);
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
            let late = self.late.get_or_insert(Late {
                since: now,
                is_told: false,
            });
            if !late.is_told && now.saturating_sub(late.since) >= LATE_AFTER {
                late.is_told = true;
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

    fn for_policy(&self, step: u64, least: u64) -> policy::Member {
        let base = self.settings.base;
        policy::Member {
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
        let hand = self.hand.as_ref()?;
        let Some(from) = self.asked else {
            hand.look();
            return None;
        };
        hand.set(size);
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

//! Dynamic rates: what share of a processor each group's merging may use now.
//!
//! # Problem
//! A second of processor frees many pages in a group whose processes have just loaded the same
//! data, and none in another. A group that is short of memory gains from each page that comes soon;
//! one that computes loses time to merging and has memory enough. Both change, so no fixed shares
//! are right for long. Shares must not swing, workers that sleep must not be told anything, and all
//! together may never use more than the host allows.
//!
//! # Approach
//! A turn is fed what each group did since the last one. All of it is smoothed over [`MEMORY`], or
//! over the time that a group has been seen, and what it used over [`MEMORY_OF_USE`].
//!
//! - *Yield*: pages freed for a second of processor. Of a group of which little was seen lately,
//!   [`PRIOR`] seconds at the mean of all count as seen: who was not looked at for long is one of
//!   the middle, and looked at again. Nobody gets less than its least.
//! - *Need*: a group's part is its yield, up to [`NEED`] times more the longer its tasks wait for
//!   memory.
//! - *Giving way*: a group whose tasks wait for processors may have less than its most, down to its
//!   least; as far as they wait for memory as well, merging is what helps them, and it stays.
//! - *Use*: a group is to have at most twice what it used, and never less than [`LOOK`] of an equal
//!   part if it may: what is not used others have, and who begins to use what it has doubles it
//!   each turn. What is left then goes to whoever can have more.
//!
//! What a group should have is not yet told to it. A fall or a rise is told from [`WORTH`] of its
//! size on, and a rise only to who uses most of what it has. Others fall by less only if a rise
//! needs it. The sum of what was told is therefore never more than the total.
//!
//! # Units
//! Shares are millionths of a core ([`Share`]), times nanoseconds, yield pages for a second.
//!
//! # Source
//! Euro-Par'11 §5.3: the two measures, reclaimed pages and processor use of a group's workload. How
//! they are joined is our own.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::guard::Nanos;
use crate::share::{Claim, share};

const SECOND: f64 = 1e9;

/// Millionths of a core.
pub type Share = u64;

/// One core.
pub const CORE: Share = 1_000_000;

/// What was seen so long ago counts half.
pub const MEMORY: Nanos = 5_000_000_000;
/// What was used so long ago counts half: who begins to work is to have more soon.
pub const MEMORY_OF_USE: Nanos = 1_500_000_000;
/// So many seconds of processor at the mean yield are added to what was seen.
pub const PRIOR: f64 = 0.05;
/// How many times more a group's yield counts whose tasks wait for memory for [`MUCH`] of the time
/// or more.
pub const NEED: f64 = 8.0;
/// Who waits for memory so long is as short of it as can be.
pub const MUCH: f64 = 0.25;
/// The part of an equal share that is kept for who uses nothing.
pub const LOOK: u64 = 4;
/// A change by less than one of so many parts is not told.
pub const WORTH: u64 = 16;
/// Less use than one of so many parts of the time is none.
pub const WORK: u64 = 1000;

/// What was configured for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// It has never less.
    pub least: Share,
    /// It has never more.
    pub most: Share,
    /// Its part at the beginning.
    pub start: Share,
}

/// What a group did since the last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Since when.
    pub time: Nanos,
    /// What its worker used.
    pub cpu: Nanos,
    /// Pages that its merging freed.
    pub reclaimed: u64,
    /// How long its tasks waited for a processor.
    pub cpu_waited: Nanos,
    /// How long its tasks waited for memory.
    pub memory_waited: Nanos,
}

/// What decides of a group's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing was seen yet: the parts at the beginning.
    #[default]
    Start,
    /// It uses less.
    Use,
    /// Its tasks wait for processors.
    Waiting,
    /// What it frees for a second of processor.
    Yield,
    /// The same, and that its tasks wait for memory.
    Need,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Start => "nothing is known yet",
            Reason::Use => "it uses no more",
            Reason::Waiting => "its tasks wait for processors",
            Reason::Yield => "what it frees",
            Reason::Need => "what it frees, and its tasks wait for memory",
        })
    }
}

/// A share that was told anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The group.
    pub group: String,
    /// What it had.
    pub from: Share,
    /// What it has now.
    pub to: Share,
    /// Why.
    pub reason: Reason,
}

impl Change {
    /// Whether an operator would want to know: it has twice, or half.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.to >= self.from.saturating_mul(2) || self.from >= self.to.saturating_mul(2)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: Share| share as f64 / 1e4;
        write!(
            f,
            "group {}: may use {:.1}% of a core instead of {:.1}%: {}",
            self.group,
            percent(self.to),
            percent(self.from),
            self.reason
        )
    }
}

/// How a group stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// What of a core it may use now.
    pub share: f64,
    /// It may never use less.
    pub least: f64,
    /// It may never use more.
    pub most: f64,
    /// What decided that.
    pub reason: Reason,
    /// What of a core it used lately.
    pub used_share: f64,
    /// Pages that it frees for a second of processor.
    pub freed_per_second: f64,
    /// The part of the time that its tasks wait for processors.
    pub cpu_waited: f64,
    /// The part of the time that its tasks wait for memory.
    pub memory_waited: f64,
}

/// Shares of all groups whose rate is dynamic.
#[derive(Debug, Default)]
pub struct Rates {
    total: Share,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug, Clone)]
struct Group {
    terms: Terms,
    told: Share,
    reason: Reason,
    /// Pages freed, and seconds used, that still count.
    freed: f64,
    seconds: f64,
    /// Parts of the time.
    used: f64,
    cpu_waited: f64,
    memory_waited: f64,
    /// How long it has been seen.
    seen: Nanos,
}

impl Rates {
    /// Takes over these groups, and what they may use together. Without a change nothing happens;
    /// with one all begin with their parts at the beginning, and what was seen of them counts on.
    ///
    /// # Panics
    /// If the least of all is more than the total, or a group's terms contradict each other:
    /// whoever reads a configuration has refused that.
    pub fn follow(&mut self, total: Share, terms: &BTreeMap<String, Terms>) -> Vec<Change> {
        let same = |(name, own): (&String, &Group)| terms.get(name) == Some(&own.terms);
        if self.total == total && self.groups.len() == terms.len() && self.groups.iter().all(same) {
            return Vec::new();
        }
        let least: Share = terms.values().map(|terms| terms.least).sum();
        assert!(least <= total, "{least} of {total} millionths of a core");
        self.total = total;
        self.groups.retain(|name, _| terms.contains_key(name));
        for (name, &terms) in terms {
            assert!(terms.least <= terms.most, "{name}: {terms:?}");
            let group = self.groups.entry(name.clone());
            group.or_insert_with(|| Group::new(terms)).terms = terms;
        }
        let parts: Vec<Claim> = self
            .groups
            .values()
            .map(|group| Claim {
                part: group.terms.start.max(1),
                most: group.terms.most - group.terms.least,
            })
            .collect();
        let rest = share(total - least, &parts);
        let mut changes = Vec::new();
        for ((name, group), rest) in self.groups.iter_mut().zip(rest) {
            group.reason = Reason::Start;
            changes.extend(group.tell(name, group.terms.least + rest));
        }
        changes
    }

    /// One turn, with what was seen of each group; one that is missing was not looked at, and did
    /// nothing. Who has another share now comes back.
    pub fn turn(&mut self, seen: &BTreeMap<String, Seen>) -> Vec<Change> {
        for (name, group) in &mut self.groups {
            if let Some(seen) = seen.get(name) {
                group.see(seen);
            }
        }
        let due = self.due();
        self.tell(&due)
    }

    /// What a group may use now.
    #[must_use]
    pub fn share(&self, group: &str) -> Option<Share> {
        Some(self.groups.get(group)?.told)
    }

    /// Whether there is no such group.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// How a group stands.
    #[must_use]
    pub fn status(&self, group: &str) -> Option<Status> {
        let mean = self.mean_yield();
        Some(self.groups.get(group)?.status(mean))
    }

    /// Pages for a second of processor, of all together.
    fn mean_yield(&self) -> f64 {
        let sum = |of: fn(&Group) -> f64| self.groups.values().map(of).sum::<f64>();
        let seconds = sum(|group| group.seconds);
        if seconds > 0.0 {
            sum(|group| group.freed) / seconds
        } else {
            0.0
        }
    }

    /// What each should have, in the order of names, and why. The sum is at most the total.
    fn due(&self) -> Vec<(Share, Reason)> {
        let groups = || self.groups.values();
        let mean = self.mean_yield();
        let least: Share = groups().map(|group| group.terms.least).sum();
        let look = self.total / LOOK / (self.groups.len().max(1) as u64);
        let mut rest = self.total.saturating_sub(least);
        let mut has: Vec<Share> = groups().map(|group| group.terms.least).collect();
        // First what each uses, then what is left.
        let uses = groups().map(|group| group.ceiling().min(group.use_of(look)));
        let ceilings = groups().map(Group::ceiling);
        for bounds in [uses.collect::<Vec<_>>(), ceilings.collect()] {
            let claims: Vec<Claim> = groups()
                .zip(&bounds)
                .zip(&has)
                .map(|((group, &bound), &has)| Claim {
                    part: group.part(mean),
                    most: bound.saturating_sub(has),
                })
                .collect();
            for (has, more) in has.iter_mut().zip(share(rest, &claims)) {
                *has += more;
                rest -= more;
            }
        }
        let why = groups().zip(has).map(|(group, has)| {
            let reason = if group.use_of(look) <= has {
                Reason::Use
            } else if has >= group.ceiling() && group.ceiling() < group.terms.most {
                Reason::Waiting
            } else if group.memory_waited > 0.05 {
                Reason::Need
            } else {
                Reason::Yield
            };
            (has, reason)
        });
        why.collect()
    }

    fn tell(&mut self, due: &[(Share, Reason)]) -> Vec<Change> {
        let mut next: Vec<Share> = self.groups.values().map(|group| group.told).collect();
        let falls = |next: &mut Vec<Share>, worth: bool| {
            for (next, &(due, _)) in next.iter_mut().zip(due) {
                if due < *next && (!worth || *next - due >= *next / WORTH) {
                    *next = due;
                }
            }
        };
        falls(&mut next, true);
        let rises: Vec<Claim> = self
            .groups
            .values()
            .zip(&next)
            .zip(due)
            .map(|((group, &has), &(due, _))| {
                let rise = due.saturating_sub(has);
                let is_worth = rise >= (has / WORTH).max(1) && group.uses_most();
                Claim {
                    part: rise,
                    most: if is_worth { rise } else { 0 },
                }
            })
            .collect();
        let wanted: Share = rises.iter().map(|rise| rise.most).sum();
        let left = |next: &[Share]| self.total.saturating_sub(next.iter().sum());
        if wanted > left(&next) {
            falls(&mut next, false);
        }
        let risen = share(left(&next), &rises);
        let next = next.into_iter().zip(risen).map(|(next, rise)| next + rise);
        let told = self.groups.iter_mut().zip(next).zip(due);
        told.filter_map(|(((name, group), next), &(_, reason))| {
            group.reason = reason;
            group.tell(name, next)
        })
        .collect()
    }
}

impl Group {
    fn new(terms: Terms) -> Group {
        Group {
            terms,
            told: terms.start.clamp(terms.least, terms.most),
            reason: Reason::Start,
            freed: 0.0,
            seconds: 0.0,
            used: 0.0,
            cpu_waited: 0.0,
            memory_waited: 0.0,
            seen: 0,
        }
    }

    fn see(&mut self, seen: &Seen) {
        if seen.time == 0 {
            return;
        }
        let time = seen.time as f64;
        let before = self.seen;
        self.seen = self.seen.saturating_add(seen.time);
        // At first all that was seen counts alike.
        let old_of = |memory: Nanos| {
            let memory = memory.min(before) as f64;
            memory / (memory + time)
        };
        let old = old_of(MEMORY);
        // These are sums, of which all stays at first.
        let kept = if before < MEMORY { 1.0 } else { old };
        self.freed = self.freed * kept + seen.reclaimed as f64;
        self.seconds = self.seconds * kept + seen.cpu as f64 / SECOND;
        let part =
            |was: f64, now: Nanos, old: f64| was * old + (now as f64 / time).min(1.0) * (1.0 - old);
        self.used = part(self.used, seen.cpu, old_of(MEMORY_OF_USE));
        self.cpu_waited = part(self.cpu_waited, seen.cpu_waited, old);
        self.memory_waited = part(self.memory_waited, seen.memory_waited, old);
    }

    /// Pages that it frees for a second of processor, as far as is known.
    fn yields(&self, mean: f64) -> f64 {
        (self.freed + mean * PRIOR) / (self.seconds + PRIOR)
    }

    /// Its part as against others'.
    fn part(&self, mean: f64) -> u64 {
        let need = (self.memory_waited / MUCH).min(1.0);
        let part = self.yields(mean).max(1.0) * (1.0 + NEED * need);
        // Thousandths: small parts differ, too.
        whole(part * 1e3)
    }

    /// The most that it may have while its tasks wait for processors as long as they do.
    fn ceiling(&self) -> Share {
        let waited = (self.cpu_waited - self.memory_waited).clamp(0.0, 1.0);
        let room = (self.terms.most - self.terms.least) as f64;
        self.terms.least + whole(room * (1.0 - waited))
    }

    /// What is enough for what it does, and for a start.
    fn use_of(&self, look: Share) -> Share {
        let twice = whole(2.0 * self.used * CORE as f64);
        twice.max(look).clamp(self.terms.least, self.terms.most)
    }

    fn uses_most(&self) -> bool {
        2.0 * self.used * CORE as f64 > self.told as f64
    }

    fn tell(&mut self, name: &str, share: Share) -> Option<Change> {
        let from = std::mem::replace(&mut self.told, share);
        (from != share).then(|| Change {
            group: name.to_owned(),
            from,
            to: share,
            reason: self.reason,
        })
    }

    fn status(&self, mean: f64) -> Status {
        let part = |share: Share| share as f64 / CORE as f64;
        Status {
            share: part(self.told),
            least: part(self.terms.least),
            most: part(self.terms.most),
            reason: self.reason,
            used_share: self.used,
            freed_per_second: self.yields(mean),
            cpu_waited: self.cpu_waited,
            memory_waited: self.memory_waited,
        }
    }
}

/// What is whole of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast takes what is out of range to its nearest end"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// A share of a core as millionths of it, as close as it gets.
#[must_use]
pub fn millionths(share: f64) -> Share {
    whole((share * CORE as f64).round())
}

#[cfg(test)]
mod tests;

//! Dynamic rates: the share of a processor that each group's merging may use now.
//!
//! # Problem
//! A second of processor time frees many pages in a group whose processes have just loaded the same
//! data, and none in another. A group that is short of memory gains from each page that is freed
//! soon; one that computes loses time to merging and has enough memory. Both change, so no fixed
//! shares are right for long. Shares must not swing, sleeping workers must not get messages, and
//! all together may never use more than the host allows.
//!
//! # Approach
//! The input of a turn is the work of each group since the last one. All of it is smoothed over
//! [`EVIDENCE_HALF_LIFE_NS`], or over the time that a group has been seen, but processor use over
//! [`USE_HALF_LIFE_NS`].
//!
//! - *Yield*: pages freed per second of processor time, less merged pages that were written. A
//!   group whose pages are written as fast as they are merged yields nothing. [`PRIOR_SECONDS`]
//!   seconds at the mean of all groups are added to those of a group: one with little recent
//!   evidence counts as average, and gets another try. No group gets less than its least.
//! - *Need*: a group's part is its yield, and up to [`MAX_NEED_FACTOR`] times more, in proportion
//!   to the time for which its tasks wait for memory.
//! - *Giving way*: a group whose tasks wait for processors may have less than its most, down to its
//!   least. Waits for memory are subtracted, because merging helps against them.
//! - *Use*: a group should have at most twice its use, and at least an equal part divided by
//!   [`IDLE_SHARE_DIVISOR`], if its limits allow: others get the unused rest, and a group that
//!   begins to use its share doubles it each turn. The remainder then goes to groups that can have
//!   more.
//!
//! A group is not sent every change. A fall or a rise is sent if it is at least the share divided
//! by [`MIN_CHANGE_DIVISOR`], and a rise only to groups that use most of their share. Smaller falls
//! are sent only if a rise needs them. The sum of the shares that were sent is therefore never more
//! than the total.
//!
//! # Units
//! Shares are millionths of a core ([`Share`]), times nanoseconds, yields pages per second.
//!
//! # Source
//! Euro-Par'11 §5.3: the two measures, reclaimed pages and processor use of a group's workload.
//! Their combination is our own.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::guard::Nanos;
use crate::proportional_shares::{Claim, share};

const SECOND: f64 = 1e9;

/// Millionths of a core.
pub type Share = u64;

/// One core.
pub const CORE: Share = 1_000_000;

/// Evidence of this age counts half.
pub const EVIDENCE_HALF_LIFE_NS: Nanos = 5_000_000_000;
/// Use of this age counts half: a group that begins to work should have more soon.
pub const USE_HALF_LIFE_NS: Nanos = 1_500_000_000;
/// Seconds of processor time at the mean yield that are added to the evidence.
pub const PRIOR_SECONDS: f64 = 0.05;
/// The factor by which the yield of a group counts more if its tasks wait for memory for
/// [`FULL_NEED_PART`] of the time or more.
pub const MAX_NEED_FACTOR: f64 = 8.0;
/// The part of the time of waiting for memory at which the need is largest.
pub const FULL_NEED_PART: f64 = 0.25;
/// A group that uses nothing keeps an equal share divided by this.
pub const IDLE_SHARE_DIVISOR: u64 = 4;
/// A change by less than a share divided by this is not sent.
pub const MIN_CHANGE_DIVISOR: u64 = 16;
/// Use of at most the time divided by this counts as none.
pub const MIN_USE_DIVISOR: u64 = 1000;

/// The configuration of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateTerms {
    /// Its smallest share.
    pub least: Share,
    /// Its largest share.
    pub most: Share,
    /// Its part of the rest at the beginning.
    pub start: Share,
}

/// The work of a group since the last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupWork {
    /// The time since the last turn.
    pub time: Nanos,
    /// Processor time that its worker used.
    pub cpu: Nanos,
    /// Pages that its merging freed.
    pub reclaimed: u64,
    /// Merged pages that its processes wrote.
    pub written: u64,
    /// Time for which its tasks waited for a processor.
    pub cpu_waited: Nanos,
    /// Time for which its tasks waited for memory.
    pub memory_waited: Nanos,
}

/// The reason of a group's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No evidence yet: the parts at the beginning.
    #[default]
    Start,
    /// It uses less.
    Use,
    /// Its tasks wait for processors.
    Waiting,
    /// Its yield.
    Yield,
    /// Its yield, and that its tasks wait for memory.
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

/// A changed share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The group.
    pub group: String,
    /// The share before.
    pub from: Share,
    /// The share now.
    pub to: Share,
    /// The reason.
    pub reason: Reason,
}

impl Change {
    /// Whether it is worth reporting to an operator: the share doubled or halved, or more.
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

/// The status of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RateStatus {
    /// Share of a core that it may use now.
    pub share: f64,
    /// Its smallest share.
    pub least: f64,
    /// Its largest share.
    pub most: f64,
    /// The reason of its share.
    pub reason: Reason,
    /// Share of a core that it used lately.
    pub used_share: f64,
    /// Pages that it frees per second of processor time, less those that were written again.
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
    groups: BTreeMap<String, RateGroup>,
}

#[derive(Debug, Clone)]
struct RateGroup {
    terms: RateTerms,
    sent: Share,
    reason: Reason,
    /// Pages freed and not written again, at least 0, and seconds used, as far as they still count.
    freed: f64,
    seconds: f64,
    /// Parts of the time.
    used: f64,
    cpu_waited: f64,
    memory_waited: f64,
    /// Time for which it has been seen.
    seen: Nanos,
}

impl Rates {
    /// Sets the groups and their total. Without a change nothing happens; with one all begin with
    /// their parts at the beginning, and keep their evidence.
    ///
    /// # Panics
    /// If the least of all is more than the total, or a group's terms contradict each other: the
    /// configuration is checked for that.
    pub fn follow(&mut self, total: Share, terms: &BTreeMap<String, RateTerms>) -> Vec<Change> {
        let same = |(name, own): (&String, &RateGroup)| terms.get(name) == Some(&own.terms);
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
            group.or_insert_with(|| RateGroup::new(terms)).terms = terms;
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
            changes.extend(group.send(name, group.terms.least + rest));
        }
        changes
    }

    /// One turn, with the work of each group; a group that is missing was not observed, and did
    /// nothing. Returns the changed shares.
    pub fn turn(&mut self, seen: &BTreeMap<String, GroupWork>) -> Vec<Change> {
        for (name, group) in &mut self.groups {
            if let Some(seen) = seen.get(name) {
                group.see(seen);
            }
        }
        let due = self.due();
        self.send(&due)
    }

    /// The share of a group now.
    #[must_use]
    pub fn share(&self, group: &str) -> Option<Share> {
        Some(self.groups.get(group)?.sent)
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// The status of a group.
    #[must_use]
    pub fn status(&self, group: &str) -> Option<RateStatus> {
        let mean = self.mean_yield();
        Some(self.groups.get(group)?.status(mean))
    }

    /// Pages per second of processor time, of all groups together.
    fn mean_yield(&self) -> f64 {
        let sum = |of: fn(&RateGroup) -> f64| self.groups.values().map(of).sum::<f64>();
        let seconds = sum(|group| group.seconds);
        if seconds > 0.0 {
            sum(|group| group.freed) / seconds
        } else {
            0.0
        }
    }

    /// The share that each group should have, in the order of names, with the reason. The sum is at
    /// most the total.
    fn due(&self) -> Vec<(Share, Reason)> {
        let groups = || self.groups.values();
        let mean = self.mean_yield();
        let least: Share = groups().map(|group| group.terms.least).sum();
        let look = self.total / IDLE_SHARE_DIVISOR / (self.groups.len().max(1) as u64);
        let mut rest = self.total.saturating_sub(least);
        let mut has: Vec<Share> = groups().map(|group| group.terms.least).collect();
        // First by use, then the remainder.
        let uses = groups().map(|group| group.ceiling().min(group.use_of(look)));
        let ceilings = groups().map(RateGroup::ceiling);
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

    fn send(&mut self, due: &[(Share, Reason)]) -> Vec<Change> {
        let mut next: Vec<Share> = self.groups.values().map(|group| group.sent).collect();
        let falls = |next: &mut Vec<Share>, worth: bool| {
            for (next, &(due, _)) in next.iter_mut().zip(due) {
                if due < *next && (!worth || *next - due >= *next / MIN_CHANGE_DIVISOR) {
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
                let is_worth = rise >= (has / MIN_CHANGE_DIVISOR).max(1) && group.uses_most();
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
        let groups = self.groups.iter_mut().zip(next).zip(due);
        groups
            .filter_map(|(((name, group), next), &(_, reason))| {
                group.reason = reason;
                group.send(name, next)
            })
            .collect()
    }
}

impl RateGroup {
    fn new(terms: RateTerms) -> RateGroup {
        RateGroup {
            terms,
            sent: terms.start.clamp(terms.least, terms.most),
            reason: Reason::Start,
            freed: 0.0,
            seconds: 0.0,
            used: 0.0,
            cpu_waited: 0.0,
            memory_waited: 0.0,
            seen: 0,
        }
    }

    fn see(&mut self, seen: &GroupWork) {
        if seen.time == 0 {
            return;
        }
        let time = seen.time as f64;
        let before = self.seen;
        self.seen = self.seen.saturating_add(seen.time);
        // At first all evidence counts alike.
        let old_of = |memory: Nanos| {
            let memory = memory.min(before) as f64;
            memory / (memory + time)
        };
        let old = old_of(EVIDENCE_HALF_LIFE_NS);
        // These are sums, which do not decay at first.
        let kept = if before < EVIDENCE_HALF_LIFE_NS {
            1.0
        } else {
            old
        };
        self.freed = (self.freed * kept + seen.reclaimed as f64 - seen.written as f64).max(0.0);
        self.seconds = self.seconds * kept + seen.cpu as f64 / SECOND;
        let part =
            |was: f64, now: Nanos, old: f64| was * old + (now as f64 / time).min(1.0) * (1.0 - old);
        self.used = part(self.used, seen.cpu, old_of(USE_HALF_LIFE_NS));
        self.cpu_waited = part(self.cpu_waited, seen.cpu_waited, old);
        self.memory_waited = part(self.memory_waited, seen.memory_waited, old);
    }

    /// Estimated pages that it frees per second of processor time.
    fn yields(&self, mean: f64) -> f64 {
        (self.freed + mean * PRIOR_SECONDS) / (self.seconds + PRIOR_SECONDS)
    }

    /// Its part, in proportion to the parts of others.
    fn part(&self, mean: f64) -> u64 {
        let need = (self.memory_waited / FULL_NEED_PART).min(1.0);
        let part = self.yields(mean).max(1.0) * (1.0 + MAX_NEED_FACTOR * need);
        // Thousandths: small parts differ, too.
        whole(part * 1e3)
    }

    /// Its largest share, given the waits of its tasks for processors.
    fn ceiling(&self) -> Share {
        let waited = (self.cpu_waited - self.memory_waited).clamp(0.0, 1.0);
        let room = (self.terms.most - self.terms.least) as f64;
        self.terms.least + whole(room * (1.0 - waited))
    }

    /// Enough for its use, and for a start.
    fn use_of(&self, look: Share) -> Share {
        let twice = whole(2.0 * self.used * CORE as f64);
        twice.max(look).clamp(self.terms.least, self.terms.most)
    }

    fn uses_most(&self) -> bool {
        2.0 * self.used * CORE as f64 > self.sent as f64
    }

    fn send(&mut self, name: &str, share: Share) -> Option<Change> {
        let from = std::mem::replace(&mut self.sent, share);
        (from != share).then(|| Change {
            group: name.to_owned(),
            from,
            to: share,
            reason: self.reason,
        })
    }

    fn status(&self, mean: f64) -> RateStatus {
        let part = |share: Share| share as f64 / CORE as f64;
        RateStatus {
            share: part(self.sent),
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

/// The whole part of a nonnegative number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast takes what is out of range to its nearest end"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// A share of a core, rounded to millionths.
#[must_use]
pub fn millionths(share: f64) -> Share {
    whole((share * CORE as f64).round())
}

#[cfg(test)]
mod tests;

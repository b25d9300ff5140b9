//! How large each member is to be: from what was freed, and from how large it is now.
//!
//! # Problem
//! Memory that merging freed is lent. It goes to those who are to have it, and comes back when
//! pages are written and are two again. Both at once would move the same bytes to and fro, or give
//! what is not there yet.
//!
//! # Approach
//! Members of a group, or of all groups together (the paper's NOGRP), have one pool of what was
//! freed ([`share`]). Each is to have its base and its share. Whoever has more than that goes down
//! at once, by a step; only then others go up, by a step, and only by what is left of the pool
//! after all that anybody still holds: what was asked of a member, or what it really has if that is
//! more. A rise smaller than the least change waits. A fall does not wait: it is owed. So a pool
//! that flickers by less than the least change moves nothing after its lowest value was seen.
//! Nobody falls below its base, whatever happens: that is the lower bound that the paper promises.
//!
//! # Units
//! Bytes; what is given is in whole pages. Nothing here knows time: one call is one step.
//!
//! # Source
//! Euro-Par'11 §3.2 (equal), §4.1 (NOGRP-equal, NOGRP-SE), §5.2 (best effort with a lower bound).

use serde::{Deserialize, Serialize};

use crate::guard::Phase;
use crate::share::{Claim, share};

/// A page; what is given is a multiple.
pub const PAGE: u64 = 4096;

/// By what parts a pool is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// All have the same.
    Equal,
    /// Each has what its own merging freed ("sharing entitlement").
    Entitlement,
    /// By the weights that were configured.
    Weights,
}

/// Who is given something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its size without anything given; it is never less.
    pub base: u64,
    /// Its largest size.
    pub ceiling: u64,
    /// Its part under [`Rule::Weights`].
    pub weight: u64,
    /// What merging of its pages freed: those merged, less its part of the frames.
    pub freed: u64,
    /// The size that was last asked of it.
    pub asked: u64,
    /// The size that it really has; more than `asked` while it has not given back.
    pub real: u64,
    /// Whether it can be asked: one that does not answer keeps what it has.
    pub answers: bool,
    /// Most bytes to change at once.
    pub step: u64,
    /// Least bytes worth a rise.
    pub least: u64,
}

impl Member {
    /// What it holds of what was freed, when `asked` is asked of it.
    fn held(&self, asked: u64) -> u64 {
        asked.max(self.real).saturating_sub(self.base)
    }

    fn most(&self) -> u64 {
        self.ceiling.saturating_sub(self.base)
    }
}

/// What the members of a pool are due at last, in their order: base and share.
#[must_use]
pub fn due(rule: Rule, members: &[Member]) -> Vec<u64> {
    let claim = |member: &Member| Claim {
        part: match rule {
            Rule::Equal => 1,
            Rule::Entitlement => member.freed,
            Rule::Weights => member.weight,
        },
        most: member.most(),
    };
    let claims: Vec<Claim> = members.iter().map(claim).collect();
    let shares = share(freed(members), &claims);
    let size = |(member, share): (&Member, u64)| member.base.saturating_add(share / PAGE * PAGE);
    members.iter().zip(shares).map(size).collect()
}

/// What merging freed in a pool.
fn freed(members: &[Member]) -> u64 {
    members
        .iter()
        .fold(0, |sum, member| sum.saturating_add(member.freed))
}

/// What is now asked of the members of a pool, in their order: a step from what was asked towards
/// what they are due.
#[must_use]
pub fn asked(rule: Rule, members: &[Member], phase: Phase) -> Vec<u64> {
    let due = match phase {
        Phase::TakingBack => members.iter().map(|member| member.base).collect(),
        Phase::Giving | Phase::Holding => due(rule, members),
    };
    let mut asked: Vec<u64> = members.iter().map(|member| member.asked).collect();
    for ((member, asked), &due) in members.iter().zip(&mut asked).zip(&due) {
        if member.answers && due < *asked {
            *asked = due.max(asked.saturating_sub(member.step));
        }
    }
    if phase != Phase::Giving {
        return asked;
    }
    let held = members.iter().zip(&asked);
    let held = held.fold(0_u64, |sum, (member, &asked)| {
        sum.saturating_add(member.held(asked))
    });
    let left = freed(members).saturating_sub(held);
    let lacks = members.iter().zip(&asked).zip(&due);
    let rises: Vec<Claim> = lacks
        .map(|((member, &asked), &due)| rise(member, asked, due))
        .collect();
    let rises = share(left, &rises);
    for ((member, asked), rise) in members.iter().zip(&mut asked).zip(rises) {
        let rise = rise / PAGE * PAGE;
        if rise >= member.least {
            *asked += rise;
        }
    }
    asked
}

/// What a member would rise by, if it is worth it.
fn rise(member: &Member, asked: u64, due: u64) -> Claim {
    let lack = due.saturating_sub(asked);
    if !member.answers || lack < member.least {
        return Claim { part: 0, most: 0 };
    }
    Claim {
        part: lack,
        most: lack.min(member.step),
    }
}

#[cfg(test)]
mod tests;

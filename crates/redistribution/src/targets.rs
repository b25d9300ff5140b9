//! The size of each member, from the freed memory and its present size.
//!
//! # Problem
//! Memory that merging freed is lent. It goes to members, and comes back when merged pages are
//! written and copied. Both at once would move the same bytes to and fro, or give memory that has
//! not come back yet.
//!
//! # Approach
//! Members of a group, or of all groups together (the paper's NOGRP), have one pool of freed memory
//! ([`share`]). Each should have its base and its share. A member above that falls at once, by a
//! step; only then others rise, by a step, and only by the rest of the pool that no member still
//! holds. A member holds the size that was asked of it, or its real size if that is more. A rise
//! smaller than `least` waits. A fall does not wait: it is owed. So a pool that fluctuates by less
//! than `least` settles at its lowest value and then causes no changes. No member ever falls below
//! its base: that is the lower bound that the paper promises.
//!
//! # Units
//! Bytes; memory is given in whole pages. Nothing here depends on time: one call is one step.
//!
//! # Source
//! Euro-Par'11 §3.2 (equal), §4.1 (NOGRP-equal, NOGRP-SE), §5.2 (best effort with a lower bound).

use serde::{Deserialize, Serialize};

use crate::guard::Phase;
use crate::proportional_shares::{Claim, share};

/// A page; memory is given in multiples of it.
pub const PAGE: u64 = 4096;

/// The rule by which a pool is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// All have equal parts.
    Equal,
    /// Each has the memory that its own merging freed ("sharing entitlement").
    Entitlement,
    /// Parts are the configured weights.
    Weights,
}

/// A member of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMember {
    /// Its size without given memory, and its smallest size.
    pub base: u64,
    /// Its largest size.
    pub ceiling: u64,
    /// Its part under [`Rule::Weights`].
    pub weight: u64,
    /// Memory that merging of its pages freed: its merged pages, less its part of the frames.
    pub freed: u64,
    /// The size that was last asked of it.
    pub asked: u64,
    /// Its real size; more than `asked` while it has not given memory back.
    pub real: u64,
    /// Whether it can be asked: one that does not answer keeps its size.
    pub answers: bool,
    /// Limit of a change at once.
    pub step: u64,
    /// Smallest rise.
    pub least: u64,
}

impl PoolMember {
    /// The freed memory that it holds, when `asked` is asked of it.
    fn held(&self, asked: u64) -> u64 {
        asked.max(self.real).saturating_sub(self.base)
    }

    fn most(&self) -> u64 {
        self.ceiling.saturating_sub(self.base)
    }
}

/// The final sizes of the members of a pool, in their order: base and share.
#[must_use]
pub fn due(rule: Rule, members: &[PoolMember]) -> Vec<u64> {
    let claim = |member: &PoolMember| Claim {
        part: match rule {
            Rule::Equal => 1,
            Rule::Entitlement => member.freed,
            Rule::Weights => member.weight,
        },
        most: member.most(),
    };
    let claims: Vec<Claim> = members.iter().map(claim).collect();
    let shares = share(freed(members), &claims);
    let size =
        |(member, share): (&PoolMember, u64)| member.base.saturating_add(share / PAGE * PAGE);
    members.iter().zip(shares).map(size).collect()
}

/// The freed memory of a pool.
fn freed(members: &[PoolMember]) -> u64 {
    members
        .iter()
        .fold(0, |sum, member| sum.saturating_add(member.freed))
}

/// The sizes that are now asked of the members of a pool, in their order: a step from the sizes
/// asked before towards the final ones.
#[must_use]
pub fn asked(rule: Rule, members: &[PoolMember], phase: Phase) -> Vec<u64> {
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

/// The rise of a member, if it is large enough.
fn rise(member: &PoolMember, asked: u64, due: u64) -> Claim {
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

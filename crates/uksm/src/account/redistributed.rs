//! Memory given to members and taken back, as counts that only grow.
//!
//! # Problem
//! Redistribution has the present size of each member. A bill needs the changes in between, also of
//! members that are no longer configured.
//!
//! # Approach
//! The amounts of each turn are compared with those of the turn before. A member that is gone has
//! given back all of its amount.
//!
//! # Units
//! Bytes above a member's base.

use std::collections::BTreeMap;

use uksm_redistribution::status::RedistributionStatus;

/// Totals of the members of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RedistributedTotals {
    /// The amount that they may have now.
    pub(crate) held: u64,
    /// Sum of all increases.
    pub(crate) given: u64,
    /// Sum of all decreases.
    pub(crate) taken_back: u64,
}

impl RedistributedTotals {
    /// Adds a change, after which `change.held` is held.
    pub(crate) fn add(&mut self, change: RedistributedTotals) {
        self.held = change.held;
        self.given += change.given;
        self.taken_back += change.taken_back;
    }

    /// Takes back the whole held amount.
    pub(crate) fn end(&mut self) {
        self.taken_back += std::mem::take(&mut self.held);
    }
}

/// The amounts of the members of all groups, by group and name.
#[derive(Debug, Default)]
pub(crate) struct MemberAmounts(BTreeMap<(String, String), u64>);

impl MemberAmounts {
    /// Changes of each group since the last turn.
    pub(crate) fn changes(
        &mut self,
        status: &RedistributionStatus,
    ) -> BTreeMap<String, RedistributedTotals> {
        let mut before = std::mem::take(&mut self.0);
        let mut changes: BTreeMap<String, RedistributedTotals> = BTreeMap::new();
        let mut change = |group: &str, from: u64, to: u64| {
            let of = changes.entry(group.to_owned()).or_default();
            of.held += to;
            of.given += to.saturating_sub(from);
            of.taken_back += from.saturating_sub(to);
        };
        for group in &status.groups {
            for member in &group.members {
                let key = (group.name.clone(), member.name.clone());
                let last = before.remove(&key).unwrap_or(0);
                change(&group.name, last, member.given_bytes);
                self.0.insert(key, member.given_bytes);
            }
        }
        for ((group, _), last) in before {
            change(&group, last, 0);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_redistribution::settings::Scope;
    use uksm_redistribution::status::{GroupStatus, MemberStatus};
    use uksm_redistribution::targets::Rule;

    fn status(members: &[(&str, u64)]) -> RedistributionStatus {
        let member = |&(name, given_bytes): &(&str, u64)| MemberStatus {
            name: name.to_owned(),
            base_bytes: 0,
            freed_bytes: 0,
            given_bytes,
            wanted_bytes: 0,
            real_bytes: None,
            error: None,
        };
        RedistributionStatus {
            groups: vec![GroupStatus {
                name: "web".to_owned(),
                rule: Rule::Equal,
                scope: Scope::Group,
                freed_bytes: 0,
                given_bytes: 0,
                members: members.iter().map(member).collect(),
            }],
            ..RedistributionStatus::default()
        }
    }

    #[test]
    fn what_comes_and_goes_is_counted_by_member() {
        let mut held = MemberAmounts::default();
        let mut web = RedistributedTotals::default();
        let mut after = |members: &[(&str, u64)]| {
            for (group, change) in held.changes(&status(members)) {
                assert_eq!(group, "web");
                web.add(change);
            }
            web
        };
        let given = |held, given, taken_back| RedistributedTotals {
            held,
            given,
            taken_back,
        };
        assert_eq!(after(&[("one", 10), ("two", 0)]), given(10, 10, 0));
        assert_eq!(after(&[("one", 4), ("two", 6)]), given(10, 16, 6));
        assert_eq!(
            after(&[("two", 6)]),
            given(6, 16, 10),
            "one is a member no more"
        );
        let mut last = web;
        last.end();
        assert_eq!(last, given(0, 16, 16));
        let gone: Vec<_> = held
            .changes(&RedistributionStatus::default())
            .into_iter()
            .collect();
        assert_eq!(gone, [("web".to_owned(), given(0, 0, 6))]);
        assert!(held.changes(&RedistributionStatus::default()).is_empty());
    }
}

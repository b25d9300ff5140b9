//! The paper's policies, as configurations of the daemon.
//!
//! # Problem
//! All must have the same members and the same share of a core for merging; otherwise the
//! comparison is not of policies alone.
//!
//! # Approach
//! A configuration is text. All merging together may use [`TOTAL`] of a core, as all policies of
//! the paper scan 10,000 pages a second. The paper's NOGRP merges across groups, in one thread:
//! here each group merges for itself, at half of the share, and the memory that both freed is
//! divided among all members.
//!
//! # Source
//! Euro-Par'11 §4.1, §4.2.

use std::fmt::Write as _;

/// Limit of all merging, as a share of a core.
pub(super) const TOTAL: f64 = 0.04;

/// The groups, MR and FIO, and their members.
pub(super) const GROUPS: [&str; 2] = ["mr", "fio"];
/// Members of each.
pub(super) const MEMBERS: [&str; 2] = ["one", "two"];

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Policy {
    /// All freed memory is divided equally among all.
    NogrpEqual,
    /// All freed memory is divided by the members' contributions.
    NogrpSe,
    /// Each group keeps its freed memory, and has these tenths of the share of a core: MR's and
    /// FIO's.
    Grp(u32, u32),
    /// Each group keeps its freed memory, and has a dynamic rate.
    GrpDynamic,
}

impl Policy {
    /// All of them.
    pub(super) const ALL: [Policy; 6] = [
        Policy::NogrpEqual,
        Policy::NogrpSe,
        Policy::Grp(1, 9),
        Policy::Grp(5, 5),
        Policy::Grp(9, 1),
        Policy::GrpDynamic,
    ];

    /// Its name.
    pub(super) fn name(self) -> String {
        match self {
            Policy::NogrpEqual => "nogrp-equal".to_owned(),
            Policy::NogrpSe => "nogrp-se".to_owned(),
            Policy::Grp(mr, fio) => format!("grp-{mr}:{fio}"),
            Policy::GrpDynamic => "grp-dynamic".to_owned(),
        }
    }

    /// Whether it is one of the paper's baselines.
    pub(super) fn is_baseline(self) -> bool {
        matches!(self, Policy::NogrpEqual | Policy::NogrpSe)
    }

    /// The configuration, where members have these bases in MiB, MR's and FIO's.
    pub(super) fn configuration(self, bases: [usize; 2], seed: u64) -> String {
        let mut text = format!("account_dir = \"none\"\nseed = {seed}\n");
        let (rule, scope) = match self {
            Policy::NogrpEqual => ("equal", "all"),
            Policy::NogrpSe => ("entitlement", "all"),
            Policy::Grp(..) | Policy::GrpDynamic => ("equal", "group"),
        };
        let parts = match self {
            Policy::Grp(mr, fio) => [mr, fio],
            _ => [5, 5],
        };
        if self == Policy::GrpDynamic {
            let _ = writeln!(text, "cpu_total = {TOTAL}");
        }
        for ((group, part), base) in GROUPS.into_iter().zip(parts).zip(bases) {
            let cpu = TOTAL * f64::from(part) / 10.0;
            let members = MEMBERS
                .map(|member| format!("\"/{group}/{member}\""))
                .join(", ");
            let _ = write!(
                text,
                "[group.{group}]\ncgroup = [{members}]\nbook = \"/{group}\"\ncpu = {cpu}\n\
                 redistribute = \"{rule}\"\nredistribute_scope = \"{scope}\"\nredistribute_least = \"1MiB\"\n"
            );
            if self == Policy::GrpDynamic {
                // The bounds are those of the fixed ones.
                let (least, most) = (TOTAL / 10.0, TOTAL * 0.9);
                let _ = write!(
                    text,
                    "rate = \"dynamic\"\ncpu_least = {least}\ncpu_most = {most}\n"
                );
            }
            for member in MEMBERS {
                let _ = write!(
                    text,
                    "[group.{group}.member.{member}]\ncgroup = \"/{group}/{member}\"\nbase = \"{base}MiB\"\n"
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_policies_have_the_same_share_and_the_paper_s_names() {
        let names = Policy::ALL.map(Policy::name);
        let paper = [
            "nogrp-equal",
            "nogrp-se",
            "grp-1:9",
            "grp-5:5",
            "grp-9:1",
            "grp-dynamic",
        ];
        assert_eq!(names, paper);
        for policy in Policy::ALL {
            let text = policy.configuration([20, 30], 7);
            let shares = text.lines().filter_map(|line| line.strip_prefix("cpu = "));
            let sum: f64 = shares.map(|share| share.parse::<f64>().unwrap()).sum();
            assert!((sum - TOTAL).abs() < 1e-9, "{text}");
            assert_eq!(text.matches("base = \"20MiB\"").count(), 2, "{text}");
            assert_eq!(text.contains("scope = \"all\""), policy.is_baseline());
        }
    }
}

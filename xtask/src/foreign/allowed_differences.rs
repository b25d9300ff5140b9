//! Outcomes that cannot be equal in all arms, and the reasons.
//!
//! # Problem
//! A few tests require a property that a merged page cannot have, or end by chance. They must
//! neither fail the run nor be left out.
//!
//! # Approach
//! Each has a line here with its reason. Such a program runs in all arms like the others, and its
//! differences are shown with the reason, apart from the rest. A property may be missing in the
//! torturer's arm alone: a quiet daemon does not change it. A test that ends by chance was seen to
//! end either way without the module.

use uksm_guest_tests::foreign::schedule::Arm;

/// Outcomes that may differ.
struct AllowedDifference {
    /// Beginning of the item's name.
    item: &'static str,
    /// Part of the outcome's name; the program's end is a summary and always included. All if
    /// empty.
    outcome: &'static str,
    /// Part of the program's output, without which nothing is explained.
    output: &'static str,
    reason: &'static str,
}

/// Outcomes that may differ in the torturer's arm.
const MERGED: &[AllowedDifference] = &[
    AllowedDifference {
        item: "uffd-unit-tests -f move",
        outcome: "",
        output: "",
        reason: "UFFDIO_MOVE answers EBUSY for a page that is not the process's alone, which a \
                 merged page is not; the test does not expect that answer",
    },
    AllowedDifference {
        item: "uffd-unit-tests -f events",
        outcome: "events",
        output: "ERROR: UFFDIO_COPY error: -2 ",
        reason: "UFFDIO_COPY answers ENOENT if the process changed its mappings meanwhile, which the \
                 test does not expect; it can come to that if a process that waits for a fault is \
                 woken late by the lock of its mappings, for which the torturer competes",
    },
    AllowedDifference {
        item: "khugepaged all:anon",
        outcome: ": Collapse ",
        output: "Fail",
        reason: NOT_COLLAPSED,
    },
    AllowedDifference {
        item: "khugepaged all:anon",
        outcome: ": Re-collapse PMD-mapped hugepage",
        output: "Fail",
        reason: NOT_COLLAPSED,
    },
    AllowedDifference {
        item: "khugepaged all:anon",
        outcome: ": Restore THP and khugepaged settings",
        output: "Fail",
        reason: "the program prints it where it ends",
    },
    AllowedDifference {
        item: "migration",
        outcome: "private_anon_thp",
        output: "Expected migrate(ptr, self->n1, self->n2) (-2) == 0",
        reason: "a page of the huge one was merged, and a merged page is not moved to another node",
    },
    AllowedDifference {
        item: "ksm_functional_tests",
        outcome: "",
        output: "",
        reason: MERGED_BEFORE,
    },
    AllowedDifference {
        item: "ksm_tests",
        outcome: "",
        output: "",
        reason: MERGED_BEFORE,
    },
];

/// Outcomes that may differ in each arm.
const CHANCE: &[AllowedDifference] = &[
    AllowedDifference {
        item: "ksm_tests -N -m 1",
        outcome: "",
        output: "",
        reason: "whether KSM has merged two pages when the test looks, after two of its scans, \
                 differs from run to run; on 6.12 it had not in the arm bare, and had in busy",
    },
    AllowedDifference {
        item: "ksm_tests -U",
        outcome: "",
        output: "",
        reason: "whether KSM has undone its merges when the test looks differs from run to run; on \
                 7.3 it had not in the arm bare of one run, and in busy of another",
    },
    AllowedDifference {
        item: "protection_keys_64",
        outcome: "(iteration #",
        output: "",
        reason: "a process that it forks prints once more what its parent had not written yet, or \
                 does not, in any arm",
    },
];

const NOT_COLLAPSED: &str = "no huge page is made of a range with a merged page, because that is on \
     none of the kernel's LRU lists (SCAN_PAGE_LRU), nor while the torturer reads one of its pages \
     and holds a reference to it (SCAN_PAGE_COUNT)";

const MERGED_BEFORE: &str =
    "it counts what KSM merges of its pages, and the torturer has merged them before";

/// The reason for which the outcome `name` of `item` may differ in `arm`, where the program printed
/// `output`.
#[must_use]
pub fn reason(item: &str, name: &str, arm: Arm, output: &str) -> Option<&'static str> {
    let merged = if arm == Arm::Tortured { MERGED } else { &[] };
    // That lines differ by chance does not excuse the end of the program.
    let chance = CHANCE
        .iter()
        .filter(|difference| name.contains(difference.outcome));
    chance
        .chain(merged)
        .filter(|difference| item.starts_with(difference.item))
        .filter(|difference| output.contains(difference.output))
        .find(|difference| name.is_empty() || name.contains(difference.outcome))
        .map(|difference| difference.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_arm_but_the_torturer_s_is_excused() {
        for difference in MERGED {
            assert!(
                reason(
                    difference.item,
                    difference.outcome,
                    Arm::Tortured,
                    difference.output
                )
                .is_some()
            );
            assert!(reason(difference.item, "", Arm::Tortured, difference.output).is_some());
            for arm in [Arm::Bare, Arm::Busy, Arm::Idle] {
                assert_eq!(
                    reason(difference.item, difference.outcome, arm, difference.output),
                    None
                );
            }
        }
        assert_eq!(reason("cow", "", Arm::Tortured, ""), None);
        assert!(reason("ksm_tests -N -m 1", "KSM NUMA merging", Arm::Idle, "").is_some());
        assert_eq!(reason("protection_keys_64", "", Arm::Idle, ""), None);
        assert_eq!(
            reason("ksm_tests -N -m 0", "KSM NUMA merging", Arm::Idle, ""),
            None
        );
    }

    #[test]
    fn another_error_of_a_known_program_is_not_excused() {
        let excused =
            |output| reason("uffd-unit-tests -f events", "", Arm::Tortured, output).is_some();
        assert!(excused(
            "Testing events-wp on anon... ERROR: UFFDIO_COPY error: -2 (errno=2, @a.c:617)"
        ));
        for other in [
            "",
            "ERROR: UFFDIO_COPY error: -22 (errno=22, @a.c:617)",
            "ERROR: mremap",
        ] {
            assert!(!excused(other), "{other}");
        }
    }

    #[test]
    fn other_outcomes_of_a_known_program_are_not_excused() {
        let excused = |name| reason("khugepaged all:anon", name, Arm::Tortured, "Fail").is_some();
        assert!(excused(
            "collapse_fork (khugepaged:anon): Collapse PTE table"
        ));
        assert!(!excused(
            "collapse_fork (khugepaged:anon): Check if parent still has small page"
        ));
    }
}

//! What cannot be equal under a torturer, and why.
//!
//! # Problem
//! A few tests ask for a property that a merged page cannot have. They must neither fail the run nor
//! be left out.
//!
//! # Approach
//! Each has a line here with its reason. Such a program runs in all arms like the others, and its
//! differences are shown with the reason, apart from the rest. Only the torturer's arm is excused:
//! a daemon that is quiet has nothing to do with these.

use super::outcome::COMPLAINT;
use super::schedule::Arm;

/// Outcomes that may differ in the torturer's arm.
struct Known {
    /// How the item's name begins.
    item: &'static str,
    /// Part of the outcome's name; the program's end sums up and is always meant. All if empty.
    outcome: &'static str,
    reason: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        item: "uffd-unit-tests -f move",
        outcome: "",
        reason: "UFFDIO_MOVE answers EBUSY for a page that is not the process's alone, which a \
                 merged page is not; the test does not expect that answer",
    },
    Known {
        item: "khugepaged all:anon",
        outcome: ": Collapse ",
        reason: "no huge page is made of a range with a merged page, because that is on none of the \
                 kernel's LRU lists (SCAN_PAGE_LRU), nor while the torturer reads one of its pages \
                 and holds a reference to it (SCAN_PAGE_COUNT)",
    },
    Known {
        item: "ksm_functional_tests",
        outcome: "",
        reason: MERGED_BEFORE,
    },
    Known {
        item: "ksm_tests",
        outcome: "",
        reason: MERGED_BEFORE,
    },
];

const MERGED_BEFORE: &str =
    "it counts what KSM merges of its pages, and the torturer has merged them before";

/// Why the outcome `name` of `item` may differ in `arm`. What the kernel complains of is never excused.
#[must_use]
pub fn reason(item: &str, name: &str, arm: Arm) -> Option<&'static str> {
    if arm != Arm::Tortured || name.starts_with(COMPLAINT) {
        return None;
    }
    KNOWN
        .iter()
        .filter(|known| item.starts_with(known.item))
        .find(|known| name.is_empty() || name.contains(known.outcome))
        .map(|known| known.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_arm_but_the_torturer_s_is_excused() {
        for known in KNOWN {
            assert!(reason(known.item, known.outcome, Arm::Tortured).is_some());
            assert!(reason(known.item, "", Arm::Tortured).is_some());
            for arm in [Arm::Bare, Arm::Busy, Arm::Idle] {
                assert_eq!(reason(known.item, known.outcome, arm), None);
            }
        }
        assert_eq!(reason("cow", "", Arm::Tortured), None);
    }

    #[test]
    fn what_the_kernel_complains_of_is_not_excused() {
        for known in KNOWN {
            let complaint = format!("{COMPLAINT}BUG: Bad page state");
            assert_eq!(reason(known.item, &complaint, Arm::Tortured), None);
        }
    }

    #[test]
    fn other_outcomes_of_a_known_program_are_not_excused() {
        let excused = |name| reason("khugepaged all:anon", name, Arm::Tortured).is_some();
        assert!(excused(
            "collapse_fork (khugepaged:anon): Collapse PTE table"
        ));
        assert!(!excused(
            "collapse_fork (khugepaged:anon): Check if parent still has small page"
        ));
    }
}

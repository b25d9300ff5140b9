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

use super::schedule::Arm;

/// Beginnings of items' names, and why they differ in the torturer's arm.
const KNOWN: &[(&str, &str)] = &[(
    "uffd-unit-tests -f move",
    "UFFDIO_MOVE answers EBUSY for a page that is not the process's alone, which a merged page is \
     not; the test does not expect that answer",
)];

/// Why outcomes of `item` may differ in `arm`.
#[must_use]
pub fn reason(item: &str, arm: Arm) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(name, _)| arm == Arm::Tortured && item.starts_with(name))
        .map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_arm_but_the_torturer_s_is_excused() {
        for (item, _) in KNOWN {
            assert!(reason(item, Arm::Tortured).is_some());
            for arm in [Arm::Bare, Arm::Busy, Arm::Idle] {
                assert_eq!(reason(item, arm), None);
            }
        }
        assert_eq!(reason("cow", Arm::Tortured), None);
    }
}

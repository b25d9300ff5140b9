//! What each member's merging freed.
//!
//! # Problem
//! A member is entitled to what its merging freed: its merged pages less its part of the frames. The group's worker knows what the
//! group freed, and does not count it by space.
//!
//! # Approach
//! Until it does, what the group freed is split by the anonymous memory that each member has in RAM, merged pages included. That is
//! exact where members share evenly, as clones do, and gives too much to a member whose memory is its own alone. All of that is in
//! this one function.

use crate::share::{Claim, share};

/// What each freed of what the group freed, by what is resident of each.
pub(crate) fn contributions(freed: u64, resident: &[u64]) -> Vec<u64> {
    let claim = |&resident: &u64| Claim {
        part: resident,
        most: u64::MAX,
    };
    let claims: Vec<Claim> = resident.iter().map(claim).collect();
    share(freed, &claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_split_by_what_is_resident_and_who_has_nothing_freed_nothing() {
        assert_eq!(contributions(90, &[200, 100, 0]), [60, 30, 0]);
        assert_eq!(contributions(90, &[0, 0]), [0, 0]);
    }
}

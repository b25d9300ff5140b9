//! The memory that each member's merging freed.
//!
//! # Problem
//! A member is entitled to the memory that its merging freed: its merged pages less its part of the
//! frames. A group's freed memory is reported by process, and some processes belong to no member.
//!
//! # Approach
//! All memory that the group freed is split in proportion to the memory that the processes of each
//! member freed. Memory freed by other processes is thereby divided likewise: it is the group's. If
//! no process of any member freed memory, because members are not merged, or a machine's monitor
//! does not report its process, it is split evenly.

use std::collections::BTreeMap;

use crate::proportional_shares::{Claim, share};

/// The part of each member in the group's freed memory, from the part of each process and the
/// processes of each member.
pub(crate) fn contributions(
    freed: u64,
    by_process: &BTreeMap<u32, u64>,
    members: &[&[u32]],
) -> Vec<u64> {
    let of = |member: &&[u32]| -> u64 { member.iter().filter_map(|pid| by_process.get(pid)).sum() };
    let parts: Vec<u64> = members.iter().map(of).collect();
    let is_none = parts.iter().all(|&part| part == 0);
    let claim = |&part: &u64| Claim {
        part: if is_none { 1 } else { part },
        most: u64::MAX,
    };
    let claims: Vec<Claim> = parts.iter().map(claim).collect();
    share(freed, &claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_split_by_what_processes_freed_and_who_freed_nothing_gets_nothing() {
        let by_process = BTreeMap::from([(1, 150), (2, 50), (3, 100), (9, 5000)]);
        let members: [&[u32]; 3] = [&[1, 2, 77], &[3], &[4]];
        assert_eq!(contributions(90, &by_process, &members), [60, 30, 0]);
    }

    #[test]
    fn what_nobody_of_them_freed_is_split_evenly() {
        let by_process = BTreeMap::from([(9, 5000)]);
        assert_eq!(contributions(90, &by_process, &[&[1], &[]]), [45, 45]);
        assert_eq!(contributions(0, &BTreeMap::new(), &[&[1], &[2]]), [0, 0]);
    }
}

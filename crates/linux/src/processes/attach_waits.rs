//! The time for which ATTACH may wait for locks of processes.
//!
//! # Problem
//! ATTACH of a process that holds its own locks waits for a tenth of a second, in the only thread
//! of a daemon. [`LockWaits`](crate::lock_waits::LockWaits) bounds the time of one process;
//! hundreds of them, or new ones again and again, would take all the time.
//!
//! # Approach
//! Waits that ended with `EAGAIN` are charged to a [`WaitBudget`]. While it is in debt, no process
//! of a group that caused the debt is attached; processes of other groups are. A group can add one
//! wait to a debt, which is repaid by ten times its length, so the share stays a tenth.
//!
//! # Units
//! [`Nanos`] of the monotonic clock.

use std::collections::BTreeSet;

use uksm_policy::command::Nanos;

use crate::clock;
use crate::selection::GroupId;
use crate::wait_budget::WaitBudget;

/// The time for which ATTACH may wait.
#[derive(Debug)]
pub(super) struct AttachWaits {
    budget: WaitBudget,
    /// Groups with a process that made ATTACH wait since there was no debt.
    debtors: BTreeSet<GroupId>,
}

impl Default for AttachWaits {
    fn default() -> AttachWaits {
        AttachWaits {
            budget: WaitBudget::full(clock::now()),
            debtors: BTreeSet::new(),
        }
    }
}

impl AttachWaits {
    /// Time at which a process of this group may be attached, if that is in the future.
    pub(super) fn due(&self, group: GroupId, now: Nanos) -> Option<Nanos> {
        let repaid_at = self.budget.repaid_at(now)?;
        self.debtors.contains(&group).then_some(repaid_at)
    }

    /// A process of this group made a call wait from `begun` on, in vain.
    pub(super) fn waited(&mut self, group: GroupId, (begun, now): (Nanos, Nanos)) {
        if self.budget.repaid_at(begun).is_none() {
            self.debtors.clear();
        }
        self.budget.spend(now.saturating_sub(begun), now);
        self.debtors.insert(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Nanos = 95_000_000;

    #[test]
    fn locked_processes_of_one_group_take_a_tenth_of_the_time_and_hold_up_no_other_group() {
        let (a, b) = (GroupId(1), GroupId(2));
        let mut waits = AttachWaits::default();
        let first = clock::now();
        let (mut now, mut waited) = (first, 0);
        while now < first + 1000 * WAIT {
            match waits.due(a, now) {
                Some(due) => {
                    assert_eq!(waits.due(b, now), None);
                    now = due;
                }
                None => {
                    waits.waited(a, (now, now + WAIT));
                    now += WAIT;
                    waited += 1;
                }
            }
        }
        assert!((90..120).contains(&waited), "{waited}");
        // Another group that makes calls wait adds one wait to a debt.
        waits.waited(a, (now, now + WAIT));
        now += WAIT;
        waits.waited(b, (now, now + WAIT));
        assert!(waits.due(a, now + WAIT).is_some());
        assert!(waits.due(b, now + WAIT).is_some());
    }
}

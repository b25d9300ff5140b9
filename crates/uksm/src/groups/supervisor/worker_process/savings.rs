//! The savings of a group, read from its domain.

use uksm_linux::module;
use uksm_linux::{clock, domain::Domain as _};
use uksm_policy::command::{Lines, Nanos};

use super::WorkerProcess;
use crate::groups::supervisor::domain_savings::{
    LOCKED_PAUSE_NS, MAX_REPAID_NS, MAX_TURN_NS, SHARE_DIVISOR, Savings,
};

impl WorkerProcess {
    pub(in crate::groups::supervisor) fn read(
        &mut self,
        groups: Nanos,
    ) -> module::Result<Option<Savings>> {
        let Some(domain) = &mut self.domain else {
            return Ok(None);
        };
        let info = domain.info()?;
        let own = &mut self.savings;
        if clock::now() >= own.frames_due {
            let begun = clock::thread_cpu();
            own.frames.count(|cursor, most| {
                domain.frames(cursor, most, Lines { from: 0, to: 0 }, false)
            })?;
            own.frames_due = repaid(begun, groups);
        }
        if clock::now() >= own.spaces_due {
            let begun = clock::thread_cpu();
            let here: Vec<_> = self.handover.here().collect();
            let is_time = || clock::thread_cpu().saturating_sub(begun) < MAX_TURN_NS;
            let has_waited = own.spaces.count(&here, is_time, |space, start, end| {
                domain.count(space, start, end)
            })?;
            own.spaces_due = repaid(begun, groups);
            if has_waited {
                let due = clock::now().saturating_add(LOCKED_PAUSE_NS.saturating_mul(groups));
                own.spaces_due = own.spaces_due.max(due);
            }
        }
        let processes = self.handover.processes();
        Ok(Some(own.reading(&info, &processes.collect::<Vec<_>>())))
    }
}

/// The time at which the work since `begun` is repaid.
fn repaid(begun: Nanos, groups: Nanos) -> Nanos {
    clock::now().saturating_add(pause(clock::thread_cpu().saturating_sub(begun), groups))
}

/// The pause that repays this processor time.
fn pause(cost: Nanos, groups: Nanos) -> Nanos {
    let repaid = cost.min(MAX_REPAID_NS);
    repaid.saturating_mul(SHARE_DIVISOR).saturating_mul(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_was_stopped_within_a_turn_counts_again_within_ten_seconds() {
        assert_eq!(pause(1_000_000, 2), 1_000_000_000);
        assert_eq!(pause(400_000_000, 1), 10_000_000_000);
    }
}

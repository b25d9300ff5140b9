//! Redistribution: once a second, members get freed memory.

use std::time::Instant;

use uksm_policy::command::PAGE_SIZE;
use uksm_redistribution::{Freed, FreedBy};

use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::domain_savings::Reading;
use crate::groups::supervisor::redistribution::INTERVAL;

impl Supervisor<'_> {
    /// Runs a turn, if it is time.
    pub(in crate::groups::supervisor) fn redistribute(&mut self) {
        let now = Instant::now();
        if now < self.redistribution.next {
            return;
        }
        let settings = self.workers.iter().filter_map(|w| w.plan.giving.clone());
        let settings: Vec<_> = settings.collect();
        self.redistribution.redistribution.follow(&settings);
        if self.redistribution.redistribution.is_idle() {
            return;
        }
        self.redistribution.next = now + INTERVAL;
        self.read_savings(|worker| worker.plan.giving.is_some());
        let read = self.workers.iter().filter(|w| w.plan.giving.is_some());
        let freed: Freed = read
            .filter_map(|worker| {
                let reading = worker.savings.last.as_ref()?;
                Some((worker.plan.name.clone(), freed(reading)))
            })
            .collect();
        let mut changes = self.redistribution.turn(&freed);
        for worker in &mut self.workers {
            if let Some(change) = changes.remove(&worker.plan.name) {
                worker.account.given.add(change);
            }
        }
    }
}

fn freed(reading: &Reading) -> FreedBy {
    FreedBy {
        bytes: reading.saved_pages * PAGE_SIZE,
        by_process: reading.by_process.clone(),
    }
}

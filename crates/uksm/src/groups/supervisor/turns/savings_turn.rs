//! Savings of groups, read from their domains.

use uksm_policy::command::Nanos;

use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::worker_process::WorkerProcess;

impl Supervisor<'_> {
    /// Reads the savings of the wanted groups into `DomainSavings::last` of each.
    pub(in crate::groups::supervisor) fn read_savings(
        &mut self,
        is_wanted: impl Fn(&WorkerProcess) -> bool,
    ) {
        let wanted = self.workers.iter().filter(|worker| is_wanted(worker));
        let groups = Nanos::try_from(wanted.count()).unwrap_or(Nanos::MAX);
        for worker in self.workers.iter_mut().filter(|worker| is_wanted(worker)) {
            let read = worker.read(groups);
            worker.savings.last = read.unwrap_or_else(|error| {
                tracing::debug!("group {}: it is not read: {error}", worker.plan.name);
                None
            });
        }
    }
}

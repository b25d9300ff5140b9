//! Workers of new groups, not started yet.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use uksm_linux::module::Info;
use uksm_linux::selection::GroupId;

use crate::account::ledger::Ledger;
use crate::config::plan::Plan;
use crate::groups::supervisor::account::Account;
use crate::groups::supervisor::fd_store;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::hash_seed;
use crate::paths::Roots;
use crate::status::written_pages::WrittenPages;

/// All that workers need beside their plans.
#[derive(Debug)]
pub(super) struct WorkerFactory {
    pub(super) roots: Roots,
    pub(super) ledger: Arc<Ledger>,
    /// Merged pages that processes of the host wrote.
    pub(super) written: Rc<WrittenPages>,
    /// A domain as the module makes it.
    pub(super) fresh: Option<Info>,
}

impl WorkerFactory {
    /// The worker of a group. It gets the stored domain of its name, if that has the group's seed.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(super) fn worker(
        &self,
        id: GroupId,
        plan: Plan,
        stored: Option<OwnedFd>,
    ) -> anyhow::Result<WorkerProcess> {
        let daemon = &plan.resolved.daemon;
        let place = hash_seed::of_group(&daemon.socket, &plan.name);
        let seed = hash_seed::given_or_inherited(daemon.seed, &place)?;
        let domain =
            stored.and_then(|file| fd_store::of_plan(file, (&plan, seed), self.fresh.as_ref()));
        let account = Account::new(&plan.name, Arc::clone(&self.ledger), domain.as_ref());
        let roots = self.roots.clone();
        let counts = (account, Rc::clone(&self.written));
        Ok(WorkerProcess::new(id, (plan, seed), roots, domain, counts))
    }
}

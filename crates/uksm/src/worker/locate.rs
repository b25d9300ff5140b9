//! What a machine knows of processes: all of them, or none where a supervisor follows them.

use uksm_linux::domain::Domain;
use uksm_linux::handed_over::{HandedOver, Supervisor};
use uksm_linux::machine::LinuxMachine;
use uksm_linux::processes::{Target, Whereabouts};

/// Knows processes.
pub(crate) trait Locate {
    /// What became of a process.
    ///
    /// # Errors
    /// It knows none: one line.
    fn locate(&self, pid: u32) -> Result<Whereabouts, String>;

    /// Those that are followed, by id.
    ///
    /// # Errors
    /// As [`Locate::locate`].
    fn followed(&self) -> Result<Vec<Target>, String>;
}

/// What a worker of a group says who is asked for processes.
const KNOWS_SPACES: &str = "only the supervisor knows processes";

impl<D: Domain> Locate for LinuxMachine<D> {
    fn locate(&self, pid: u32) -> Result<Whereabouts, String> {
        Ok(self.processes().whereabouts(pid))
    }

    fn followed(&self) -> Result<Vec<Target>, String> {
        Ok(self.processes().targets())
    }
}

impl<D: Domain, S: Supervisor> Locate for LinuxMachine<D, HandedOver<S>> {
    fn locate(&self, _: u32) -> Result<Whereabouts, String> {
        Err(KNOWS_SPACES.to_owned())
    }

    fn followed(&self) -> Result<Vec<Target>, String> {
        Err(KNOWS_SPACES.to_owned())
    }
}

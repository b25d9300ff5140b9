//! A machine's knowledge of processes: all of them, or none if a supervisor follows them.

use uksm_linux::domain::Domain;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::processes::{ProcessState, Target};
use uksm_linux::supervised_spaces::{SupervisedSpaces, Supervisor};

/// Access to processes.
pub(crate) trait Locate {
    /// The state of a process.
    ///
    /// # Errors
    /// This machine knows no processes: one line.
    fn locate(&self, pid: u32) -> Result<ProcessState, String>;

    /// The followed processes, by id.
    ///
    /// # Errors
    /// As [`Locate::locate`].
    fn followed(&self) -> Result<Vec<Target>, String>;
}

/// The answer of a group's worker to a request about processes.
const KNOWS_SPACES: &str = "only the supervisor knows processes";

impl<D: Domain> Locate for LinuxMachine<D> {
    fn locate(&self, pid: u32) -> Result<ProcessState, String> {
        Ok(self.processes().state_of(pid))
    }

    fn followed(&self) -> Result<Vec<Target>, String> {
        Ok(self.processes().targets())
    }
}

impl<D: Domain, S: Supervisor> Locate for LinuxMachine<D, SupervisedSpaces<S>> {
    fn locate(&self, _: u32) -> Result<ProcessState, String> {
        Err(KNOWS_SPACES.to_owned())
    }

    fn followed(&self) -> Result<Vec<Target>, String> {
        Err(KNOWS_SPACES.to_owned())
    }
}

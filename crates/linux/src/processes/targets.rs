//! The followed processes, for reports and for unmerging some of them.

use uksm_policy::command::SpaceId;

use super::{FollowedProcess, Processes};
use crate::proc;
use crate::selection::{GroupId, Selectors};

/// A followed process, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its group.
    pub group: GroupId,
    /// Its address space.
    pub space: SpaceId,
}

impl Processes {
    /// The followed processes, by id.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let target = |(&pid, f): (&u32, &FollowedProcess)| Target {
            pid,
            comm: f.comm.clone(),
            group: f.group,
            space: f.space,
        };
        self.followed.iter().map(target).collect()
    }

    /// Followed processes, with their spaces, that the selectors select. Processes for which that
    /// cannot be read are included: unmerging too many is safe, too few is not.
    #[must_use]
    pub fn chosen(&self, selectors: &Selectors) -> Vec<Target> {
        let mut targets = self.targets();
        targets.retain(|target| {
            let stat = self.proc.stat(target.pid);
            let chosen = stat.and_then(|stat| selectors.select(&self.proc, target.pid, &stat));
            chosen.unwrap_or_else(|error| {
                let lives = !matches!(error, proc::Error::Gone { .. });
                if lives {
                    tracing::warn!("process {}: {error}: unmerging it as well", target.pid);
                }
                lives
            })
        });
        targets
    }
}

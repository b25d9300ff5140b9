//! Processes that were named by id, at the start.
//!
//! # Problem
//! A process that the operator names by mistake should end the start. One that has ended since, or
//! that holds its own locks, must not: its owner could keep the daemon from starting.

use rustix::io::Errno;

use super::{Attach, Processes, UnfollowedReason};
use crate::module::{self, Verb};

/// Maximum time for which the start waits until another domain releases a process, or until there
/// is memory.
pub const ATTACH_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

impl Processes {
    /// Follows the processes named by id, before a run starts. A failure is an error here, unlike
    /// later, unless it passes within [`ATTACH_WAIT`]. Returns the processes that could not be
    /// attached because they have ended or hold their own locks, which is in their own power: these
    /// are tried again later.
    ///
    /// # Errors
    /// The first process that cannot be attached for another reason, with its id.
    pub fn follow_named(
        &mut self,
        domain: &mut impl Attach,
    ) -> Result<Vec<(u32, module::Error)>, (u32, module::Error)> {
        let mut left_out = Vec::new();
        const WAIT: std::time::Duration = std::time::Duration::from_millis(25);
        let mut waits = ATTACH_WAIT.as_millis() / WAIT.as_millis();
        for name in self.grouping.named().collect::<Vec<_>>() {
            loop {
                if let Err(error) = self.check(name.pid, domain) {
                    return Err((name.pid, error));
                }
                let Some(&UnfollowedReason::Failed(_, errno)) = self.unfollowed.get(&name.pid)
                else {
                    break;
                };
                let error = module::Error::Call {
                    verb: Verb::Attach,
                    errno,
                };
                // The module has waited for its locks already.
                if matches!(errno, Errno::AGAIN | Errno::SRCH) {
                    left_out.push((name.pid, error));
                    break;
                }
                if waits == 0 || !matches!(errno, Errno::BUSY | Errno::NOMEM) {
                    return Err((name.pid, error));
                }
                waits -= 1;
                std::thread::sleep(WAIT);
            }
        }
        Ok(left_out)
    }
}

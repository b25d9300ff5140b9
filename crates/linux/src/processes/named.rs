//! Processes that were named by id, at the start.
//!
//! # Problem
//! A process that the operator names by mistake should end the start. One that has ended since, or
//! that holds its own locks, must not: its owner could keep the daemon from starting.

use rustix::io::Errno;

use super::{Attach, Processes, Unfollowed};
use crate::module::{self, Verb};

/// How long the start waits for a process that another domain is letting go of, or for memory.
pub const ATTACH_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

impl Processes {
    /// Follows the processes named by id, before a run starts. A failure is an error here, unlike
    /// later, unless it passes within [`ATTACH_WAIT`]. Answers those that could not be attached
    /// because they have ended or hold their own locks, which is for them to decide: that is tried
    /// again later.
    ///
    /// # Errors
    /// The first that cannot be attached otherwise, with its id.
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
                let Some(&Unfollowed::Failed(_, errno)) = self.unfollowed.get(&name.pid) else {
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

//! The end of a child process.

use std::process::Child;

/// Ends a child process at once.
pub trait ChildExit {
    /// Kills and reaps; one that is gone already is only reaped.
    fn end(&mut self);
}

impl ChildExit for Child {
    fn end(&mut self) {
        let _gone_already = self.kill();
        let _reaped_already = self.wait();
    }
}

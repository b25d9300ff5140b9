//! The occurrences of a content in a process.

use std::ops::AddAssign;

/// The occurrences of a content in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Pages of this content.
    pub pages: u64,
    /// Pages of these that another process maps, too: shared by fork, or merged already.
    pub shared: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.pages += other.pages;
        self.shared += other.shared;
    }
}

//! How often a process has a content.

use std::ops::AddAssign;

/// How often a process has a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Pages of this content.
    pub pages: u64,
    /// How many of these somebody maps besides: shared by fork, or merged already.
    pub shared: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.pages += other.pages;
        self.shared += other.shared;
    }
}

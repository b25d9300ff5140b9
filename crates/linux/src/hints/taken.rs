//! Hints that were taken at once.

use uksm_policy::command::{Hint, SpaceId};

/// Most hints of one [`Hints::take`](super::Hints::take): some hundred microseconds.
pub(super) const MAX_TAKEN: usize = 4096;

/// Hints that were taken.
#[derive(Debug, Default)]
pub struct Taken {
    /// In the order in which they came.
    pub hints: Vec<Hint>,
    /// How many were lost since the last time that this was known.
    pub lost: u64,
    /// Of these spaces some were.
    pub lost_of: Vec<SpaceId>,
    /// These spaces have grown.
    pub grown: Vec<SpaceId>,
    /// Whether more wait.
    pub more: bool,
}

//! Hints that one call reads.

use uksm_policy::command::{Hint, SpaceId};

/// Maximum number of hints of one [`Hints::take`](super::Hints::take): some hundred microseconds.
pub(super) const MAX_BATCH_HINTS: usize = 4096;

/// The result of one read.
#[derive(Debug, Default)]
pub struct HintBatch {
    /// Hints in the order in which they came.
    pub hints: Vec<Hint>,
    /// Lost hints since the previous known count.
    pub lost: u64,
    /// Spaces that lost hints.
    pub lost_of: Vec<SpaceId>,
    /// Spaces that have grown.
    pub grown: Vec<SpaceId>,
    /// Whether more wait.
    pub more: bool,
}

//! Where equal pages meet: hashes of pages that are merged, and of pages that may be.
//!
//! Two indexes, as UKSM has two trees (UKSM §5.3), because their contents live differently. A
//! frame never changes: [`Merged`] is exact and grows with what is saved. An unmerged page may
//! have changed since it was looked at: [`Unmerged`] is a guess of fixed size that forgets, so its
//! cost does not depend on the size of the host. Both only suggest; the module compares.

pub(crate) mod frame_table;
pub(crate) mod frames;
pub mod merged;
pub mod unmerged;

pub use merged::Merged;
pub use unmerged::{Load, Match, Place, Query, Unmerged};

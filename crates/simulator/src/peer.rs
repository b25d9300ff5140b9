//! Other deduplicators on the same host, for comparison.
//!
//! They are modelled by their algorithms: the pages that they examine, the order, and the pages
//! that they merge. Their costs are in the same files as the engine's.

mod advisor;
mod capped_ksm;
mod ksm;
pub(crate) mod tree;
mod unstable;
mod xlh;

pub use advisor::Advisor;
pub use ksm::{Ksm, KsmSettings};
pub use tree::Reachability;
pub use unstable::levels;
pub use xlh::{Entered, Xlh, XlhSettings};

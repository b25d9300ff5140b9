//! Other deduplicators on the same host, to compare with.
//!
//! They are modelled by their algorithms: what they look at, in which order, and what they merge.
//! What that costs is in the same file of costs as what the engine costs.

mod advisor;
mod held;
mod ksm;
mod published;
pub(crate) mod tree;
mod unstable;
mod xlh;

pub use advisor::Advisor;
pub use ksm::{Ksm, KsmSettings};
pub use published::Published;
pub use tree::Reachability;
pub use unstable::levels;
pub use xlh::{Entered, Xlh, XlhSettings};

//! Other deduplicators on the same host, to compare with.
//!
//! They are modelled by their algorithms: what they look at, in which order, and what they merge. What
//! that costs is in the same file of costs as what the engine costs.

mod held;
mod ksm;
mod published;

pub use ksm::{Advisor, Ksm, KsmSettings, levels};
pub use published::Published;

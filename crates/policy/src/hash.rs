//! The hash of a page, and how much of the page is hashed.

pub mod line;
pub mod strength;

pub use line::{LINE_SIZE, LineHash, SplitMix64, mix};

//! The hash of a page, and how much of the page is hashed.

pub(crate) mod adaptive;
pub mod line;
mod rehash;
pub mod strength;

pub use line::{LINE_SIZE, LineHash};

//! The engine as a whole, and its parts together.

mod any_machine;
mod crowd;
pub(super) mod equal_regions;
mod parts;

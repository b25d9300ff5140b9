//! The engine as a whole, and its parts together.

mod any_machine;
mod crowd;
mod parts;

//! The levels of the ladder.

pub(crate) mod level;

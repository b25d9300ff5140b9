//! What harness and guest agree on.

pub mod machine;
pub mod markers;
pub mod messages;

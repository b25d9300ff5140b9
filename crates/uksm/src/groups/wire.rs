//! The channel between supervisor and worker, and the messages on it.

pub(crate) mod channel;
pub(crate) mod messages;

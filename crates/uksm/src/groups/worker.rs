//! The worker of a group: `uksm worker`, its sandbox, and its end of the channel.

mod sandbox;
pub(crate) mod space_channel;
pub(crate) mod supervisor_requests;
pub(crate) mod worker_main;

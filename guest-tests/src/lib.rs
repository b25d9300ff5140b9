//! What runs inside a test guest.

pub mod case;
pub mod cases;
mod fixtures;
pub mod foreign;
pub mod init;
mod kmsg;
mod modules;
mod ports;

//! The Linux side of uksm: performs the policy's commands on a running kernel.
//!
//! # Problem
//! The policy names spaces, pages and frames. Linux has processes, mappings and a kernel module.
//!
//! # Approach
//! [`driver`] is the loop between the policy and a machine. [`machine`] performs the commands:
//! - [`selection`] says which processes may be merged, [`processes`] follows them by [`pidfd`] and
//!   [`proc`], told of new ones by the [`connector`]; a worker's are [`handed_over`], and both are
//!   a machine's [`discovery`];
//! - [`mappings`] lists their mappings, and [`maps`] says what they are to the policy;
//! - [`domain`] is what the machine needs of the kernel module, and [`module`] speaks to it;
//! - [`breaking`] unmerges, and [`wake`] sleeps; [`locked`] knows the targets that hold their own
//!   locks.
//!
//! Where there is no module, [`ksm`] is what drives in-kernel KSM.
//!
//! Beside all that, [`contents`] reads pages of processes into sketches, and [`boundary`] says
//! which of them may be compared. [`smaps`] parses mappings as `/proc` lists them; [`socket_file`]
//! is the file of a socket that listens, and [`regular_file`] reads what an operator has written.
//! This crate never decides what to merge, and to merge it reads no page of another process itself.
//!
//! # Units
//! Addresses are bytes, times nanoseconds, pages 4 KiB.

pub mod boundary;
pub mod breaking;
pub mod clock;
pub mod connector;
pub mod contents;
pub mod copies;
pub mod discovery;
pub mod domain;
pub mod driver;
pub mod handed_over;
mod heap;
pub mod hints;
pub mod ksm;
pub mod locked;
pub mod machine;
pub mod mappings;
pub mod maps;
pub mod module;
pub mod moves;
pub mod patrol;
pub mod pidfd;
pub mod proc;
pub mod processes;
pub mod regular_file;
pub mod selection;
pub mod smaps;
pub mod socket_file;
mod wait_budget;
pub mod wake;

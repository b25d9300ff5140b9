//! The Linux side of uksm: performs the policy's commands on a running kernel.
//!
//! # Problem
//! The policy names spaces, pages and frames. Linux has processes, mappings and a kernel module.
//!
//! # Approach
//! [`driver`] is the loop between the policy and a machine. [`machine`] performs the commands:
//! - [`selection`] chooses the processes that may be merged, [`processes`] follows them by
//!   [`pidfd`] and [`proc`], with events of new ones from the [`connector`]; a worker receives its
//!   own as [`supervised_spaces`], and both are a machine's [`discovery`];
//! - [`mapping_lists`] lists their mappings, and [`mapping_kinds`] translates these for the policy;
//! - [`domain`] is the interface of the kernel module to the machine, and [`module`] calls it;
//! - [`unmerge`] unmerges, and [`sleeper`] sleeps; [`locked`] keeps the targets that hold their own
//!   locks.
//!
//! Without the module, [`ksm`] drives in-kernel KSM.
//!
//! In addition, [`contents`] reads pages of processes into sketches, and [`boundary`] decides which
//! of them may be compared. [`smaps`] parses mappings as `/proc` lists them, and [`socket_file`] is
//! the file of a listening socket. This crate never decides what to merge, and reads no page of
//! another process in order to merge it.
//!
//! # Units
//! Addresses are bytes, times nanoseconds, pages 4 KiB.

pub mod boundary;
pub mod cgroup_move_events;
mod cgroup_path;
pub mod clock;
pub mod connector;
pub mod contents;
pub mod copies;
pub mod discovery;
pub mod domain;
pub mod driver;
pub mod hints;
pub mod ksm;
pub mod lock_waits;
pub mod machine;
pub mod mapping_kinds;
pub mod mapping_lists;
pub mod module;
pub mod patrol;
pub mod pidfd;
pub mod proc;
pub mod processes;
pub mod selection;
mod short_memory;
pub mod sleeper;
pub mod smaps;
pub mod socket_file;
pub mod supervised_spaces;
mod trim_heap;
pub mod unmerge;
mod wait_budget;

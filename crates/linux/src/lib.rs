//! The Linux host that the policy of uksm runs on.
//!
//! # Problem
//! The policy names spaces, pages and frames; the host has processes, mappings and a kernel
//! module.
//!
//! # Approach
//! One module a concern. [`module`] speaks to the kernel module. [`proc`] and [`maps`] read
//! processes, [`selection`] says which of them may be merged, [`processes`] follows those by [`pidfd`],
//! [`mappings`] lists their mappings. [`machine`] puts these together into the machine that performs the policy's
//! commands, [`driver`] is the loop between the two, [`wake`] its sleep.
//!
//! This crate never decides what to merge, and reads no page of another process itself.
//!
//! # Units
//! Addresses are bytes, times nanoseconds, pages 4 KiB.

pub mod breaking;
pub mod clock;
pub mod domain;
pub mod driver;
pub mod machine;
pub mod mappings;
pub mod maps;
pub mod module;
pub mod pidfd;
pub mod proc;
pub mod processes;
pub mod selection;
pub mod wake;

//! The Linux host that the policy of uksm runs on.
//!
//! # Problem
//! The policy names spaces, pages and frames; the host has processes, mappings and a kernel
//! module.
//!
//! # Approach
//! One module a concern: [`module`] speaks to the kernel module.
//!
//! # Units
//! Addresses are bytes, times nanoseconds, pages 4 KiB.

pub mod module;

//! In-kernel KSM from outside: its settings, cooperating processes, and the contents of their
//! memory.
//!
//! # Problem
//! Where no module can be loaded, only in-kernel KSM can merge pages. It is global, takes advice
//! from a process about its own memory alone, and keeps its settings when the program that made
//! them has ended.
//!
//! # Approach
//! - [`sysfs`] reads and sets the files below `/sys/kernel/mm/ksm`;
//! - [`original_settings`] stores the previous settings, and restores them;
//! - [`agents`] sends advice to processes that cooperate;
//! - [`memory`] reads pages of processes, and finds the merged ones;
//! - [`activity`] checks whether ksmd merges now.
//!
//! The policy (`uksm_policy::advice`) decides the advice and the times at which ksmd runs.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst, `mm/ksm.c`.

pub mod activity;
pub mod agents;
pub mod memory;
pub mod original_settings;
pub mod sysfs;

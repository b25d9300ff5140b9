//! In-kernel KSM from outside: its settings, cooperating processes, and the contents of their
//! memory.
//!
//! # Problem
//! Where no module can be loaded, only in-kernel KSM can merge pages. It is global, takes advice
//! from a process about its own memory alone, and keeps its settings when the program that made
//! them has ended.
//!
//! # Approach
//! - [`sysfs`] reads and sets what there is below `/sys/kernel/mm/ksm`;
//! - [`before`] keeps what was set there, and puts it back;
//! - [`agents`] passes advice on to processes that cooperate;
//! - [`memory`] reads pages of processes, and tells which of them are merged;
//! - [`running`] tells whether ksmd merges now.
//!
//! The policy (`uksm_policy::advice`) decides the advice and the times at which ksmd runs.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst, `mm/ksm.c`.

pub mod agents;
pub mod before;
pub mod memory;
pub mod running;
pub mod sysfs;

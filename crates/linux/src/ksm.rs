//! In-kernel KSM from outside: its knobs, cooperating processes, and what their memory holds.
//!
//! # Problem
//! Where no module can be loaded, pages can be merged by in-kernel KSM only. It is global, takes
//! advice from a process about its own memory alone, and keeps its settings when whoever made them
//! is gone.
//!
//! # Approach
//! - [`sysfs`] reads and sets what there is below `/sys/kernel/mm/ksm`;
//! - [`before`] keeps what was set there, and puts it back;
//! - [`agents`] passes advice on to processes that cooperate;
//! - [`memory`] reads pages of processes, and tells which of them are merged;
//! - [`running`] tells whether ksmd merges now.
//!
//! What is to be advised, and when ksmd runs, is the policy's (`uksm_policy::advice`).
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst, `mm/ksm.c`.

pub mod agents;
pub mod before;
pub mod memory;
pub mod running;
pub mod sysfs;

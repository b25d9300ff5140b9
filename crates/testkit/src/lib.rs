//! Tools of the tests and measurements that run on a real kernel.
//!
//! # Problem
//! Guest tests, benchmarks and the tests of the crates read the same files of the kernel, start the
//! same kind of processes and prepare the machine in the same way.
//!
//! # Approach
//! One module for each subject. A function returns the error of the system call with the name of
//! the file: tests panic with it, measurements report it. Nothing that is installed depends on this
//! crate.
//!
//! - [`child_process`]: a child process is killed and reaped;
//! - [`page_holder`]: a process with pages that the test knows;
//! - [`pagemap`]: the page frames of a process;
//! - [`page_flags`]: the kernel's flags of page frames;
//! - [`kernel_file`]: numbers and settings in files of proc, sys and cgroup;
//! - [`control_group`]: control groups, version 2;
//! - [`zram`]: a block device in memory, and swap on it;
//! - [`instructions`]: a loop of a known number of instructions.

pub mod child_process;
pub mod control_group;
pub mod instructions;
pub mod kernel_file;
pub mod page_flags;
pub mod page_holder;
pub mod pagemap;
pub mod zram;

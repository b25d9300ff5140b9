//! Boots stock kernels in QEMU: from package sources to a verdict.
//!
//! Approach: each file is one step, and hands the next one plain paths:
//! [`packages`] (the machine's package sources) → [`kernel`] and [`headers`] →
//! [`module_build`], [`programs`], [`kernel_modules`], [`libraries`] →
//! [`initramfs`] → [`qemu`] and [`accel`] → [`channel`] → [`verdict`].
//! [`cache`] keeps what is expensive, outside the tree.

pub mod accel;
pub mod boot;
pub mod cache;
pub mod channel;
pub mod debug_kernel;
pub mod headers;
pub mod initramfs;
pub mod kernel;
pub mod kernel_modules;
pub mod libraries;
pub mod machine;
pub mod module_build;
pub mod output;
pub mod packages;
pub mod program_run;
pub mod programs;
pub mod qemu;
pub mod redis;
pub mod source;
pub mod tool;
pub mod verdict;

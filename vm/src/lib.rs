//! Boots stock kernels in QEMU, runs work inside, takes one verdict.
//!
//! Problem: the module changes page tables, so it can only be tried in a machine that may die, on
//! each kernel that users run. A harness that reads an exit code, or searches a console for words,
//! mistakes a dead machine for a failed test or, worse, for a passed one.
//!
//! Approach: the harness takes kernels and headers from the machine's own package sources, builds
//! the module and static programs, packs a small initramfs and boots it. Its `/init` (`uksm-guest`,
//! of `guest-tests/`) carries out a plan and reports events, the last of them a verdict, through
//! its own virtio port. The console is only searched for complaints of the kernel. A machine
//! without a verdict is lost, which is never the same as a failed test.
//!
//! Each file is one step, and passes plain paths to the next one:
//! - the kernel: [`packages`] (package sources), [`debian`] (those of another release, and its
//!   compiler) → [`stock_kernel`], [`headers`], [`kernel_modules`]; [`source`] and [`debian`] →
//!   [`built_kernel`]; both by name in [`kernel_names`];
//! - the contents of the initramfs: [`module_build`], [`programs`], [`libraries`], [`redis`],
//!   [`python`], [`java`], [`postgres`], [`criu`], [`nested`] → [`initramfs`];
//! - the machine: [`machine`] (its shape), [`accel`], [`qemu`] → [`boot`] → [`kvm_probe`];
//! - its messages: [`channel`] → [`verdict`];
//! - one program or a shell in it: [`program_run`], [`exit_status`];
//! - a profile of its instructions: [`plugin`].
//!
//! [`cache`] stores expensive results outside the tree. `uksm_vm_protocol` defines the messages
//! between harness and guest.

pub mod accel;
pub mod boot;
pub mod built_kernel;
pub mod cache;
pub mod channel;
pub mod criu;
pub mod debian;
pub mod exit_status;
pub mod headers;
pub mod initramfs;
pub mod java;
pub mod kernel;
pub mod kernel_modules;
pub mod kernel_names;
pub mod kvm_probe;
pub mod libraries;
pub mod machine;
pub mod module_build;
pub mod nested;
pub mod output;
pub mod packages;
pub mod plugin;
pub mod postgres;
pub mod program_run;
pub mod programs;
pub mod python;
pub mod qemu;
pub mod redis;
pub mod seed;
pub mod source;
pub mod stock_kernel;
pub mod tool;
pub mod verdict;

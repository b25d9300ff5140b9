//! Boots stock kernels in QEMU, runs tests and programs inside, takes one verdict.
//!
//! Problem: the module touches page tables, so it can only be tried in a
//! machine that may die, on each kernel that users run. A harness that reads
//! an exit code, or greps a console, mistakes a dead machine for a failed test
//! or, worse, for a passed one.
//!
//! Approach: the *host* side takes kernels and headers from the machine's own
//! package sources, builds the module and static programs, packs a small
//! initramfs and boots it. The *guest* side (`guest`, the binary `uksm-guest`,
//! which is `/init`) runs a plan and reports events, the last of them a
//! verdict, through a virtio port of its own. The console is only watched for
//! kernel complaints (`markers`). No verdict means a lost machine, which is
//! never the same as a failed test.
//!
//! Nothing imports this crate.

pub mod foreign;
pub mod guest;
pub mod host;
pub mod markers;
pub mod protocol;

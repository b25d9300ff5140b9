//! Tools of tests: processes to drive, and measurements.
//!
//! Tests drive peers ([`peer`]): processes with memory ([`memory`]) whose contents can be made
//! again from a seed ([`contents`]), and which can pin pages ([`pins`]). They call the module
//! through a [`domain`], and read the true state from the kernel's own accounts ([`accounting`])
//! and page tables ([`pagemap`]). [`symbols`] shows the build options of the kernel. Long tests use
//! many [`worker`]s and a [`merger`] that merges all it can. A block device is in memory
//! ([`zram`]); the pages of a file come from a server of the tests, or fail, or never come
//! ([`fuse`]). Bounds on processor time follow the machine's [`speed`].

pub(crate) mod accounting;
pub(crate) mod cgroup;
pub(crate) mod contents;
pub(crate) mod domain;
pub(crate) mod fd_store;
pub(crate) mod fuse;
pub(crate) mod held_locks;
pub(crate) mod memory;
pub(crate) mod merger;
pub(crate) mod pagemap;
pub(crate) mod peer;
pub(crate) mod pins;
pub(crate) mod sleeper;
pub(crate) mod speed;
pub(crate) mod symbols;
pub(crate) mod worker;
pub(crate) mod zram;

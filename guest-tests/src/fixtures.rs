//! Tools of tests: processes to drive, states of the machine, and measurements.
//!
//! Tests drive peers ([`peer`]): processes with memory ([`memory`]) whose contents can be made
//! again from a seed ([`contents`]), which can pin pages ([`pins`]), have a virtual machine
//! ([`kvm`]) and be watched by userfaultfd ([`userfault`]). [`process`] forks, signals and awaits
//! processes, [`capabilities`] takes their rights. Control groups are in [`cgroup`].
//!
//! They call the module through a [`domain`], with [`requests`] that are good or wrong in one place
//! and batches of [`fold_sets`]; [`fault_switches`] leave out its steps. They read the true state
//! from the kernel's own accounts ([`accounting`]) and page tables ([`pagemap`]).
//!
//! The [`daemon`] merges peers alone or in [`two_groups`], with systemd's [`fd_store`] and
//! [`hinted_reads`]; [`explanation`] is its output on a page.
//!
//! [`ksm`], [`memory_failure`], [`memory_blocks`], [`zram`], [`held_locks`] and files of [`fuse`]
//! bring the machine into rare states. Long tests use many [`worker`]s and a [`merger`] that merges
//! all it can. [`symbols`] shows the build options of the kernel; bounds on processor time follow
//! the machine's [`speed`].

pub(crate) mod accounting;
pub(crate) mod capabilities;
pub(crate) mod cgroup;
pub(crate) mod contents;
pub(crate) mod daemon;
pub(crate) mod domain;
pub(crate) mod explanation;
pub(crate) mod fault_switches;
pub(crate) mod fd_store;
pub(crate) mod fold_sets;
pub(crate) mod fuse;
pub(crate) mod held_locks;
pub(crate) mod hinted_reads;
pub(crate) mod ksm;
pub(crate) mod kvm;
pub(crate) mod memory;
pub(crate) mod memory_blocks;
pub(crate) mod memory_failure;
pub(crate) mod merger;
pub(crate) mod pagemap;
pub(crate) mod peer;
pub(crate) mod pins;
pub(crate) mod process;
pub(crate) mod requests;
pub(crate) mod sleeper;
pub(crate) mod speed;
pub(crate) mod swapping;
pub(crate) mod symbols;
pub(crate) mod two_groups;
pub(crate) mod userfault;
pub(crate) mod worker;
pub(crate) mod zram;

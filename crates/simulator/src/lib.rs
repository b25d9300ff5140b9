//! A simulated host that the policy drives without a kernel.
//!
//! # Problem
//! Tests must show that the policy finds duplicates in time and within its budget. They must run in
//! milliseconds, give the same result each time, and need hosts larger than any test machine: with
//! terabytes, thousands of processes, and pages that change at a known rate.
//!
//! # Approach
//! [`Host`] holds processes whose pages have a *content* ([`Content`]) instead of bytes. It
//! performs the policy's commands under the rules of the contract, and returns the cost of each by
//! [`Costs`]. [`Run`] runs an engine and a host in simulated time; a closure changes the host as
//! time passes, for tests. In a [`World`] the models of [`workload`] change the host, and any
//! [`Deduplicator`] merges its pages; [`experiment`] measures them.
//!
//! # Source
//! The states and outcomes are those of `interface/uksm_ioctl.h`.

pub mod check;
mod content;
mod convert;
mod cost;
pub mod experiment;
pub mod fault;
mod frames;
mod host;
pub mod layout;
mod memory;
pub mod peer;
mod process;
mod run;
pub mod seed;
pub mod sleep;
pub mod steps;
pub mod stopwatch;
pub mod workload;
mod world;

pub use content::Content;
pub use cost::{Costs, KsmCosts};
pub use frames::FrameView;
pub use host::Host;
pub use host::sharing_chances::SharingChances;
pub use host::truth::Audit;
pub use memory::{Fill, PageView};
pub use run::{Driven, Run};
pub use world::{Alone, Deduplicator, Turn, Workload, World};

//! A simulated host: what the policy drives when no kernel is there.
//!
//! # Problem
//! Tests must show that the policy finds duplicates in time and within its budget. They must run in
//! milliseconds, give the same result each time, and need hosts that no test machine is: with
//! terabytes, thousands of processes, and pages that change at a known rate.
//!
//! # Approach
//! [`Host`] holds processes whose pages have a *content* ([`Content`]) instead of bytes. It
//! performs the policy's commands under the rules of the contract, and says what each would have
//! cost by [`Costs`]. [`Run`] lets an engine and a host run in simulated time, and a
//! closure change the host as time passes, for tests. In a [`World`] the models of [`workload`]
//! change the host, and any [`Deduplicator`] merges its pages; [`experiment`] measures them.
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
pub mod plot;
mod process;
pub mod result;
mod run;
pub mod seed;
pub mod sleep;
pub mod steps;
pub mod stopwatch;
pub mod workload;
mod world;

pub use content::Content;
pub use cost::{Costs, KsmCosts, PublishedCosts};
pub use frames::FrameView;
pub use host::Host;
pub use host::chances::Chances;
pub use host::truth::Audit;
pub use memory::{Fill, PageView};
pub use run::{Driven, Run};
pub use world::{Alone, Deduplicator, Turn, Workload, World};

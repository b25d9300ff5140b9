//! A simulated host: what the policy drives when no kernel is there.
//!
//! # Problem
//! Tests must show that the policy finds duplicates in time and within its budget. They must run in
//! milliseconds, give the same result each time, and need hosts that no test machine is: with
//! terabytes, thousands of mappings, and pages that change at a known rate.
//!
//! # Approach
//! [`Host`] holds processes whose pages have a *content* ([`Content`]) instead of bytes. It
//! performs the policy's commands under the rules of the contract, and says what each would have
//! cost by [`Costs`]. [`Run`] lets an engine and a host run in simulated time, and a
//! workload change the host as time passes.
//!
//! # Source
//! The states and outcomes are those of `interface/uksm_ioctl.h`.

mod content;
mod cost;
mod host;
mod memory;
mod run;

pub use content::Content;
pub use cost::Costs;
pub use host::Host;
pub use memory::{Fill, PageView};
pub use run::Run;

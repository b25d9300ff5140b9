//! Runs in which anything may happen, decided by one number.
//!
//! # Problem
//! Faults matter in unforeseen combinations. A failed run must be repeatable, and short
//! enough to be understood.
//!
//! # Approach
//! A [`Plan`] is made from a seed: the number of engines, their governor, the actions of the
//! processes and the faults, each at a rate. All [`checks`](crate::check) hold at every step. In
//! the last part of a run no fault strikes any more, and the engine's view must become true. A
//! failing seed is made smaller: `minimise` leaves out kinds of events and faults, and ends the
//! run early, as long as the same check fails.

mod minimise;
mod plan;
mod random_event;
mod random_processes;
mod run_of_plan;
mod swarm;

pub use minimise::minimise;
pub use plan::Plan;
pub use run_of_plan::{Outcome, run};
pub use swarm::{Swarm, swarm};

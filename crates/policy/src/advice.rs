//! The ranges to offer to in-kernel KSM, and the times at which its thread runs.
//!
//! # Problem
//! Where no module can be loaded, only in-kernel KSM can merge pages. It receives ranges, not
//! pages, it reads every page of them alike, and there is one for the whole host. A page without a
//! partner costs it nine times as much as a sample that shows the same.
//!
//! # Approach
//! [`estimates`] finds by samples the blocks of memory that pay, and the saving of a burst;
//! [`bursts`] decides when ksmd runs, so that both together keep to the governor's share. Neither
//! has a clock or reads anything: the driver reads pages, passes advice on and switches ksmd.
//!
//! # Units
//! Times in [`Nanos`](crate::command::Nanos), addresses in bytes, counts in pages, ranges
//! half-open.

pub mod bursts;
pub mod estimates;

//! What to offer to in-kernel KSM, and when its thread is to run.
//!
//! # Problem
//! Where no module can be loaded, pages can be merged by in-kernel KSM only. It is told of ranges,
//! not of pages, it looks at every page of them alike, and it is one for the whole host. A page
//! without a partner costs it nine times as much as telling so by a sample does.
//!
//! # Approach
//! [`estimates`] tells by samples which blocks of memory pay, and how much a burst would save;
//! [`bursts`] says when ksmd runs, so that both together keep to the governor's share. Neither has
//! a clock, nor reads anything: the driver reads pages, passes advice on and switches ksmd.
//!
//! # Units
//! Times in [`Nanos`](crate::command::Nanos), addresses in bytes, counts in pages, ranges
//! half-open.

pub mod bursts;
pub mod estimates;

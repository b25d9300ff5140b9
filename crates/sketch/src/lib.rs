//! Sketches of what processes hold in memory, and which of them should be grouped.
//!
//! # Problem
//! Which processes would share how much is asked before anything is merged. To keep every page of
//! every process for the answer takes as much as the index of a daemon; to compare all pairs of
//! pages takes longer than to merge them.
//!
//! # Approach
//! [`content`] gives each page a salted hash. A [`sketch`] keeps the pages of a process whose
//! hashes lie below a bound, so that two processes keep the same contents and can be compared by
//! what they kept; `frequent` counts what a process has very often, which a sample by content
//! misses. [`sharing`] estimates from sketches, each [`estimate`] with its standard error.
//! [`grouping`] joins processes that have much in common, which `holders` tells.
//!
//! Where there is no time to read everything, a sample of pages is [`chosen`] by their places;
//! [`redundancy`] counts how often what they hold was met and where, and [`occupancy`] bounds what
//! that says of all pages. [`lifetime`] tells how long pages stay as they are from some that are
//! read twice.
//!
//! This crate reads nothing, has no clock and no random source.
//!
//! # Units
//! Pages of 4 KiB; shares are parts of one.
//!
//! # Source
//! Euro-Par'11 §5.1 and §5.2: groups by sharing opportunities, told by fingerprints of memory.
//! Bottom-k samples: E. Cohen and H. Kaplan, "Summarizing data using bottom-k sketches", PODC'07.

pub mod chosen;
pub mod content;
pub mod estimate;
mod frequent;
pub mod grouping;
mod holders;
pub mod lifetime;
pub mod occupancy;
pub mod redundancy;
pub mod sharing;
pub mod sketch;
pub mod tally;

//! Sketches of the memory contents of processes, and proposals of groups.
//!
//! # Problem
//! An estimate of sharing between processes is needed before any merge. Keeping every page of every
//! process for it takes as much memory as the index of a daemon; comparing all pairs of pages takes
//! longer than merging them.
//!
//! # Approach
//! [`content`] gives each page a salted hash. A [`sketch`] keeps the pages of a process whose
//! hashes lie below a bound, so that two processes keep the same contents and can be compared by
//! them; `frequent` counts the very frequent contents of a process, which a sample by content
//! misses. [`sharing`] estimates from sketches, each [`estimate`] with its standard error.
//! [`grouping`] joins processes that have much in common, by the index in `content_holders`.
//!
//! Where there is no time to read everything, a sample of pages is drawn by their places
//! ([`bernoulli_sample`]); [`redundancy`] counts the meetings of their contents by place, and
//! [`occupancy`] bounds the inference from these to all pages. [`lifetime`] estimates how long
//! pages stay unchanged, from pages that are read twice.
//!
//! This crate reads nothing, has no clock and no random source.
//!
//! # Units
//! Pages of 4 KiB; shares are parts of one.
//!
//! # Source
//! Euro-Par'11 §5.1 and §5.2: groups by sharing opportunities, found by fingerprints of memory.
//! Bottom-k samples: E. Cohen and H. Kaplan, "Summarizing data using bottom-k sketches", PODC'07.

pub mod bernoulli_sample;
pub mod content;
mod content_holders;
pub mod estimate;
mod frequent;
pub mod grouping;
pub mod lifetime;
pub mod occupancy;
pub mod redundancy;
pub mod sharing;
pub mod sketch;
pub mod tally;

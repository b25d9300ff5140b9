//! The policy of uksm: decides what to sample, what to merge and when to sleep.
//!
//! # Problem
//! Memory holds many equal pages, most of them in few regions. Looking at every page with the
//! same effort, as in-kernel KSM does, spends nearly all time on pages that will never match.
//!
//! # Approach
//! Regions of memory climb a ladder of sampling levels by what samples of them show (UKSM §5);
//! pages are compared by hashes of a few cache lines, as few as content allows (UKSM §6). The
//! [`Engine`] is a deterministic state machine: it is handed an [`Observation`] and the time, and
//! answers with one [`Command`]. It does no I/O and has no clock, thread or random source of its
//! own, so a seed and the same observations replay any run.
//!
//! # Units
//! Time is [`Nanos`], pages are 4 KiB, hash strength counts 64-byte lines (1 to 64). Ranges are
//! half-open.
//!
//! # Source
//! Sections "UKSM §n" are those of the FAST'18 paper, "XLH §n" of the ATC'13 paper.

mod accounts;
pub mod advice;
mod clock;
pub mod command;
mod convert;
mod doc;
mod engine;
mod frugal_vec;
pub mod hash;
mod hints;
mod ids;
mod ladder;
pub mod lookup;
mod merge;
pub mod mix;
pub mod params;
pub mod region;
pub mod report;
mod spaces;

pub use command::{Command, Observation};
pub use engine::Engine;
pub use ids::RegionId;
pub use params::{ParamError, Params};
pub use report::{Outcomes, Report};

//! Groups: processes that may share pages with each other, and with nobody else (Euro-Par'11 §3).
//!
//! # Problem
//! Customers of one host must not share memory: sharing leaks what they hold, and nobody knows who
//! pays.
//!
//! # Approach
//! Each group has a domain of the module, which maps no frame into a space of another one, and a
//! process of its own, its *worker*, which can live in a control group of the operator's choice:
//! CPU and memory of deduplication are booked there. The daemon that was started is the
//! *supervisor*: it makes the workers, holds their domains, and starts a worker that died again,
//! with the frames it had.
//!
//! A process is in one group at most. Where the configuration itself puts one into two, that is an
//! error (`config/conflicts.rs`). Else the first group by name has it. Rules form groups of those
//! that no group names.

pub(crate) mod supervisor;
pub(crate) mod wire;
pub(crate) mod worker;

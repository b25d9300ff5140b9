//! Groups: processes that may share pages with each other, and with no other process (Euro-Par'11
//! §3).
//!
//! # Problem
//! Customers of one host must not share memory: sharing leaks contents, and it is unclear who pays.
//!
//! # Approach
//! Each group has a domain of the module, which maps no frame into a space of another domain, and a
//! process of its own, its *worker*, which can live in a control group of the operator's choice:
//! CPU and memory of deduplication are booked there. The daemon that was started is the
//! *supervisor*: it starts the workers, holds their domains, and restarts a worker that died, with
//! the frames it had.
//!
//! A process is in one group at most. If the configuration itself names one process in two groups,
//! that is an error (`config/conflicts.rs`). Otherwise the first group by name has it. Rules form
//! groups of processes that no group names.

pub(crate) mod supervisor;
pub(crate) mod wire;
pub(crate) mod worker;

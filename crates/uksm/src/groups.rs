//! Groups: processes that may share pages with each other, and with nobody else (Euro-Par'11 §3).
//!
//! # Problem
//! Customers of one host must not share memory: sharing leaks what they hold, and nobody knows who pays.
//!
//! # Approach
//! Each group has a domain of the module, which maps no frame into a space of another one, and a process of its own, its
//! *worker*, which can live in a control group of the operator's choice: CPU and memory of
//! deduplication are booked there. The daemon that was started is the *supervisor*: it makes the workers, holds
//! their domains, and starts a worker that died again, with the frames it had.
//!
//! A process is in one group at most. Where the configuration itself puts one into two, that is an error ([`conflicts`]). Else the
//! first group by name has it. Rules ([`rules`]) form groups of those that no group
//! names.

mod accounts;
pub(crate) mod adding;
mod answering;
mod audit;
mod breaking;
pub(crate) mod channel;
mod confinement;
mod ears;
mod forming;
pub(crate) mod giving;
mod handover;
mod hinting;
mod keeping;
pub(crate) mod line;
pub(crate) mod link;
mod pace;
mod placement;
mod privileges;
mod rating;
mod readings;
mod reload;
mod rights;
pub(crate) mod setup;
mod starting;
pub(crate) mod supervisor;
pub(crate) mod supervisor_requests;
mod tasks;
mod upkeep;
mod watching;

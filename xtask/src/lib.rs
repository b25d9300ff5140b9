//! What `make` checks.
//!
//! - [`suite`]: everything of `make test`, with one closing line.
//! - [`campaign`]: the guest's tests on one kernel, over as many boots as they need.
//! - [`foreign`]: other people's tests, compared with and without the module.
//!
//! The rules of the tree (who may import whom, how long a file may be) are tests of this crate.

pub mod campaign;
pub mod foreign;
pub mod suite;

//! The checks of `make`.
//!
//! - [`suite`]: everything of `make test`, with one closing line.
//! - [`campaign`]: the guest's tests on one kernel, over as many boots as they need.
//! - [`foreign`]: other people's tests, compared with and without the module.
//! - [`own_files`]: the files that the suite and the rules of the tree examine.
//!
//! The rules of the tree (permitted imports, length of files) are tests of this crate.

pub mod campaign;
pub mod foreign;
pub mod own_files;
pub mod suite;

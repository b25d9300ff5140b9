//! The suite of `make test`.

pub mod campaign;
pub mod foreign;
pub mod suite;

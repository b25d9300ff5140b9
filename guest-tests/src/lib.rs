//! The programs of a test guest: `/init`, the tests, and tests of other projects.
//!
//! - [`init`] is the program `uksm-guest`: it carries out a plan and powers off.
//! - [`cases`] is the table of tests, one file a concern; the fuzzer is one of them. A new test is
//!   a function and a line in its file's table.
//! - `fixtures` is what tests drive and measure: processes with known contents, a domain of the
//!   module, page tables and counters of the kernel.
//! - [`foreign`] is the program `uksm-foreign`: it runs other people's tests, with and without the
//!   torturer.
//!
//! The suite (`xtask`) reads the table of tests to choose the tests of a guest.

pub mod case;
pub mod cases;
mod fixtures;
pub mod foreign;
pub mod init;
mod kmsg;
mod modules;
mod ports;

//! The contract of `uksm_ioctl.h`, as Rust sees it.
//!
//! # Problem
//! Module and program are compiled apart. If a field stood at another offset on one side, or a
//! value had another meaning, the two would misunderstand each other without a word.
//!
//! # Approach
//! The header is the only text of the contract; `build.rs` makes this crate from it. Structures
//! and constants have their names in C. Enums have Rust names: `UKSM_STATE_ANON` is
//! [`State::Anon`]. A call is a [`Verb`]; the structure that it takes is a [`Request`]. The test
//! `contract` compares every name, size, offset, type and value with what the C compiler makes
//! of the header.
//!
//! # Source
//! `uksm_ioctl.h`, whose comments are the documentation of the items here.

pub mod advice;
pub mod tried_kernels;

/// A structure that a call takes.
pub trait Request {
    /// The call.
    const VERB: Verb;
}

/// Properties of a sampled page (`UKSM_PAGE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageFlags(pub u16);

impl PageFlags {
    /// Whether any of `bits` is set.
    #[must_use]
    pub fn any(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

#[expect(
    missing_docs,
    reason = "bindgen leaves out a macro's comment; a field without one has a name that says it"
)]
#[expect(non_camel_case_types, reason = "structures keep their names in C")]
mod contract {
    use super::{PageFlags, Request};

    include!(concat!(env!("OUT_DIR"), "/contract.rs"));
}

pub use contract::*;

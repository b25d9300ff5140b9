//! Variants compared on equal memory: each on fresh processes with the same contents, in turn.
//!
//! - [`trial`]: one variant against one workload;
//! - [`rounds`]: several trials, in turn;
//! - [`average`]: variants whose figure is a mean over time;
//! - [`watch`]: the looks at processes and system while a variant runs.

pub(crate) mod average;
pub(crate) mod rounds;
pub(crate) mod trial;
pub(crate) mod watch;

//! Variants compared on equal memory: each on fresh processes with the same contents, in turn.
//!
//! - [`trial`]: one variant against one workload, and rounds of several;
//! - [`average`]: variants whose figure is a mean over time;
//! - [`watch`]: the looks at processes and system while a variant runs.

pub(crate) mod average;
pub(crate) mod trial;
pub(crate) mod watch;

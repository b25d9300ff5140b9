//! What cases drive and measure.

pub(crate) mod accounting;
pub(crate) mod cgroup;
pub(crate) mod contents;
pub(crate) mod domain;
pub(crate) mod memory;
pub(crate) mod merger;
pub(crate) mod pagemap;
pub(crate) mod peer;
pub(crate) mod pins;
pub(crate) mod sleeper;
pub(crate) mod worker;

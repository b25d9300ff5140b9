//! Measuring: memory counted from page tables, CPU from the scheduler's clocks.

pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod duplicates;
pub(crate) mod frames;
pub(crate) mod machine;
pub(crate) mod pagemap;
pub(crate) mod sharing;
pub(crate) mod window;

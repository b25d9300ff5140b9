//! Measuring: memory counted from page tables, CPU from the scheduler's clocks.

pub mod clock;
pub mod cpu;
pub mod duplicates;
pub mod pagemap;
pub mod timeline;

//! Measuring the measurement: where instructions go, and how well the simulator agrees with guests.
//!
//! - [`by_function`]: instructions by owner and function, as the emulator's plugin (`vm/plugin/`)
//!   counts them;
//! - [`cpu_parts`]: the parts of the daemon's CPU, from results of experiments;
//! - [`realism`]: the same workloads in guests and on simulated hosts, at the costs that
//!   [`microbenchmarks`](crate::microbenchmarks) measured.

pub(crate) mod by_function;
pub(crate) mod cpu_parts;
pub(crate) mod realism;

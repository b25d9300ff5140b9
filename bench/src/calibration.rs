//! Measuring the measurement: where instructions go, what each operation costs, and how well the
//! simulator agrees with guests.
//!
//! - [`by_function`]: instructions by owner and function, as the emulator's plugin (`vm/plugin/`)
//!   counts them;
//! - [`cpu_parts`]: the parts of the daemon's CPU, from results of experiments;
//! - [`microbenchmarks`]: operations alone, and the simulator's file of costs made of them;
//! - [`realism`]: the same workloads in guests and on simulated hosts.

pub(crate) mod by_function;
pub(crate) mod cpu_parts;
pub(crate) mod microbenchmarks;
pub(crate) mod realism;

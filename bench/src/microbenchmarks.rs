//! Operations measured alone, inside a guest.
//!
//! - [`sample_cost`], [`fold_cost`]: one page in the module's calls, beside ksmd;
//! - [`primitives`]: operations on pages, in caches and in memory;
//! - [`calibrate`]: each cost of the simulator, which [`cost_file`] writes as its file.

pub(crate) mod calibrate;
pub(crate) mod cost_file;
pub(crate) mod fold_cost;
mod page_cost;
pub(crate) mod primitives;
pub(crate) mod sample_cost;

//! Pages and MiB.

use crate::contents::PAGE;

/// Pages in a MiB.
pub(crate) const MIB_PAGES: usize = (1 << 20) / PAGE;

/// Pages as MiB.
pub(crate) fn mib(pages: usize) -> f64 {
    pages as f64 / MIB_PAGES as f64
}

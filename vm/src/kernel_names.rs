//! The kernels by name: "6.12" and "6.12-rt" are stock kernels, "newest" is the stock kernel with
//! the highest number that Debian 13 or its backports have, and "6.12-debug" and "7.3-cfi" are
//! built here.

use anyhow::Result;

use crate::built_kernel::{self, Kind};
use crate::kernel::{Kernel, REAL_TIME};
use crate::stock_kernel::{self, Flavour};

/// The name of the newest stock kernel. Its series changes with Debian's backports, which keep only
/// the last one.
pub const NEWEST: &str = "newest";

/// The kernels of every full test run.
pub const STOCK: [&str; 3] = ["6.1", "6.12", NEWEST];

/// These names of kernels, or the default ones if there are none.
#[must_use]
pub fn or_default(names: Vec<String>, default: &[&str]) -> Vec<String> {
    if names.is_empty() {
        default.iter().map(ToString::to_string).collect()
    } else {
        names
    }
}

/// Gets the kernel of this name: a series for a stock one, a series with "-rt" for its real-time
/// one, [`NEWEST`], or a series with one of [`Kind`].
///
/// # Errors
/// There is no such kernel, or it cannot be obtained.
pub fn named(name: &str) -> Result<Kernel> {
    if name == NEWEST {
        return stock_kernel::newest();
    }
    for kind in Kind::ALL {
        let series = name.strip_suffix(kind.word());
        if let Some(series) = series.and_then(|series| series.strip_suffix('-')) {
            return built_kernel::get(series.parse()?, kind);
        }
    }
    match name.strip_suffix(REAL_TIME) {
        Some(series) => stock_kernel::get(series.parse()?, Flavour::RealTime),
        None => stock_kernel::get(name.parse()?, Flavour::Cloud),
    }
}

//! The kernels by name: "6.12" and "6.12-rt" are stock kernels, "6.12-debug" is built here.

use anyhow::Result;

use crate::built_kernel::{self, Kind};
use crate::kernel::{Kernel, REAL_TIME, Series};
use crate::stock_kernel::{self, Flavour};

/// The kernels of every full test run.
pub const STOCK: [Series; 2] = [
    Series { major: 6, minor: 1 },
    Series {
        major: 6,
        minor: 12,
    },
];

/// These names of kernels, or those of the stock ones if there are none.
#[must_use]
pub fn or_stock(names: Vec<String>) -> Vec<String> {
    if names.is_empty() {
        STOCK.iter().map(ToString::to_string).collect()
    } else {
        names
    }
}

/// Gets the kernel of this name: a series for a stock one, a series with "-rt" for its real-time
/// one, or one of [`Kind`].
///
/// # Errors
/// There is no such kernel, or it cannot be obtained.
pub fn named(name: &str) -> Result<Kernel> {
    match Kind::ALL
        .into_iter()
        .find(|kind| kind.kernel_name() == name)
    {
        Some(kind) => built_kernel::get(kind),
        None => match name.strip_suffix(REAL_TIME) {
            Some(series) => stock_kernel::get(series.parse()?, Flavour::RealTime),
            None => stock_kernel::get(name.parse()?, Flavour::Cloud),
        },
    }
}

//! Costs of parts of calls.

use std::collections::BTreeMap;

/// Costs by their names in the file, in nanoseconds.
pub(crate) type Costs = BTreeMap<&'static str, f64>;

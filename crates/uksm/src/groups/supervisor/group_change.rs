//! The groups as a change wants them.

use crate::config::current::AddedPlan;
use crate::config::plans::Plans;

/// The target of a change.
#[derive(Debug)]
pub(super) enum GroupChange {
    /// All groups of a configuration, and no others.
    All(Box<Plans>),
    /// One group that is added or changed.
    One(Box<AddedPlan>),
    /// One group is removed.
    Gone(String),
}

//! The groups as a change wants them.

use crate::config::current::AddedPlan;
use crate::config::plans::Plans;

/// What groups are to become.
#[derive(Debug)]
pub(super) enum Wanted {
    /// All that a configuration says, and no others.
    All(Box<Plans>),
    /// One group that was added, or changed.
    One(Box<AddedPlan>),
    /// One group is not wanted any more.
    Gone(String),
}

//! Merging: the queue of pages, and the counts of outcomes.

pub(crate) mod outcomes;
pub(crate) mod queue;

//! Processor time: budgets, and who pays.

pub(crate) mod budget;
pub(crate) mod payer;

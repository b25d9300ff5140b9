//! Real programs as workloads: redis, Python and PostgreSQL, unchanged.

pub(crate) mod line_program;
pub(crate) mod postgres;
pub(crate) mod program_setup;
pub(crate) mod python;
pub(crate) mod redis;

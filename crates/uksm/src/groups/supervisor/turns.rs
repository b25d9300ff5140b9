//! The turns of the supervisor's loop.
//!
//! Most turns are a type with a state of its own, and a method `turn`. Three are methods of the
//! supervisor, because they have no state, and use or change all parts: `task_turn.rs` and its
//! steps, `reload.rs` and `requests.rs`.

pub(super) mod formed_groups;
pub(super) mod hint_dispatch;
pub(super) mod hourly_audit;
pub(super) mod ledger_writer;
pub(super) mod process_discovery;
pub(super) mod rates;
pub(super) mod redistribution;
mod reload;
mod requests;
pub(super) mod systemd_notices;
mod task_turn;

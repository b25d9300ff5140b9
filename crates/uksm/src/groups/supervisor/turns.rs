//! The turns of the supervisor's loop: each has a file, and its state is in a file above.

mod formation;
mod group_commands;
mod ledger_writer;
mod process_discovery;
mod rate_turn;
mod redistribution_turn;
mod reload;
mod requests;
mod savings_turn;
mod task_turn;

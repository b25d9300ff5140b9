//! The machine and the process list on real processes, over a domain that needs no kernel module.

mod contents;
mod fake;
mod groups;
mod machine;
mod processes;

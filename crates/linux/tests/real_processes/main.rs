//! The machine and the census on real processes, over a domain that needs no kernel module.

mod fake;
mod machine;
mod processes;

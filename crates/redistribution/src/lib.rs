//! Redistribution: memory freed by a group's merging goes back to its members.
//!
//! # Problem
//! Memory that merging frees is the host's, although the members of one group earned it. They
//! should get it: as larger limits of their control groups, or as larger virtual machines. It is
//! theirs only as long as pages stay merged, so it must come back in time, and no member may lose
//! its own memory.
//!
//! # Approach
//! [`targets`] decides the size of each member, and [`guard`] whether memory may be given now. They
//! are pure, use neither clock nor file, and the same input gives the same output.
//! [`Redistribution`] is the loop between them and the [`Actuator`]s, each of which has a thread of
//! its own, so that one that hangs does not delay others.
//!
//! [`rates`] decides the share of a processor that the merging of each group may use, and so how
//! fast it frees memory.
//!
//! # Units
//! Sizes are bytes. Times are [`Nanos`] of one monotonic clock.
//!
//! # Source
//! Euro-Par'11 §3.1 (redistributor of a group), §3.2, §4.1, §5.2, §5.3; design of the balloon: ESX
//! (OSDI'02) §3.

mod actuator;
mod balloon;
mod cgroup;
pub mod cgroup_tree;
mod contribution;
mod event;
pub mod guard;
mod host;
mod member_thread;
pub mod pressure;
mod processes;
pub mod proportional_shares;
pub mod rates;
mod redistribution;
mod restore_journal;
pub mod settings;
mod size_control_actuator;
mod stale_limits;
pub mod status;
pub mod targets;

pub use actuator::{Actuator, Error, Sizes};
pub use event::Event;
pub use guard::Nanos;
pub use redistribution::{Freed, FreedBy, Redistribution, Roots};

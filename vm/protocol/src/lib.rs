//! The agreement between the machine harness and the program inside the guest.
//!
//! Problem: both need it, and neither may need the other. The guest's program would be linked with
//! the code that builds and boots machines; the harness would know every test.
//!
//! Approach: a crate with nothing but the agreement: the [`messages`], the kinds of [`machine`],
//! and the [`markers`] by which both recognise a complaint of the kernel.

pub mod machine;
pub mod markers;
pub mod messages;

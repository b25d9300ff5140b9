//! Tests of other projects, with and without the module.
//!
//! # Problem
//! Our own tests find only faults that we thought of. Programs that others wrote to test the
//! kernel's memory management must not notice the module at all.
//!
//! # Approach
//! The kernel's self-tests ([`selftests`]) and the memory stressors of stress-ng ([`stress_ng`])
//! run in one guest, in four arms ([`Arm`](uksm_guest_tests::foreign::schedule::Arm)): twice
//! without the module (once alone, once beside a program that uses as much processor time as the
//! torturer), with the module and a quiet daemon, and under a torturer that exchanges every page of
//! every process all the time. The output of each program is read as named outcomes ([`outcome`]);
//! they must be equal in all arms ([`compare`]). All arms share one boot, because a difference
//! between boots would look like one between arms; the arms without the module come first.
//!
//! An outcome that differs between the two arms without the module depends on chance or on time; it
//! is listed, and in the others it must be one of the two. A run in which the torturer exchanged
//! few pages proves nothing, and fails.

pub mod allowed_differences;
pub mod campaign;
pub mod compare;
pub mod outcome;
pub mod report;
pub mod selftests;
pub mod stress_ng;

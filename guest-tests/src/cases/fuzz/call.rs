//! One random call of the device: good, spoiled, or nonsense.
//!
//! # Problem
//! Calls of random bytes all end at the first check. To reach page tables a call must be nearly
//! right, and to find faults behind the checks it must then be wrong in one place.
//!
//! # Approach
//! A call starts as a good one for live spaces, frames and addresses, half of them in still areas
//! of the targets and half where page tables come and go. One in four is then spoiled: some bits of
//! its request or of its arrays are flipped. Some name an address beyond user space, and must be
//! EINVAL as a whole, since no other check keeps the module from reading there ([`material`]). The
//! rest of each verb is a row of [`verbs`].
//!
//! # Source
//! `interface/uksm_ioctl.h`.

mod material;
mod verbs;

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::fixtures::contents::Random;
use material::Call;
pub(super) use material::{Buffers, Material, device};
pub(super) use verbs::VERBS;

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Called {
    /// Index into [`VERBS`].
    pub verb: usize,
    /// The errno, 0 if it was taken.
    pub errno: i32,
    /// Whether it read page tables of a live process.
    pub reached: bool,
}

impl Buffers {
    /// Makes and sends one call.
    pub(super) fn call(
        &mut self,
        device: BorrowedFd<'_>,
        material: &Material,
        random: &mut Random,
    ) -> Called {
        let verb = verbs::pick(random);
        let call = Call {
            device,
            material,
            spoil: random.chance(1, 4),
            random,
        };
        let (result, reached) = (VERBS[verb].send)(self, call);
        let errno = result.err().map_or(0, Errno::raw_os_error);
        Called {
            verb,
            errno,
            reached: reached && errno == 0,
        }
    }
}

//! Guests that boot one after the other, beside both peers.
//!
//! Small guests in quick succession, and as in UKSM §8.2.1: 25 of 512 MiB, and 40 of 1 GiB, ten
//! seconds apart. There the 40 had more memory than the host; a simulated host has all memory, and
//! the savings show the amount that it would have needed.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use super::case::{Case, KSM_ADVISOR, KSM_SHIPPED, KSM_UNLIMITED, MIB, Variant};
use crate::workload::{Boots, SECOND};

/// Time measured after the last boot began.
const AFTER: Nanos = 30 * SECOND;

/// Number of guests, MiB of each, and the time between two.
const BOOTS: [(&str, u64, u64, Nanos); 4] = [
    ("25 guests", 25, 128, 4 * SECOND),
    ("200 guests", 200, 128, 4 * SECOND),
    ("25 of 512 MiB", 25, 512, 10 * SECOND),
    ("40 of 1 GiB", 40, 1024, 10 * SECOND),
];

pub(super) fn cases(seed: u64) -> Vec<Case> {
    BOOTS
        .map(|(name, guests, mib, interval)| Case {
            variants: vec![
                Variant::Uksm(Governor::Full),
                Variant::Uksm(Governor::Low),
                KSM_UNLIMITED,
                KSM_SHIPPED,
                KSM_ADVISOR,
            ],
            limit: guests * interval + AFTER,
            ..Case::new(name.to_owned(), move || {
                vec![Box::new(Boots::new(guests, mib * MIB, interval, seed))]
            })
        })
        .into()
}

//! Guests that boot one after the other, beside both peers.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use super::{Case, KSM_ADVISOR, KSM_SHIPPED, KSM_UNLIMITED, MIB, Variant};
use crate::workload::{Boots, SECOND};

/// Pages of a guest.
const PAGES: u64 = 128 * MIB;
/// Time between two boots.
const INTERVAL: Nanos = 4 * SECOND;
/// How long is looked on after the last boot began.
const AFTER: Nanos = 30 * SECOND;

pub(super) fn cases(seed: u64) -> Vec<Case> {
    [25, 200]
        .map(|guests| Case {
            variants: vec![
                Variant::Uksm(Governor::Full),
                Variant::Uksm(Governor::Low),
                KSM_UNLIMITED,
                KSM_SHIPPED,
                KSM_ADVISOR,
                Variant::Published(Governor::Full),
            ],
            limit: guests * INTERVAL + AFTER,
            ..Case::new(format!("{guests} guests"), move || {
                vec![Box::new(Boots::new(guests, PAGES, INTERVAL, seed))]
            })
        })
        .into()
}

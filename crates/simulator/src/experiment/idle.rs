//! Processes that do nothing and have nothing in common: the cost of watching them for an hour.

use uksm_policy::params::Governor;

use super::case::{Case, Variant};
use crate::workload::{Crowd, SECOND};

pub(super) fn cases(seed: u64) -> Vec<Case> {
    [100, 1000, 5000]
        .map(|idle| Case {
            variants: vec![
                Variant::Uksm(Governor::Full),
                Variant::Uksm(Governor::Low),
                Variant::Uksm(Governor::Quiet),
            ],
            // By then all of them are known.
            begin: 600 * SECOND,
            limit: 3600 * SECOND,
            ..Case::new(format!("{idle} idle"), move || {
                vec![Box::new(Crowd::new(idle, 0, 0, 0, seed))]
            })
        })
        .into()
}

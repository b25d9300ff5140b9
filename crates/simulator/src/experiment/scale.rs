//! Hosts of each size: the cost of a GiB, which should not grow, and the memory of the engine.

use uksm_policy::params::Governor;

use super::case::{Case, MIB, Variant};
use crate::layout::{Arrangement, Layout};
use crate::workload::{SECOND, Scatter};

const GIB: u64 = 1024 * MIB;

/// Memory in GiB and processes of each case. 256 GiB are 64 Mi pages; a TiB takes twelve bytes here
/// for each of its pages.
const SIZES: [(u64, u64); 6] = [
    (1, 10),
    (4, 40),
    (16, 160),
    (64, 640),
    (256, 2560),
    (1024, 5000),
];

/// Larger hosts run at governor full only: the cost of a GiB is the same, and the others take
/// hours.
const LARGEST_FOR_ALL: u64 = 16;

pub(super) fn cases(seed: u64) -> Vec<Case> {
    SIZES
        .map(|(gib, processes)| {
            let scatter = Scatter {
                processes,
                layout: Layout {
                    pages: gib * GIB / processes,
                    percent: 40,
                    place: Arrangement::GuestRuns,
                    pool: 1,
                    seed,
                },
                begin: 0,
            };
            let governors: &[Governor] = match gib {
                ..=LARGEST_FOR_ALL => &Governor::ALL,
                _ => &[Governor::Full],
            };
            Case {
                variants: governors.iter().copied().map(Variant::Uksm).collect(),
                limit: 60 * SECOND + 100 * gib * SECOND,
                percent: Some(90),
                ..Case::new(format!("{gib} GiB"), move || {
                    vec![Box::new(scatter.clone())]
                })
            }
        })
        .into()
}

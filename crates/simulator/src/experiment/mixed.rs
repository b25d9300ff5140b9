//! The other workloads, each for a while.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use super::case::{Case, KSM_ADVISOR, KSM_SHIPPED, KSM_UNLIMITED, MIB, Variant};
use crate::Workload;
use crate::workload::{
    Boots, Fleet, Guests, Rewritten, SECOND, ShortLived, Snapshots, StaticMixed, Zipf,
};

pub(super) fn cases(seed: u64) -> Vec<Case> {
    vec![
        until_merged("static mixed", move || {
            let pages = 256 * MIB;
            Box::new(StaticMixed {
                pages,
                identical_first: false,
                seed,
            })
        }),
        until_merged("guests", move || {
            let pages = 512 * MIB;
            Box::new(Guests {
                guests: 4,
                pages,
                seed,
            })
        }),
        until_merged("zipf", move || {
            Box::new(Zipf {
                processes: 8,
                pages: 64 * MIB,
                pool: 1 << 20,
                seed,
            })
        }),
        for_a_while("boots", 180, move || {
            Box::new(Boots::new(8, 256 * MIB, 15 * SECOND, seed))
        }),
        for_a_while("snapshots", 60, move || {
            Box::new(Snapshots::new(10, 64 * MIB, SECOND, 200, seed))
        }),
        for_a_while("fleet", 60, move || {
            Box::new(Fleet::new(12, 16 * MIB, 2 * SECOND, seed))
        }),
        for_a_while("rewritten", 60, move || {
            Box::new(Rewritten::new(64 * MIB, 3 * SECOND, 2, seed))
        }),
        for_a_while("short-lived", 60, move || {
            Box::new(ShortLived::new(SECOND / 200, SECOND / 5, 128, seed))
        }),
    ]
}

fn until_merged(
    name: &str,
    workload: impl Fn() -> Box<dyn Workload> + Send + Sync + 'static,
) -> Case {
    Case {
        percent: Some(95),
        ..for_a_while(name, 120, workload)
    }
}

fn for_a_while(
    name: &str,
    seconds: Nanos,
    workload: impl Fn() -> Box<dyn Workload> + Send + Sync + 'static,
) -> Case {
    Case {
        variants: vec![
            Variant::Uksm(Governor::Full),
            KSM_UNLIMITED,
            KSM_SHIPPED,
            KSM_ADVISOR,
        ],
        limit: seconds * SECOND,
        ..Case::new(name.to_owned(), move || vec![workload()])
    }
}

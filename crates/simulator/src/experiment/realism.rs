//! The workloads of the guest experiments, with the same sizes, shares, parameters and times.
//!
//! `uksm-bench realism` runs those in a guest and these here, and compares. A case's name is that
//! of the guest's experiment, a colon, and that of its case.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use super::case::{Case, KSM_1000, KSM_UNLIMITED, MIB, Variant};
use crate::Workload;
use crate::layout::{Arrangement, Layout};
use crate::peer::KsmSettings;
use crate::workload::{Loop, Order, SECOND, Scatter, StaticMixed};

/// MiB of a process.
const SIZE: u64 = 64;
/// Time that a guest experiment measures after 95 %, for the rest.
const AFTERWARDS: Nanos = 3 * SECOND / 2;
/// Time before a mean over time begins.
const WARM_UP: Nanos = 8 * SECOND;
/// Time that a loop is watched.
const WATCHED: Nanos = 30 * SECOND;
/// A step of a loop.
const STEP: Nanos = SECOND / 100;
/// Pages that a loop writes in a step, their order, and the suffix of the case: the paper's loop,
/// and a fast one.
const LOOPS: [(u64, Order, &str); 2] = [(1, Order::InTurn, ""), (200, Order::Random, " anywhere")];

/// uksm without the filter against broken pages, at a share of a core.
const UNFILTERED: [Variant; 2] = [
    Variant::Set("uksm-unfiltered", &[("cpu", "0.1"), ("v_cow", "off")]),
    Variant::Set("uksm-unfiltered", &[("cpu", "0.2"), ("v_cow", "off")]),
];

/// KSM capped at a share of a core.
const fn capped(percent: u32) -> Variant {
    Variant::Ksm(
        "ksm-held",
        KsmSettings {
            pages_to_scan: 200,
            sleep: 20_000_000,
            smart_scan: true,
            advisor: false,
            cap_percent: Some(percent),
        },
    )
}

/// The layouts of scatter that are compared, by their names in the guest.
const LAYOUTS: [(&str, u64, Arrangement); 5] = [
    ("20-same", 20, Arrangement::Same),
    ("5-shuffled", 5, Arrangement::Singly),
    ("100-shuffled", 100, Arrangement::Singly),
    ("20-runs", 20, Arrangement::GuestRuns),
    ("45-runs64", 45, Arrangement::Runs(64)),
];

pub(super) fn cases(seed: u64) -> Vec<Case> {
    let mut cases = vec![];
    for (mib, identical_first) in [
        (SIZE, false),
        (SIZE, true),
        (2 * SIZE, false),
        (4 * SIZE, false),
    ] {
        let order = if identical_first {
            "identical"
        } else {
            "random"
        };
        let name = format!("static-mixed: {mib} MiB, {order} first");
        cases.push(until_merged(name, move || {
            let pages = mib * MIB;
            Box::new(StaticMixed {
                pages,
                identical_first,
                seed,
            })
        }));
    }
    for mib in [SIZE, 2 * SIZE, 4 * SIZE] {
        cases.push(two(
            format!("clone: {mib} MiB"),
            mib,
            100,
            Arrangement::Same,
            seed,
        ));
    }
    for (name, percent, place) in LAYOUTS {
        cases.push(two(format!("scatter: {name}"), SIZE, percent, place, seed));
    }
    let all = SIZE * MIB;
    let rewritten = "cow-broken: rewritten every 2.5 s".to_owned();
    let variants = vec![Variant::Uksm(Governor::Full), KSM_1000];
    let in_turn = Loop::new(all, all.div_ceil(250), STEP, Order::InTurn, seed);
    cases.push(watched(rewritten, in_turn, variants));
    for (per_step, order, place) in LOOPS {
        for (percent, unfiltered) in [10, 20].into_iter().zip(UNFILTERED) {
            let rate = per_step * 100;
            let name = format!("cow-broken: {SIZE} MiB, {rate} pages/s{place}, {percent} % CPU");
            let work = Loop::new(all, per_step, STEP, order, seed);
            cases.push(watched(name, work, vec![unfiltered, capped(percent)]));
        }
    }
    cases
}

/// Two processes of which a share is equal.
fn two(name: String, mib: u64, percent: u64, place: Arrangement, seed: u64) -> Case {
    let scatter = Scatter {
        processes: 2,
        layout: Layout {
            pages: mib * MIB,
            percent,
            place,
            pool: 1,
            seed,
        },
        begin: 0,
    };
    until_merged(name, move || Box::new(scatter.clone()))
}

fn until_merged(
    name: String,
    workload: impl Fn() -> Box<dyn Workload> + Send + Sync + 'static,
) -> Case {
    Case {
        variants: vec![Variant::Uksm(Governor::Full), KSM_UNLIMITED],
        limit: 60 * SECOND,
        percent: Some(95),
        after: AFTERWARDS,
        ..Case::new(name, move || vec![workload()])
    }
}

/// A loop over equal pages, watched for a while.
fn watched(name: String, work: Loop, variants: Vec<Variant>) -> Case {
    Case {
        variants,
        limit: WATCHED,
        warm_up: Some(WARM_UP),
        ..Case::new(name, move || vec![Box::new(work.clone())])
    }
}

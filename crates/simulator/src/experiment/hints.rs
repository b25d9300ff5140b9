//! The value of hints of I/O: guests whose page caches fill from their disks (XLH §5.2).
//!
//! # Problem
//! Guests read equal contents, and keep them for minutes. A scan of all memory comes late, at any
//! cost of a look; the delay grows with the host.
//!
//! # Approach
//! Builds and web servers ([`Disks`]) in 25 and 200 guests of 32 MiB. Together 25 have about as
//! much memory as the paper's two machines, so a full scan of KSM at a rate takes about as long;
//! they read as many pages a second for each MiB as the machines of the guest experiments
//! `hints-build` and `hints-web`, so cached pages live as long.
//!
//! All are held at shares of a core: 2 %, of which uksm needs less in 25 guests, 10 %, which KSM
//! and XLH take with 100 pages each 20 ms (XLH Table 1), and without a limit. KSM and XLH also run
//! at that rate. KSM has the kernel's defaults but for smart scan, which leaves out pages that were
//! examined in vain though they are written again: `ksm-shipped` has it, the others not.
//! `ksm-6.1-…` is the older ksmd on which XLH is built. The unstable trees of all are real ones.
//! XLH's stack holds as many pages as its hint spurts can follow in 16 s (Table 2).
//!
//! The measures are the area under merged pages as a share of the pages that could be shared at
//! each moment, the wait of a chance to share, and CPU.
//!
//! # Source
//! XLH §5.1 to §5.4.

use std::collections::BTreeMap;

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;
use uksm_results::report::Report;

use super::case::{Case, Indexed, MIB, Variant};
use crate::peer::{Entered, KsmSettings, XlhSettings};
use crate::workload::{Disks, Load, SECOND};
use crate::{SharingChances, convert};

/// Pages of a guest.
const PAGES: u64 = 32 * MIB;
/// Time measured from the start of the systems: ten seconds before the first guest reads.
const LIMIT: Nanos = 250 * SECOND;

const RATE: KsmSettings = KsmSettings {
    pages_to_scan: 100,
    sleep: 20_000_000,
    smart_scan: false,
    advisor: false,
    cap_percent: None,
};
const SMART: KsmSettings = KsmSettings {
    smart_scan: true,
    ..RATE
};
const UNLIMITED: KsmSettings = KsmSettings {
    pages_to_scan: 1000,
    sleep: 0,
    ..RATE
};

/// ksmd capped at a share of a core.
const fn capped(percent: u32) -> KsmSettings {
    KsmSettings {
        cap_percent: Some(percent),
        ..RATE
    }
}

/// XLH with the paper's settings, on this ksmd.
const fn xlh(ksm: KsmSettings, stack: usize) -> XlhSettings {
    XlhSettings {
        ksm,
        hint_runs: 1,
        scan_runs: 1,
        stack,
        entered: Entered::ReadOnly,
    }
}

/// The ksmd on which XLH is built, without hints.
const fn unhinted(ksm: KsmSettings) -> XlhSettings {
    XlhSettings {
        hint_runs: 0,
        ..xlh(ksm, 1)
    }
}

/// The paper's stack at 100 pages each 20 ms, and stacks for 16 s at a fifth and at ten times the
/// rate.
const STACK: usize = 40_960;
const SMALL_STACK: usize = STACK / 5;
const LARGE_STACK: usize = 10 * STACK;

const VARIANTS: [Variant; 19] = [
    Variant::Oracle,
    Variant::KsmTree("ksm-shipped", SMART),
    Variant::KsmTree("ksm-100", RATE),
    Variant::Xlh("ksm-6.1-100", unhinted(RATE)),
    Variant::Xlh("xlh-100", xlh(RATE, STACK)),
    Variant::Xlh(
        "xlh-100-writable",
        XlhSettings {
            entered: Entered::Writable,
            ..xlh(RATE, STACK)
        },
    ),
    Variant::KsmTree("ksm-at-2", capped(2)),
    Variant::Xlh("xlh-at-2", xlh(capped(2), SMALL_STACK)),
    Variant::Set("uksm-at-2-no-hints", &[("cpu", "0.02"), ("hint_runs", "0")]),
    Variant::Set("uksm-at-2", &[("cpu", "0.02")]),
    Variant::KsmTree("ksm-at-10", capped(10)),
    Variant::Xlh("xlh-at-10", xlh(capped(10), STACK)),
    Variant::Set("uksm-at-10-no-hints", &[("cpu", "0.1"), ("hint_runs", "0")]),
    Variant::Set("uksm-at-10", &[("cpu", "0.1")]),
    Variant::KsmTree("ksm-unlimited", UNLIMITED),
    Variant::Xlh("ksm-6.1-unlimited", unhinted(UNLIMITED)),
    Variant::Xlh("xlh-unlimited", xlh(UNLIMITED, LARGE_STACK)),
    Variant::Set("uksm-full-no-hints", &[("hint_runs", "0")]),
    Variant::Uksm(Governor::Full),
];

/// Comparisons: our variant, and others that may take as much CPU.
const COMPARED: [(&str, [&str; 4]); 3] = [
    (
        "uksm-at-2",
        ["uksm-at-2-no-hints", "ksm-at-2", "xlh-at-2", "oracle"],
    ),
    (
        "uksm-at-10",
        ["uksm-at-10-no-hints", "ksm-at-10", "xlh-at-10", "oracle"],
    ),
    (
        "uksm-full",
        [
            "uksm-full-no-hints",
            "ksm-unlimited",
            "xlh-unlimited",
            "oracle",
        ],
    ),
];

/// MiB saved times seconds.
const AREA: &str = "area_mib_seconds";

pub(super) fn cases(seed: u64) -> Vec<Case> {
    let mut cases = vec![];
    for (what, load) in [("build", Load::Build), ("web", Load::Web)] {
        for guests in [25, 200] {
            cases.push(Case {
                variants: VARIANTS.into(),
                limit: LIMIT,
                chances: true,
                ..Case::new(format!("{what}, {guests} guests"), move || {
                    vec![Box::new(Disks::new(load, guests, PAGES, seed))]
                })
            });
        }
    }
    for changed_percent in [1, 5, 20, 50] {
        cases.push(Case {
            variants: Indexed::ALL.map(Variant::Indexed).into(),
            changed_percent,
            ..Case::new(format!("index, {changed_percent} % change"), Vec::new)
        });
    }
    cases
}

/// The chances of a variant, as figures.
pub(super) fn figures(variant: Variant, chances: &SharingChances) -> BTreeMap<String, f64> {
    let (saved, mergeable) = chances.areas();
    let is_oracle = variant == Variant::Oracle;
    let area = if is_oracle { mergeable } else { saved };
    let mut figures = BTreeMap::from([
        (AREA, area / MIB as f64),
        ("oracle_percent", 100.0 * area / mergeable.max(1.0)),
        ("chances", chances.all() as f64),
    ]);
    if !is_oracle {
        let taken = 100.0 * convert::ratio(chances.taken(), chances.all());
        figures.insert("merged_percent_of_chances", taken);
        if let Some(median) = chances.median_wait() {
            figures.insert("median_seconds_to_merge", convert::seconds(median));
        }
    }
    let named = figures.into_iter();
    named
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The ratio of our area to that of each peer, and our share of the oracle's.
pub(super) fn compare(report: &mut Report) {
    let area = |name: &str, case: &str| {
        let mut variants = report.variants.iter();
        let found = variants.find(|variant| variant.name == name && variant.case == case)?;
        found.figures.get(AREA).copied()
    };
    let mut cases: Vec<&str> = vec![];
    for variant in &report.variants {
        if !cases.contains(&variant.case.as_str()) {
            cases.push(&variant.case);
        }
    }
    let mut ratios = BTreeMap::new();
    for case in cases {
        for (ours, peers) in COMPARED {
            for peer in peers {
                let both = area(ours, case).zip(area(peer, case));
                if let Some((own, other)) = both.filter(|&(_, other)| other > 0.0) {
                    ratios.insert(format!("area_{ours}_vs_{peer}@{case}"), own / other);
                }
            }
        }
    }
    report.ratios.extend(ratios);
}

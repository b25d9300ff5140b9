//! short-lived: map pages of one content, wait T, unmap, wait T, and again (UKSM §8.1.3).
//!
//! By default memory with such a short life must be left alone. With the lifetime filter off and
//! the paper's fast settings (sleep 20 ms, at most half a core, rounds of 50, 20, 10 and 5 ms a
//! level) nearly all of it must be merged. The ideal is the mapped memory, less one page, over
//! time.
//!
//! A process that fills its memory wants a processor for a third of the time. The merging system
//! yields to it by five steps of niceness, as ksmd does; the fastest of either system runs at
//! niceness 0, too.

use std::time::Duration;

use anyhow::Result;
use uksm_results::report::Report;

use crate::comparison::average::{Rounds, WatchTime};
use crate::setup::Setup;
use crate::variants::Variant;
use crate::variants::ksm::{self, ScanRate};
use crate::workload::{Behaviour, Contents, Part, Spec};

/// T in milliseconds, the paper's range.
const WAITS: [u64; 4] = [200, 300, 1000, 2000];

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("short-lived")?;
    let size = setup.size_or(128);
    // Memory that comes and goes is examined often.
    let watched = WatchTime {
        length: setup.limit_or(30),
        every: Duration::ZERO,
    };
    let fast = Variant::uksm_fast();
    // The paper's "very aggressive" KSM, and no limit at all.
    let ksm_2000 = Variant::ksm(
        "ksm-2000",
        ksm::Settings::at(ScanRate {
            pages_to_scan: 2000,
            ..ScanRate::SHIPPED
        }),
    );
    let variants = [
        Variant::uksm_governor("full"),
        fast.clone(),
        fast.at_nice_0(),
        ksm_2000,
        Variant::ksm_unlimited(),
        Variant::ksm_unlimited().at_nice_0(),
    ];
    for wait_ms in WAITS {
        let part = Part::still(Contents::Identical, 6, size);
        let part = part.with(Behaviour::ShortLived { wait_ms });
        let specs = [Spec {
            seed: setup.seed,
            parts: vec![part],
            huge: false,
            mergeable: false,
        }];
        let case = format!("T = {wait_ms} ms");
        let rounds = Rounds::run(&variants, &case, &specs, watched, setup)?;
        rounds.add_to(&mut report);
        rounds.compare(&mut report, "uksm-fast", "ksm-2000", "ksm-2000");
        for (ours, theirs) in [
            ("uksm-fast", "ksm-unlimited"),
            ("uksm-fast-nice-0", "ksm-unlimited-nice-0"),
        ] {
            rounds.compare(&mut report, ours, theirs, theirs);
        }
    }
    for measured in &mut report.variants {
        let ideal = measured.figures["mean_mapped_mib"];
        let share = measured.figures["mean_saved_mib"] / ideal.max(1.0 / 256.0);
        let share = ("of_ideal_percent".to_owned(), 100.0 * share);
        measured.figures.extend([share]);
    }
    Ok(report)
}

//! cow-broken: pages that are written again as soon as they are merged (UKSM §8.1.2).
//!
//! Two questions. By default a region of which most pages are rewritten every round must be left
//! alone, at next to no CPU. And with the filter off, the paper's own loop (one page with the same
//! content every 10 ms, from the start to the end) at 10 % and 20 % of a core: how much memory is
//! saved on average, next to KSM held at the same CPU?
//!
//! The paper's loop writes 100 pages/s of 2 GiB, so what limits saving is how fast so much is
//! merged at that CPU. A second loop writes so fast that most of a smaller region would be lost
//! again in the time watched: it shows what is kept under rewriting. The case says which.
//!
//! The second loop writes pages anywhere. In turn it ran beside ksmd, which also goes through the region
//! page by page, at nearly the same speed, and what KSM saved was a matter of who was ahead: another
//! 2 ms of a wake-up changed it by a quarter to a half.

use super::average::{Watched, watch};
use crate::result::Report;
use crate::setup::Setup;
use crate::system::Variant;
use crate::workload::{Behaviour, Contents, Order, Part, Spec};
use anyhow::Result;
use std::time::Duration;

/// MiB, pages written every 10 ms, and which: the paper's loop and a faster one.
const LOOPS: [(usize, usize, Order); 2] = [(2048, 1, Order::InTurn), (128, 200, Order::Random)];

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("cow-broken")?;
    let size = setup.size_or(128);
    let watched = Watched {
        length: setup.limit_or(30),
        every: Duration::from_millis(400),
    };

    // The whole region in 2.5 s: at least 60 % in a round of 2 s.
    let all_pages = size * crate::workload::MIB_PAGES;
    let fast = Behaviour::Rewritten {
        order: Order::InTurn,
        pages_per_step: all_pages.div_ceil(250),
        step_ms: 10,
    };
    let specs = [rewritten(setup.seed, size, fast)];
    for variant in [Variant::uksm_governor("full"), Variant::ksm_1000()] {
        let case = "rewritten every 2.5 s";
        if setup.wants(&variant.name) {
            report
                .variants
                .push(watch(&variant, case, &specs, watched, setup)?);
        }
    }
    for (mib, pages_per_step, order) in LOOPS {
        let behaviour = Behaviour::Rewritten {
            order,
            pages_per_step,
            step_ms: 10,
        };
        let mib = setup.size_or(mib);
        let specs = [rewritten(setup.seed, mib, behaviour)];
        for share in [0.1, 0.2] {
            let rate = pages_per_step * 100;
            let place = match order {
                Order::InTurn => "",
                Order::Random => " anywhere",
            };
            let case = format!(
                "{mib} MiB, {rate} pages/s{place}, {:.0} % CPU",
                share * 100.0
            );
            let ours = Variant::uksm_unfiltered(share);
            let mut theirs = Variant::ksm_at(share);
            theirs.name = "ksm-held".into();
            let mut saved = Vec::new();
            for variant in [ours, theirs] {
                if setup.wants(&variant.name) {
                    let measured = watch(&variant, &case, &specs, watched, setup)?;
                    saved.push(measured.figures["mean_saved_mib"]);
                    report.variants.push(measured);
                }
            }
            if let [ours, theirs] = saved[..] {
                // A KSM that saves nothing must not make an infinite ratio: one page at least.
                report.ratios.insert(
                    format!("saved_vs_ksm@{case}"),
                    ours / theirs.max(1.0 / 256.0),
                );
            }
        }
    }
    Ok(report)
}

fn rewritten(seed: u64, mib: usize, behaviour: Behaviour) -> Spec {
    let part = Part::still(Contents::Identical, 5, mib).with(behaviour);
    Spec {
        seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    }
}

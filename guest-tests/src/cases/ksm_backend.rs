//! The back end for hosts that load no module: the kernel's own ksmd, driven by uksm.
//!
//! # Problem
//! Tests of the program simulate KSM's knobs. Only a kernel shows whether ksmd treats them as uksm
//! assumes; and the former settings must be restored after uksm has ended in any way.
//!
//! # Approach
//! Two peers offer memory to KSM, a third has the same and does not. uksm is configured with all
//! three. Merged pages are read from page maps. Then uksm is killed, and in another run stopped.
//! The pages of the third stay its own: uksm makes no memory mergeable.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::{set, value};
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::ksm::{self, KSM, PAGES, SEED, mergeable_peer};
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;

cases! { "daemon::ksm_backend":
    ksmd_merges_what_is_offered_and_its_knobs_come_back_though_uksm_is_killed Normal Stock 120,
}

/// The knobs that uksm writes; kernels before Linux 6.8 have no advisor.
const KNOBS: [&str; 4] = ["run", "pages_to_scan", "sleep_millisecs", "advisor_mode"];
/// Longest wait on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn knobs() -> [Option<String>; 4] {
    KNOBS.map(|name| fs::read_to_string(format!("{KSM}/{name}")).ok())
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(
            Instant::now() < end,
            "{what}; knobs {:?}; {}",
            knobs(),
            status_text()
        );
        sleep(Duration::from_millis(20));
    }
}

/// Pages that both map.
fn shared(a: &Peer, b: &Peer) -> usize {
    pagemap::shared(a.pid(), b.pid(), PAGES)
}

/// Knobs as an operator may have left them: other values than the kernel's defaults, so that
/// restoring differs from resetting. They are reset, and KSM is stopped, when this is dropped.
struct OperatorsKnobs([Option<String>; 4]);

impl OperatorsKnobs {
    fn set() -> OperatorsKnobs {
        set(&format!("{KSM}/pages_to_scan"), "77");
        set(&format!("{KSM}/sleep_millisecs"), "33");
        OperatorsKnobs(knobs())
    }
}

impl Drop for OperatorsKnobs {
    fn drop(&mut self) {
        ksm::stop_ksmd();
    }
}

fn ksmd_merges_what_is_offered_and_its_knobs_come_back_though_uksm_is_killed(
    context: &mut Context,
) {
    let before = OperatorsKnobs::set();
    let mut offering = [(); 2].map(|()| mergeable_peer());
    let mut silent = Peer::filled(PAGES, SEED, PAGES);
    let peers = [&offering[0], &offering[1], &silent];
    let named = peers.map(|peer| ["--pid".to_owned(), peer.pid().to_string()]);
    let back_end = ["--backend", "ksm"].map(str::to_owned);
    let arguments: Vec<String> = back_end.into_iter().chain(named.concat()).collect();

    let daemon = Daemon::start_with("full", &arguments);
    let begun = Instant::now();
    wait_for("ksmd should merge what is offered", || {
        shared(&offering[0], &offering[1]) >= PAGES * 95 / 100
    });
    context.metric("merged after", begun.elapsed().as_secs_f64(), "s");
    let status = status_text();
    assert!(status.contains("does not cooperate"), "{status}");
    assert_eq!(
        shared(&offering[0], &silent),
        0,
        "what was not offered is left alone"
    );
    assert_ne!(knobs(), before.0, "uksm should drive ksmd");
    daemon.kill();
    wait_for("the knobs should come back", || knobs() == before.0);
    assert_eq!(value(&format!("{KSM}/run")), 0);
    assert!(
        shared(&offering[0], &offering[1]) >= PAGES * 95 / 100,
        "what is merged stays merged"
    );

    let daemon = Daemon::start_with("full", &arguments);
    wait_for("uksm should drive ksmd again", || knobs() != before.0);
    daemon.stop();
    assert_eq!(
        knobs(),
        before.0,
        "they are back when it has ended by itself"
    );
    for peer in offering.iter_mut().chain([&mut silent]) {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

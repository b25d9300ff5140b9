//! Merged memory of a machine that hibernates.
//!
//! # Problem
//! A machine that hibernates freezes all processes, writes its memory to swap, and reads it back.
//! Frames are memory of the module that the kernel must save with the rest; frozen processes must
//! not hold up the daemon; and time asleep must not count as time of savings.
//!
//! # Approach
//! `test_resume` writes the image to swap and restores it at once, without a reboot. The image
//! replaces all memory, so errors in it are seen afterwards. Sleep in memory is not tried: after
//! `mem` this emulated machine cannot power off, and its clock does not wake it from `freeze`.
//!
//! # Source
//! Kernel documentation, `power/basic-pm-debugging.rst`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_linux::clock;

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::daemon::{Daemon, forget_accounts, program_output, status_text};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::pagemap::{pfns, shared};
use crate::fixtures::peer::Peer;
use crate::fixtures::zram;

cases! { "daemon::sleep":
    merged_memory_outlives_hibernation Normal Stock 120,
}

const PAGES: usize = 4096;
const NEARLY_ALL: usize = PAGES * 95 / 100;
/// Pages that one process writes all the time.
const WRITTEN: usize = 512;
/// Pages that the test merges by itself.
const FEW: usize = 256;
const SEED: u64 = 83;
/// Enough for the image of a guest, which is compressed.
const SWAP_MIB: u64 = 600;
const STATE: &str = "/sys/power/state";

/// Fills two processes with these contents, and waits until the daemon has merged them.
fn fill_and_await(daemon: &mut Daemon, peers: &mut [Peer; 2], seed: u64) {
    for peer in peers.iter_mut() {
        peer.run(move |own| own.memory.fill(seed, PAGES));
    }
    let end = Instant::now() + Duration::from_secs(90);
    while shared(peers[0].pid(), peers[1].pid(), PAGES) < NEARLY_ALL {
        daemon.assert_running();
        assert!(
            Instant::now() < end,
            "too little is merged: {}",
            status_text()
        );
        sleep(Duration::from_millis(20));
    }
}

fn assert_holds(peers: &mut [Peer], seed: u64, pages: usize) {
    for peer in peers {
        let changed = peer.run(move |own| own.memory.changed(seed, pages, 0..pages));
        assert_eq!(changed, 0, "pages changed");
    }
}

/// Pages of both that are one, with the physical page of each.
fn frames(peers: &[Peer; 2]) -> Vec<(usize, u64)> {
    let [one, two] = peers.each_ref().map(|peer| pfns(peer.pid(), 0..PAGES));
    let pairs = one.into_iter().zip(two).enumerate();
    pairs
        .filter(|(_, (one, two))| one == two && *one != 0)
        .map(|(page, (frame, _))| (page, frame))
        .collect()
}

fn merged_memory_outlives_hibernation(context: &mut Context) {
    // On 6.1 the emulated guest does not come back, with or without merged memory; on 7.3 it was
    // not back after two minutes.
    if !context.kernel_release().starts_with("6.12.") {
        return context.note("hibernation is tried on 6.12 only");
    }
    let _swap = zram::swap(context, SWAP_MIB);
    set("/sys/power/disk", "test_resume");
    let mut peers = [PAGES; 2].map(Peer::new);
    let mut writer = Peer::filled(WRITTEN, SEED, WRITTEN);
    // A domain of the test's own, whose frames it checks.
    let mut few = [(); 2].map(|()| Peer::filled(FEW, SEED, FEW));
    let mut domain = Domain::open();
    let spaces = few.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..FEW, Permit::default());
    assert_eq!(counts.merged(), 2 * FEW, "{counts:?}");
    assert_eq!(changed(&mut domain), [], "they are noted");
    forget_accounts();
    let mut daemon = Daemon::start_on(&[&peers[0], &peers[1], &writer], &[]);
    let started = clock::now();
    for round in 1..=3 {
        let seed = SEED + round;
        fill_and_await(&mut daemon, &mut peers, seed);
        let before = frames(&peers);
        let writing = writer.begin(|own| {
            for _ in 0..100 {
                own.memory.flip(0..WRITTEN);
                sleep(Duration::from_millis(20));
            }
        });
        let begun = Instant::now();
        set(STATE, "disk");
        context.note(format!("round {round}: {:.1?}", begun.elapsed()));
        writing.end();
        let after = frames(&peers);
        let kept = before.iter().filter(|of| after.contains(of)).count();
        assert_eq!(kept, before.len(), "frames are where they were");
        assert_holds(&mut peers, seed, PAGES);
        assert_holds(std::slice::from_mut(&mut writer), SEED, WRITTEN);
        assert_holds(&mut few, SEED, FEW);
        assert_eq!(changed(&mut domain), []);
        daemon.assert_running();
    }
    // It continues to merge.
    fill_and_await(&mut daemon, &mut peers, SEED);
    let says = status_text();
    let sound = "0 frames whose contents changed";
    assert!(says.contains(sound), "{says}");
    let bill = program_output(&["account", "--json"]);
    let awake = Duration::from_nanos(clock::now() - started).as_secs_f64();
    let bill: serde_json::Value = serde_json::from_str(&bill).expect("a bill");
    let booked = bill["groups"][0]["seconds"].as_f64().expect("seconds");
    assert!(booked <= awake + 1.0, "{booked} s of {awake} s are booked");
    daemon.stop();
}

/// Frames whose contents have changed.
fn changed(domain: &mut Domain) -> Vec<uksm_policy::command::FrameId> {
    domain.device.changed_frames(0, 4096).expect("FRAMES")
}

//! Frames whose contents have changed.
//!
//! # Problem
//! A bit that flips in a frame is wrong in every process that shares it, without a notice. A test
//! cannot wait for memory to fail; and a check that finds nothing must also be able to find
//! something.
//!
//! # Approach
//! The test build of the module flips a bit of each frame in a request. Such frames, and no others,
//! are listed as changed and given up; the daemon names the processes that share them. Sound
//! frames, made, written over and adopted, are checked as well.
//!
//! # Source
//! `interface/uksm_ioctl.h`, FRAMES.

use std::fs::{self, File};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_linux::patrol::sharers_of;
use uksm_policy::command::{FoldKind, FrameId, Lines, PageState, Reason, Status};

use super::Context;
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::domain::{Domain, Permit, address, domain_with_seed, entry};
use crate::fixtures::fault_switches::{FLIP_BIT, with_faults};
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::shared;

cases! { "daemon::patrol":
    frames_that_are_sound_are_left_alone Normal Stock 60,
    a_frame_that_changed_is_found_and_given_up Normal Faults 60,
    the_daemon_names_all_who_share_a_frame_that_changed Policy Faults 240,
}

const PAGES: usize = 256;
const SEED: u64 = 43;
const STATES: Lines = Lines { from: 0, to: 0 };
const LOG: &str = "/tmp/patrol.log";
/// Longest time until an emulated daemon has merged, and listed its frames a few times.
const BOUND: Duration = Duration::from_secs(100);

fn changed(domain: &mut Domain) -> Vec<FrameId> {
    domain.device.changed_frames(0, 4096).expect("FRAMES")
}

fn frames_that_are_sound_are_left_alone(_: &mut Context) {
    let mut peers = [(); 3].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces[..2], 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(changed(&mut domain), []);
    // Written by one, joined by another, and with others made beside them.
    peers[0].run(|own| own.memory.flip(0..PAGES / 2));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert!(counts.merged() >= PAGES, "{counts:?}");
    assert_eq!(changed(&mut domain), []);
    let held = domain.info().frames;
    for frame in domain.frames(STATES, false) {
        domain.device.retire(frame.frame).expect("FRAMES");
    }
    let info = domain.info();
    assert_eq!((info.changed, info.frames), (0, held));

    // The contents of adopted frames are noted as they are.
    let seed = info.hash_seed;
    drop(domain);
    let mut heir = domain_with_seed(seed);
    let spaces = peers.each_ref().map(|peer| heir.attach(peer));
    let _counts = heir.merge(&spaces, 0..PAGES, Permit::default());
    let info = heir.info();
    assert!(info.adopted > 0 && info.frames > 0, "{info:?}");
    for _ in 0..2 {
        assert_eq!(changed(&mut heir), []);
    }
}

fn a_frame_that_changed_is_found_and_given_up(context: &mut Context) {
    const BAD: usize = 5;
    let peers = [(); 3].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces[..2], 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(changed(&mut domain), [], "they are noted");
    let last = BAD..BAD + 1;
    let seen = domain.sample(spaces[0], last.clone(), STATES)[0];
    let frame = FrameId(seen.frame);
    assert_eq!(seen.state, PageState::Frame);
    let found = with_faults(context, FLIP_BIT, || {
        let found = domain.device.changed_frames(frame.0, 1);
        found.expect("FRAMES")
    });
    assert_eq!(found, [frame]);
    assert_eq!(changed(&mut domain), [frame]);
    let sharers = sharers_of(&mut domain.device, &spaces, frame).expect("the module answers");
    let who: Vec<_> = sharers.iter().map(|sharer| sharer.space).collect();
    assert_eq!(who, spaces[..2]);
    for sharer in &sharers {
        assert_eq!(
            (sharer.address, sharer.pages),
            (address(BAD), 1),
            "{sharers:?}"
        );
    }

    domain.device.retire(frame).expect("FRAMES");
    assert_eq!(changed(&mut domain), []);
    let info = domain.info();
    assert_eq!((info.changed, info.poisoned), (1, 0));
    assert_eq!(info.frames, PAGES as u64 - 1);
    // It stays mapped, and no page joins it.
    let seen = domain.sample(spaces[0], last, STATES)[0];
    assert_eq!(seen.state, PageState::Orphan);
    let outcome = domain.fold(
        &[entry(spaces[2], BAD, FoldKind::Frame(frame))],
        Permit::default(),
    )[0];
    assert_eq!(
        (outcome.status, outcome.reason),
        (Status::Gone, Reason::NoFrame)
    );
    // Nor does an heir adopt it.
    let seed = domain.info().hash_seed;
    drop(domain);
    let mut heir = domain_with_seed(seed);
    let spaces = peers.each_ref().map(|peer| heir.attach(peer));
    let _counts = heir.merge(&spaces[..2], 0..PAGES, Permit::default());
    let info = heir.info();
    assert_eq!(info.adopted, PAGES as u64 - 1, "{info:?}");
    assert_eq!(changed(&mut heir), []);
}

fn the_daemon_names_all_who_share_a_frame_that_changed(context: &mut Context) {
    const CONFIGURATION: &str = "/tmp/patrol.toml";
    let peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let [one, other] = peers.each_ref().map(Peer::pid);
    // Otherwise a piece that takes 100 ms on a busy machine is followed by a pause of minutes.
    let text = format!(
        "governor = \"full\"\nbottom_cpu = 0.2\nv_life = \"off\"\npatrol = \"1s\"\n[group.watched]\npid = [{one}, {other}]\n"
    );
    fs::write(CONFIGURATION, text).expect("a configuration");
    let log = File::create(LOG).expect("a log");
    let log_text = || fs::read_to_string(LOG).expect("the log");
    let lines_with = |text: &str| {
        log_text()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    let mut daemon = Daemon::start_prepared(CONFIGURATION, |command| {
        command.stderr(Stdio::from(log));
    });
    let mut await_that = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + BOUND;
        while !is_so() {
            daemon.assert_running();
            let now = Instant::now();
            assert!(now < end, "{what}: {}{}", log_text(), status_text());
            sleep(Duration::from_millis(200));
        }
    };
    await_that("all should be merged", &|| shared(one, other) == PAGES);
    sleep(Duration::from_secs(3));
    assert_eq!(lines_with("patrol: "), 0, "{}", log_text());
    with_faults(context, FLIP_BIT, || {
        await_that("all should be found", &|| {
            lines_with("patrol: frame") > 0 && lines_with(" more frames have changed") > 0
        });
    });
    daemon.assert_running();
    let finding = log_text();
    let finding = finding.lines().find(|line| line.contains("patrol: frame"));
    let finding = finding.expect("it was there");
    let both = [one, other].map(|pid| finding.contains(&format!("process {pid} at 0x")));
    assert_eq!(both, [true; 2], "{finding}");
    daemon.stop();
    fs::remove_file(CONFIGURATION).expect("it is there");
    fs::remove_file(LOG).expect("it is there");
}

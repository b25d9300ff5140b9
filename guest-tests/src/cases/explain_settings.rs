//! `uksm explain` names the true reason: for a region, and for exclusions by the settings of a
//! daemon.
//!
//! # Problem
//! For memory that uksm examines, the daemon decides on merges, by age, samples, writes, its
//! budget, and its settings. Each of these looks the same from outside: nothing is merged.
//!
//! # Approach
//! The same peers run beside a daemon for each reason, with one more setting than the daemon that
//! merges them; the reported reason must be that setting. Pages that the setting does not affect
//! must have another reason.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Context;
use crate::fixtures::contents::Content;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::explanation::{
    await_explanation, await_reason, explain, explanation_text, pages_with_reason, reason_details,
    run_explain, start_idle_daemon,
};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;

cases! { "daemon::explain":
    what_is_merged_and_what_has_no_equal_is_told_apart Policy Stock 120,
    a_region_that_is_too_young_is_told_until_when Policy Stock 90,
    a_kind_that_dies_young_is_told_from_one_that_is_young Policy Stock 180,
    a_dry_run_is_told_of_what_it_would_merge Policy Stock 90,
    huge_pages_are_told_by_what_keeps_them_whole Normal Stock 180,
    what_may_be_merged_is_told_of_what_may_not Policy Stock 240,
    a_limit_of_frames_is_told_of_what_has_no_room Policy Stock 90,
    a_region_that_is_written_too_fast_is_told_until_when Policy Stock 180,
    a_small_budget_is_told_of_what_waits Policy Stock 240,
}

const PAGES: usize = 1024;
const HALF: usize = PAGES / 2;
const SEED: u64 = 54;
/// More pages than peers share beside the memory of the test: the data of their program.
const FEW: u64 = 100;

/// The first halves are equal, the second halves are different.
fn half_alike() -> [Peer; 2] {
    [1, 2].map(|own: u64| {
        let mut peer = Peer::filled(PAGES, SEED, PAGES);
        peer.run(move |it| {
            for page in HALF..PAGES {
                it.memory
                    .fill_page(page, Content::new(SEED + own, page as u64));
            }
        });
        peer
    })
}

/// Pages without a known equal page, at any depth of examination.
fn without_equal(process: &Value) -> u64 {
    let reasons = ["nothing-equal", "being-read", "sampled-only"];
    reasons
        .map(|reason| pages_with_reason(process, reason))
        .iter()
        .sum()
}

fn merged(process: &Value) -> u64 {
    process["merged_pages"].as_u64().unwrap_or(0)
}

fn what_is_merged_and_what_has_no_equal_is_told_apart(_: &mut Context) {
    let pair = half_alike();
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
    let least = HALF as u64 * 95 / 100;
    let process = await_explanation(&mut daemon, pair[0].pid(), "half is merged", |process| {
        merged(process) >= least && pages_with_reason(process, "nothing-equal") >= least
    });
    assert!(merged(&process) < HALF as u64 + 100, "{process:#}");
    let partners = &process["partners"];
    let high = partners["high"].as_f64().expect("an estimate");
    assert!(high < 100.0, "hardly any is left: {process:#}");
    let (status, details, _) = run_explain(&[&pair[0].pid().to_string()]);
    assert_eq!(status, Some(0));
    for line in [
        "  merged      ",
        "  partners    ",
        "nothing-equal: ",
        "changed by: ",
    ] {
        assert!(details.contains(line), "{line:?}: {details}");
    }
    daemon.stop();
}

fn a_region_that_is_too_young_is_told_until_when(_: &mut Context) {
    let pair = half_alike();
    let mut daemon = start_idle_daemon(&[&pair[0], &pair[1]]);
    let process = await_reason(&mut daemon, pair[0].pid(), "too-young", PAGES);
    assert_eq!(merged(&process), 0);
    let details = reason_details(&process, "too-young");
    assert!(
        details.contains("v_life is 10 min, for ") && details.contains(" more"),
        "{details}"
    );
    assert_eq!(pages_with_reason(&process, "short-lived"), 0, "{process:#}");
    daemon.stop();
}

fn a_kind_that_dies_young_is_told_from_one_that_is_young(context: &mut Context) {
    const BUFFER: usize = 300;
    fn buffer() -> Memory {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Memory::at(BASE + (1 << 32), BUFFER, flags, -1)
    }
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    let arguments = ["--pid", &peer.pid().to_string(), "--v-life", "200ms"];
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let mut daemon = Daemon::start_with("full", &arguments);
    let pid = peer.pid();
    let has_buffer = |process: &Value| {
        let regions = process["regions"].as_array();
        let mut regions = regions.into_iter().flatten();
        regions.any(|region| region["start"].as_u64() == Some(BASE + (1 << 32)))
    };
    let end = Instant::now() + Duration::from_secs(120);
    for deaths in 0.. {
        peer.run(|_| buffer().fill(SEED + 1, BUFFER));
        // It must be known before it dies, and live for a while.
        let mut seen = explain(pid, &[]);
        while !has_buffer(&seen) {
            assert!(
                Instant::now() < end,
                "it should be found: {}",
                explanation_text(pid)
            );
            seen = explain(pid, &[]);
        }
        let has_reason =
            |seen: &Value| pages_with_reason(seen, "short-lived") >= BUFFER as u64 * 9 / 10;
        let born = Instant::now();
        while born.elapsed() < Duration::from_secs(2) {
            if deaths > 0 && has_reason(&seen) {
                let details = reason_details(&seen, "short-lived");
                assert!(
                    details.contains("for ") && details.contains(" more"),
                    "{details}"
                );
                context.note(format!("told after {deaths} deaths"));
                daemon.stop();
                return;
            }
            seen = explain(pid, &[]);
        }
        peer.run(|_| buffer().unmap(0..BUFFER).expect("munmap"));
        while has_buffer(&explain(pid, &[])) {
            assert!(
                Instant::now() < end,
                "its end should be seen: {}",
                explanation_text(pid)
            );
        }
        daemon.assert_running();
    }
}

fn a_dry_run_is_told_of_what_it_would_merge(_: &mut Context) {
    let pair = half_alike();
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &["--dry-run"]);
    // One page of each pair is the one that the other meets.
    let least = HALF as u64 * 4 / 10;
    let is_known = |process: &Value| pages_with_reason(process, "dry-run") >= least;
    let end = Instant::now() + Duration::from_secs(60);
    let process = loop {
        let both = [0, 1].map(|at: usize| explain(pair[at].pid(), &[]));
        if let Some(process) = both.into_iter().find(is_known) {
            break process;
        }
        daemon.assert_running();
        assert!(Instant::now() < end, "{}", explanation_text(pair[0].pid()));
        sleep(Duration::from_millis(50));
    };
    assert_eq!(merged(&process), 0);
    let rest = without_equal(&process);
    assert!(
        rest >= HALF as u64 * 9 / 10,
        "what has no equal is no dry run: {process:#}"
    );
    daemon.stop();
}

/// Two peers with huge pages; a part of each huge page is equal in both.
fn huge_pair(alike: usize) -> [Peer; 2] {
    [1, 2].map(|own: u64| {
        let mut peer = Peer::with(2 * PAGES, Huge::Always);
        peer.run(move |it| {
            for page in 0..2 * PAGES {
                let seed = if page % 512 < alike { SEED } else { SEED + own };
                it.memory.fill_page(page, Content::new(seed, page as u64));
            }
        });
        peer
    })
}

fn huge_pages_are_told_by_what_keeps_them_whole(_: &mut Context) {
    if !Huge::exist() {
        return;
    }
    // A tenth of each is known to have partners on the other side; on one side these are the
    // indexed pages.
    const ALIKE: usize = 51;
    let known = 4 * ALIKE as u64;
    let pair = huge_pair(ALIKE);
    for (arguments, reason, other) in [
        (&["--thp", "never"][..], "huge-never", "huge-kept"),
        (&["--thp-share", "90%"][..], "huge-kept", "huge-never"),
    ] {
        let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], arguments);
        let both = |reason: &str| {
            let each =
                [0, 1].map(|at: usize| pages_with_reason(&explain(pair[at].pid(), &[]), reason));
            each[0] + each[1]
        };
        let end = Instant::now() + Duration::from_secs(80);
        while both(reason) < known * 9 / 10 {
            daemon.assert_running();
            let details = explanation_text(pair[0].pid()) + &explanation_text(pair[1].pid());
            assert!(
                Instant::now() < end,
                "{known} pages should be {reason}: {details}"
            );
            sleep(Duration::from_millis(50));
        }
        assert_eq!(both(other), 0, "{}", explanation_text(pair[0].pid()));
        let process = explain(pair[0].pid(), &[]);
        assert!(merged(&process) < FEW, "{process:#}");
        daemon.stop();
    }
}

fn what_may_be_merged_is_told_of_what_may_not(_: &mut Context) {
    // The same contents twice within one process.
    let mut twice = Peer::filled(PAGES, SEED + 7, HALF);
    let pair = half_alike();
    let mut daemon = Daemon::start_on(&[&twice, &pair[0], &pair[1]], &["--merge", "between"]);
    let process = await_reason(&mut daemon, twice.pid(), "own-only", PAGES);
    assert!(merged(&process) < FEW, "{process:#}");
    daemon.stop();

    // Three processes would have to hold it, and two do.
    let fresh = half_alike();
    let mut daemon = Daemon::start_on(&[&fresh[0], &fresh[1]], &["--merge-spaces", "3"]);
    let process = await_reason(&mut daemon, fresh[0].pid(), "too-few-processes", HALF);
    assert!(merged(&process) < FEW, "{process:#}");
    assert!(
        without_equal(&process) >= HALF as u64 * 9 / 10,
        "{process:#}"
    );
    assert!(
        reason_details(&process, "too-few-processes").contains("3 must"),
        "{process:#}"
    );
    daemon.stop();

    let mut daemon = Daemon::start_on(&[&fresh[0], &fresh[1]], &["--merge", "zero"]);
    let process = await_reason(&mut daemon, fresh[0].pid(), "only-zeros", PAGES);
    assert!(merged(&process) < FEW, "{process:#}");
    assert_eq!(process["partners"], Value::Null);
    daemon.stop();
    assert_eq!(
        twice.run(|own| own.memory.changed(SEED + 7, HALF, 0..PAGES)),
        0
    );
}

fn a_limit_of_frames_is_told_of_what_has_no_room(_: &mut Context) {
    const FRAMES: u64 = 64;
    let pair = half_alike();
    let arguments = ["--max-frames", "64"];
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &arguments);
    let end = Instant::now() + Duration::from_secs(60);
    let process = loop {
        let both = [0, 1].map(|at: usize| explain(pair[at].pid(), &[]));
        let has_reason = |process: &Value| pages_with_reason(process, "no-frames") >= 200;
        if let Some(process) = both.into_iter().find(has_reason) {
            break process;
        }
        daemon.assert_running();
        assert!(Instant::now() < end, "{}", explanation_text(pair[0].pid()));
        sleep(Duration::from_millis(50));
    };
    assert!(merged(&process) <= FRAMES + FEW, "{process:#}");
    let details = reason_details(&process, "no-frames");
    assert!(details.contains("64 of 64 frames are held"), "{details}");
    daemon.stop();
}

fn a_region_that_is_written_too_fast_is_told_until_when(_: &mut Context) {
    let mut pair = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let pids = [pair[0].pid(), pair[1].pid()];
    // On a busy machine a query takes longer than a shorter round, and pages are written between
    // two queries.
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &["--round", "2s"]);
    let writer = &mut pair[0];
    let end = Instant::now() + Duration::from_secs(120);
    let process = loop {
        // The same contents again, so that they are merged again.
        writer.run(|own| {
            own.memory.flip(0..PAGES);
            own.memory.flip(0..PAGES);
        });
        let process = explain(pids[0], &[]);
        if pages_with_reason(&process, "written-too-fast") >= PAGES as u64 * 9 / 10 {
            break process;
        }
        daemon.assert_running();
        assert!(Instant::now() < end, "{}", explanation_text(pids[0]));
    };
    let details = reason_details(&process, "written-too-fast");
    assert!(
        details.contains("for ") && details.contains(" more"),
        "{details}"
    );
    assert!(
        process["left_alone_regions"].as_u64() >= Some(1),
        "{process:#}"
    );
    // A process that only reads does not get this reason.
    let other = explain(pids[1], &[]);
    assert_eq!(
        pages_with_reason(&other, "written-too-fast"),
        0,
        "{other:#}"
    );
    daemon.stop();
}

fn a_small_budget_is_told_of_what_waits(context: &mut Context) {
    const MANY: usize = 16 * PAGES;
    let pair = [(); 2].map(|()| Peer::filled(MANY, SEED, MANY));
    let pid = pair[0].pid();
    // A budget too small even to list processes and their mappings.
    let least = ["--cpu", "0.2%", "--bottom-cpu", "0.001%"];
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &least);
    let of_all = ["not-looked-at", "not-listed"];
    let unlisted = |process: &Value| {
        of_all
            .map(|reason| pages_with_reason(process, reason))
            .iter()
            .sum::<u64>()
    };
    let what = "not even the mappings should be listed";
    let process = await_explanation(&mut daemon, pid, what, |process| {
        unlisted(process) >= MANY as u64 && !process["terms"].is_null()
    });
    let details = of_all
        .map(|reason| reason_details(&process, reason))
        .concat();
    assert!(details.contains("of a core is used of 0.2 %"), "{details}");
    daemon.stop();
    let begun = Instant::now();

    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &["--cpu", "1%"]);
    let reasons = ["not-read", "sampled-only", "being-read", "waits"];
    let waiting = |process: &Value| {
        reasons
            .map(|reason| pages_with_reason(process, reason))
            .iter()
            .sum::<u64>()
    };
    let what = "most should wait for the processor";
    let process = await_explanation(&mut daemon, pid, what, |process| {
        waiting(process) >= MANY as u64 * 8 / 10
    });
    assert_eq!(
        pages_with_reason(&process, "nothing-equal"),
        0,
        "{process:#}"
    );
    let details = reasons
        .map(|reason| reason_details(&process, reason))
        .concat();
    assert!(
        details.contains("of a core is used of 1.0 %") || details.contains("samples"),
        "{details}"
    );
    context.metric("waits after", begun.elapsed().as_secs_f64(), "s");
    daemon.stop();

    // The reported reason is processor time.
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &["--cpu", "5%"]);
    let some = |process: &Value| merged(process) >= MANY as u64 / 50;
    await_explanation(&mut daemon, pid, "some is merged by and by", some);
    context.metric("some is merged after", begun.elapsed().as_secs_f64(), "s");
    daemon.stop();
}

//! The costs of a group are booked where its operator configured it, and limits there hold for it
//! alone.
//!
//! # Problem
//! A group pays for itself: processor time of its worker, its memory, and its frames. Other groups
//! must not be affected.
//!
//! # Approach
//! The workers of two groups live in control groups beside those of their processes. The kernel's
//! counts there are compared with those of `uksm group` and `uksm account`, also for a killed
//! worker, and one of the two groups is limited.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::{number, value};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::{Daemon, forget_accounts, program_output};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::signal;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, TwoGroups, assert_intact, await_that, frame_count, group,
    peer_in, shared, worker, worker_status,
};

cases! { "daemon::group_accounts":
    what_a_group_costs_is_booked_where_its_operator_said Policy Stock 120,
    limits_of_who_pays_hold_for_this_group_alone Policy Stock 180,
    many_groups_start_in_seconds_and_their_workers_are_small Policy Stock 180,
}

const GROUPS: usize = 16;
/// Pages of each process of many groups.
const FEW: usize = 64;
/// Merged pages that a pair writes, at least: nearly all of one process, twice.
const WRITTEN: u64 = 2 * NEARLY_ALL as u64;

/// A daemon whose groups a and b are booked on control groups of their own.
fn booked(daemon: &str) -> (TwoGroups, [Cgroup; 2]) {
    let books = ["pays-a", "pays-b"].map(Cgroup::new);
    let text = format!(
        "v_life = \"off\"\n{daemon}\
         [group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-pays-a\"\n\
         [group.b]\ncgroup = \"/uksm-b\"\nbook = \"/uksm-pays-b\"\n"
    );
    std::fs::write(CONFIGURATION, text).expect("a configuration");
    let host = TwoGroups {
        a: Cgroup::new("a"),
        b: Cgroup::new("b"),
        daemon: Daemon::start_configured(CONFIGURATION),
    };
    (host, books)
}

/// Processor time of group a as its worker reports it.
fn used() -> f64 {
    let seconds = &worker_status("a")["cpu"]["process_seconds"];
    seconds.as_f64().unwrap_or(0.0)
}

/// The bill of group a up to now.
fn bill() -> serde_json::Value {
    let bill = program_output(&["account", "--group", "a", "--json"]);
    let bill: serde_json::Value = serde_json::from_str(&bill).unwrap_or_else(|_| panic!("{bill}"));
    bill["groups"][0].clone()
}

/// Processor time of group a as it is billed.
fn billed() -> f64 {
    bill()["cpu_seconds"].as_f64().expect("CPU seconds")
}

/// Processor time of group a: as reported, as booked by the kernel, and as reported after that.
#[derive(Clone, Copy)]
struct CpuReadings {
    first: f64,
    booked: f64,
    last: f64,
}

fn readings(book: &Cgroup, seconds: fn() -> f64) -> CpuReadings {
    CpuReadings {
        first: seconds(),
        booked: book.cpu_seconds(),
        last: seconds(),
    }
}

/// The kernel has booked the reported time, within 2 %.
fn assert_agree(context: &mut Context, who: &str, [before, after]: [CpuReadings; 2]) {
    let booked = after.booked - before.booked;
    // The report just before the kernel's count, and the one just after it.
    let (least, most) = (after.first - before.last, after.last - before.first);
    context.note(format!(
        "booked {booked:.3} s, {who} says {least:.3} to {most:.3} s"
    ));
    assert!(least > 0.05, "{least} s of work are too few to compare");
    assert!(
        least * 0.98 <= booked && booked <= most * 1.02,
        "the kernel booked {booked} s, {who} says {least} to {most} s"
    );
}

fn what_a_group_costs_is_booked_where_its_operator_said(context: &mut Context) {
    forget_accounts();
    let (mut host, [book, _other]) = booked("");
    host.wait_for("a should run", || group("a")["status"].is_object());
    let pages_before = book.pages();
    let before = [billed, used].map(|said| readings(&book, said));
    let mut pair = host.pair_in_a();
    // Work for seconds: merged pages are written, and merged again.
    for _ in 0..2 {
        let [one, two] = [pair[0].pid(), pair[1].pid()];
        host.wait_for("a should merge", || shared(one, two) >= NEARLY_ALL);
        pair[0].run(|own| own.memory.flip(0..PAGES));
        pair[0].run(|own| own.memory.flip(0..PAGES));
    }
    let [one, two] = [pair[0].pid(), pair[1].pid()];
    host.wait_for("a should merge", || shared(one, two) >= NEARLY_ALL);
    let after = [billed, used].map(|said| readings(&book, said));
    assert_agree(context, "the bill", [before[0], after[0]]);
    assert_agree(context, "the worker", [before[1], after[1]]);
    let pages = book.pages() - pages_before;
    let frames = frame_count("a");
    assert!(
        pages >= frames,
        "{pages} pages should be booked, which {frames} frames are part of"
    );
    host.wait_for(
        "pages of the pair that were written should be counted",
        || {
            let written = worker_status("a")["merged"]["written"].as_u64();
            written >= Some(WRITTEN * 9 / 10)
        },
    );
    assert_written_pages_are_reported();
    assert_killed_worker_is_billed(context, &mut host, &book, before[0]);
    assert_intact(&mut pair);
    host.daemon.stop();
    assert!(program_output(&["account"]).contains("no daemon answers"));
}

/// The report includes the pages that the pair wrote, of the host if no earlier test left pages to
/// KSM. Some were merged and written again between the two writes of a loop.
fn assert_written_pages_are_reported() {
    let report = program_output(&["report", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
    let of_group = report["total"]["written_pages"].as_u64().unwrap_or(0);
    let possible = WRITTEN * 9 / 10..=4 * PAGES as u64;
    assert!(
        possible.contains(&of_group),
        "{of_group} pages were written"
    );
    match report["host_written_pages"].as_u64() {
        Some(pages) => assert!(pages >= WRITTEN, "{pages} pages were written"),
        None => assert!(value("/sys/kernel/mm/ksm/pages_shared") > 0, "{report}"),
    }
}

/// A killed worker has not reported its last work, and its frames continue to save.
fn assert_killed_worker_is_billed(
    context: &mut Context,
    host: &mut TwoGroups,
    book: &Cgroup,
    before: CpuReadings,
) {
    signal(worker("a"), libc::SIGKILL);
    host.wait_for("a should be replaced", || group("a")["status"].is_object());
    let after = readings(book, billed);
    assert_agree(
        context,
        "the bill with the one that was killed",
        [before, after],
    );
    let bill = bill();
    assert_eq!(bill["restarts"], 1, "{bill}");
    let pages = bill["merged_pages"].as_u64().expect("pages");
    assert!(pages >= 4 * NEARLY_ALL as u64, "{bill}");
    let saved = bill["saved_bytes"].as_u64().expect("bytes saved");
    assert!(saved >= NEARLY_ALL as u64 * 4096, "{bill}");
    let over_time = bill["saved_byte_seconds"].as_f64().expect("byte-seconds");
    let seconds = bill["seconds"].as_f64().expect("seconds");
    assert!(
        over_time > 0.0 && over_time < seconds * saved as f64,
        "{bill}"
    );
}

fn limits_of_who_pays_hold_for_this_group_alone(context: &mut Context) {
    let (mut host, [one, two]) = booked("");
    host.wait_for("both should run", || {
        group("a")["status"].is_object() && group("b")["status"].is_object()
    });
    two.limit_cpu(5);
    // Half of the pages that b could share.
    two.limit_to_current_and(PAGES as u64 / 2);
    let mut a = host.pair_in_a();
    let mut b: [Peer; 2] = [(); 2].map(|()| peer_in(&host.b));
    let begin = Instant::now();
    let pids = [a[0].pid(), a[1].pid()];
    host.wait_for("a should merge", || shared(pids[0], pids[1]) >= NEARLY_ALL);
    let a_took = begin.elapsed();
    host.wait_for("b should be slowed down", || two.throttled() > 0);
    let pids = [b[0].pid(), b[1].pid()];
    await_that(
        &mut host.daemon,
        "b should be out of memory for frames",
        || {
            // Queries use up the worker's budget.
            sleep(Duration::from_secs(1));
            group("b")["status"]["kernel"]["full"].as_u64() > Some(0)
        },
    );
    let merged = shared(pids[0], pids[1]);
    context.note(format!(
        "a was merged after {} ms; b was slowed down {} times, and has {merged} pages merged",
        a_took.as_millis(),
        two.throttled()
    ));
    assert!(merged <= PAGES * 3 / 5, "{merged} pages of b are merged");
    assert_eq!(two.kills(), 0, "nobody is killed for it");
    assert_eq!(one.throttled(), 0, "a is not slowed down");
    assert_eq!(worker_status("a")["kernel"]["full"], 0);
    assert_intact(&mut a);
    assert_intact(&mut b);
    host.daemon.stop();
}

fn many_groups_start_in_seconds_and_their_workers_are_small(context: &mut Context) {
    let cgroups: Vec<Cgroup> = (0..GROUPS).map(|n| Cgroup::new(&format!("g{n}"))).collect();
    let payer = Cgroup::new("payer");
    let peers = cgroups.iter().map(|cgroup| {
        [(); 2].map(|()| {
            let mut peer = Peer::new(FEW);
            cgroup.take(peer.pid());
            peer.run(|own| own.memory.fill(7, FEW));
            peer
        })
    });
    let peers: Vec<[Peer; 2]> = peers.collect();
    let group = |n| format!("[group.g{n}]\ncgroup = \"/uksm-g{n}\"\nbook = \"/uksm-payer\"\n");
    let text: String = (0..GROUPS).map(group).collect();
    std::fs::write(CONFIGURATION, text).expect("a configuration");
    let begin = Instant::now();
    let mut daemon = Daemon::start_configured(CONFIGURATION);
    let all_share = || {
        peers
            .iter()
            .all(|[a, b]| shared(a.pid(), b.pid()) >= FEW * 9 / 10)
    };
    await_that(&mut daemon, "all groups should merge", all_share);
    let took = begin.elapsed();
    sleep(Duration::from_secs(3));
    let (before, since) = (payer.cpu_seconds(), Instant::now());
    sleep(Duration::from_secs(5));
    let percent = (payer.cpu_seconds() - before) / since.elapsed().as_secs_f64() * 100.0;
    let status = format!("/proc/{}/status", worker("g0"));
    let private = number(&status, "RssAnon");
    context.note(format!(
        "{GROUPS} groups of two were merged after {} ms; then they took {percent:.2} % of a core together, \
         and a worker {private} KiB of its own",
        took.as_millis()
    ));
    assert!(took < Duration::from_secs(40), "{} ms", took.as_millis());
    assert!(private <= 3 << 10, "{private} KiB");
    daemon.stop();
}

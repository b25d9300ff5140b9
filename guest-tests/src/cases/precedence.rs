//! Precedence between processes that compete for processors.
//!
//! # Problem
//! The kernel shares processors between sessions first, so that the niceness of a daemon that leads
//! one does not count beside others. The session must be lowered with it, and a session of another
//! user must not.
//!
//! # Approach
//! The kernel reports for each process its niceness (`/proc/PID/stat`) and that of its session
//! (`/proc/PID/autogroup`).

use std::fs;

use super::Context;
use crate::fixtures::accounting::is_real_time;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::memory::answer;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{TwoGroups, await_that, status, worker};
use crate::init::program::lead_a_session;

cases! { "daemon::precedence":
    a_daemon_that_leads_its_session_stands_back_with_it Normal Stock 60,
    a_session_of_somebody_else_stays_as_it_is Normal Stock 60,
    a_daemon_in_a_namespace_of_its_own_knows_neither_its_session_nor_who_asks Normal Stock 60,
    a_supervisor_stands_back_with_its_session_and_stays_before_its_workers Policy Stock 90,
}

/// The same as ksmd's.
const NICE: i64 = 5;

/// The niceness of this process, as the kernel reports it.
fn niceness(pid: i32) -> i64 {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // Fields are counted after the name, which may contain any characters: the first field there is
    // the third of all.
    let (_name, fields) = text.rsplit_once(')').expect("a name");
    let field = fields.split_whitespace().nth(19 - 3).expect("a niceness");
    field.parse().expect("a number")
}

/// The niceness of its session.
fn session_niceness(pid: i32) -> i64 {
    let path = format!("/proc/{pid}/autogroup");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (_name, niceness) = text.trim_end().split_once(" nice ").expect("a session");
    niceness.parse().expect("a number")
}

/// Whether sessions have a niceness. CONFIG_SCHED_AUTOGROUP is off in real-time kernels.
fn sessions_are_nice(context: &mut Context) -> bool {
    let are_nice = fs::exists("/proc/self/autogroup").expect("proc");
    if !are_nice {
        assert!(is_real_time(), "sessions have no niceness");
        context.note("sessions of a real-time kernel have no niceness: nothing to test");
    }
    are_nice
}

fn own() -> i32 {
    i32::try_from(std::process::id()).expect("a process id")
}

/// A daemon that answers has lowered its priority.
fn await_answer(daemon: &mut Daemon) {
    await_that(daemon, "the daemon should answer", || !status().is_null());
}

fn a_daemon_that_leads_its_session_stands_back_with_it(context: &mut Context) {
    if !sessions_are_nice(context) {
        return;
    }
    let peer = Peer::new(1);
    let target = ["--pid".to_owned(), peer.pid().to_string()];
    let mut daemon = Daemon::start_leading("full", &target);
    await_answer(&mut daemon);
    assert_eq!(niceness(daemon.pid()), NICE);
    assert_eq!(session_niceness(daemon.pid()), NICE);
    assert_eq!(session_niceness(own()), 0, "another session");
    daemon.stop();
}

fn a_session_of_somebody_else_stays_as_it_is(context: &mut Context) {
    if !sessions_are_nice(context) {
        return;
    }
    let peer = Peer::new(1);
    let mut daemon = Daemon::start_on(&[&peer], &[]);
    await_answer(&mut daemon);
    assert_eq!(niceness(daemon.pid()), NICE);
    assert_eq!(session_niceness(daemon.pid()), 0, "that of this test");
    daemon.stop();
}

/// Inside a PID namespace the kernel gives outside processes the number zero.
fn a_daemon_in_a_namespace_of_its_own_knows_neither_its_session_nor_who_asks(
    context: &mut Context,
) {
    if !sessions_are_nice(context) {
        return;
    }
    let mut client = Peer::new(1);
    // SAFETY: it is for the children of this process, and the peer is there already.
    answer(unsafe { libc::unshare(libc::CLONE_NEWPID) }).expect("a namespace");
    let nobody = ["--comm".to_owned(), "nobody".to_owned()];
    let mut daemon = Daemon::start_with("full", &nobody);
    await_that(&mut daemon, "the daemon should answer", || {
        client.run(|_| !status().is_null())
    });
    assert_eq!(niceness(daemon.pid()), NICE);
    assert_eq!(session_niceness(own()), 0, "that of this test");
    daemon.stop();
}

fn a_supervisor_stands_back_with_its_session_and_stays_before_its_workers(context: &mut Context) {
    if !sessions_are_nice(context) {
        return;
    }
    let mut host = TwoGroups::prepared(lead_a_session);
    host.wait_for("both workers should run", || {
        worker("a") > 0 && worker("b") > 0
    });
    let supervisor = host.daemon.pid();
    assert_eq!(niceness(supervisor), 0, "all workers wait for it");
    for worker in ["a", "b"].map(worker) {
        assert_eq!(niceness(worker), NICE);
        assert_eq!(session_niceness(worker), NICE);
    }
    assert_eq!(session_niceness(supervisor), NICE);
    host.daemon.stop();
}

//! Workers that misbehave: a process of the test plays each.

use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;

use uksm_linux::processes::{ArrivedSpace, LeftSpace};
use uksm_policy::command::SpaceArrival;

use super::messages::MAX_QUEUED_REPORTS;
use super::*;
use crate::account::ledger::Ledger;
use crate::config::plans::tests::Host;
use crate::control::{Answer, Request};
use crate::groups::wire::messages::{SpaceAnswer, WorkerMessage};

/// A group whose worker is `sleep`, and the worker's end of the channel.
fn with_sleeper(events: &WorkerEvents) -> (WorkerProcess, Channel) {
    let plan = Host::new().plan("[group.a]\ncomm = \"nginx\"\n").unwrap();
    let plan = plan.into_iter().next().unwrap();
    let roots = Roots {
        proc_root: "/proc".into(),
        ksm_root: "/nonexistent".into(),
    };
    let written = WrittenPages::from_now_on(roots.proc_root.clone(), roots.ksm_root.clone());
    let ledger = Arc::new(Ledger::new(None, 1));
    let account = Account::new(&plan.name, ledger, None);
    let counts = (account, Rc::new(written));
    let mut worker = WorkerProcess::new(GroupId(1), (plan, 1), roots, None, counts);
    let (channel, theirs) = Channel::pair().unwrap();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pidfd = pidfd::open(child.id()).unwrap().unwrap();
    events.watch(worker.id, &channel).unwrap();
    events.watch(worker.id, &pidfd).unwrap();
    worker.account.begun(child.id());
    worker.state = WorkerState::Running(RunningWorker {
        child,
        pidfd,
        channel,
        hints: None,
        since: Instant::now(),
        is_ready: true,
        written_pages: 0,
    });
    (worker, theirs)
}

fn process(worker: &WorkerProcess) -> u32 {
    worker.pid().unwrap()
}

fn await_end(worker: &mut WorkerProcess) {
    let end = Instant::now() + Duration::from_secs(20);
    while !worker.has_ended() {
        assert!(Instant::now() < end, "it should end");
        sleep(Duration::from_millis(5));
        worker.reap();
    }
}

fn space(id: u32) -> ArrivedSpace {
    ArrivedSpace {
        group: GroupId(1),
        pid: id,
        arrival: SpaceArrival {
            space: SpaceId(id),
            kind: 0,
            age: 0,
        },
    }
}

#[test]
fn worker_that_closes_its_channel_and_lives_is_killed_without_wake_ups() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, theirs) = with_sleeper(&events);
    let pid = process(&worker);
    drop(theirs);
    // A child of another test may have a copy of it between fork and exec.
    let end = Instant::now() + Duration::from_secs(20);
    while events.ready().is_empty() {
        assert!(Instant::now() < end, "the end of the channel is told");
        sleep(Duration::from_millis(5));
    }
    worker.receive();
    assert!(!worker.has_ended() && worker.pid().is_none());
    assert!(events.ready().is_empty(), "its channel is closed");
    assert!(worker.due().is_some(), "it will be killed");
    await_end(&mut worker);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(worker.restarts, 1);
    assert_eq!(
        worker.fault(),
        Some("the worker ended: signal: 9 (SIGKILL)")
    );
}

#[test]
fn the_next_worker_reports_its_own_written_pages() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, theirs) = with_sleeper(&events);
    assert_eq!(worker.written_pages(), 0);
    for pages in [3, 7] {
        theirs.send(&WorkerMessage::Written(pages), None).unwrap();
    }
    worker.receive();
    assert_eq!(worker.written_pages(), 7);
    worker.end();
    assert_eq!(worker.written_pages(), 0);
    if let WorkerState::Ending(ending) = &mut worker.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut worker);
}

#[test]
fn one_that_is_stopped_is_not_waited_for() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, _theirs) = with_sleeper(&events);
    let begin = Instant::now();
    worker.ask(&Request::Status);
    worker.receive();
    assert!(worker.is_asked());
    let answer = worker.take_answer().unwrap();
    assert_eq!(answer, Err(messages::NO_ANSWER.to_owned()));
    assert!(worker.take_answer().is_none(), "that was all");
    // A group that was formed after the request.
    let line = worker.answer().unwrap_err();
    assert!(line.contains("was not asked"), "{line}");
    worker.end();
    worker.reap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(!worker.has_ended());
    let WorkerState::Ending(ending) = &mut worker.state else {
        panic!("it should be about to end");
    };
    ending.kill_at = Some(Instant::now());
    await_end(&mut worker);
    assert!(worker.is_held(), "none is started");
    worker.start(&events);
    assert!(worker.pid().is_none());
    worker.allow_start();
    assert!(!worker.is_held());
}

#[test]
fn one_that_could_not_be_begun_is_killed_and_not_waited_for() {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id();
    let begin = Instant::now();
    reap_elsewhere(child);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let end = begin + Duration::from_secs(20);
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < end, "it should end, and be reaped");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_answer_is_that_to_the_last_question_and_fit_to_be_shown() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, theirs) = with_sleeper(&events);
    worker.ask(&Request::Status);
    worker.ask(&Request::Spaces);
    let answer = |number: u64, line: &str| {
        let answer = Answer::Error(line.to_owned());
        theirs
            .send(&WorkerMessage::Answer(number, answer), None)
            .unwrap();
    };
    answer(1, "late");
    worker.receive();
    assert!(worker.is_asked());
    answer(2, &format!("\u{1b}]0;x\u{7}\n{}", "y".repeat(10_000)));
    worker.receive();
    assert!(!worker.is_asked());
    let Some(Ok(Answer::Error(line))) = worker.take_answer() else {
        panic!("it has answered");
    };
    assert!(
        line.len() <= 520 && !line.contains(char::is_control),
        "{line}"
    );
    worker.end();
    if let WorkerState::Ending(ending) = &mut worker.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut worker);
}

#[test]
fn a_report_that_is_repeated_is_taken_in_once_and_none_of_a_space_that_has_not_left() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, theirs) = with_sleeper(&events);
    worker.handover.arrive(space(7), false);
    worker.handover.arrive(space(8), false);
    let report = |worker: &mut WorkerProcess, answer: fn() -> SpaceAnswer| {
        let many: Vec<SpaceAnswer> = (0..5000).map(|_| answer()).collect();
        theirs.send(&WorkerMessage::Spaces(many), None).unwrap();
        worker.receive();
        let reports = worker.take_reports();
        let all = [reports.detached, reports.dead];
        all.map(|spaces| spaces.into_iter().collect::<Vec<_>>())
    };
    let detached = || SpaceAnswer::Detached(7);
    assert_eq!(report(&mut worker, detached), [vec![], vec![]]);
    let left = LeftSpace {
        group: GroupId(1),
        space: SpaceId(7),
        was_reported: true,
        lives: true,
    };
    assert!(!worker.handover.leave(left));
    assert_eq!(report(&mut worker, detached), [vec![SpaceId(7)], vec![]]);
    assert_eq!(report(&mut worker, detached), [vec![], vec![]]);
    let dead = || SpaceAnswer::Dead(8);
    assert_eq!(report(&mut worker, dead), [vec![], vec![SpaceId(8)]]);
    worker.end();
    if let WorkerState::Ending(ending) = &mut worker.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut worker);
}

#[test]
fn reports_of_a_worker_are_bounded_and_about_its_own_spaces() {
    let events = WorkerEvents::new().unwrap();
    let (mut worker, theirs) = with_sleeper(&events);
    worker.handover.arrive(space(7), false);
    let strange = |_| SpaceAnswer::Dead(8);
    let many: Vec<SpaceAnswer> = (0..5000).map(strange).collect();
    theirs.send(&WorkerMessage::Spaces(many), None).unwrap();
    worker.receive();
    assert_eq!(
        worker.take_reports(),
        Reports::default(),
        "there is no such space"
    );
    let own: Vec<SpaceAnswer> = (0..5000).map(|_| SpaceAnswer::Dead(7)).collect();
    let mut sent = 0;
    for _ in 0..100 {
        while theirs
            .send(&WorkerMessage::Spaces(own.clone()), None)
            .is_ok()
        {
            sent += own.len();
        }
        worker.receive();
    }
    assert!(sent > MAX_QUEUED_REPORTS, "{sent}");
    assert!(
        worker.space_reports.len() < MAX_QUEUED_REPORTS + own.len(),
        "{}",
        worker.space_reports.len()
    );
    assert_eq!(events.ready().len(), 1, "the rest waits in the socket");
    // An invalid message ends it.
    drop(worker.take_reports());
    let (strangers, ours) = Channel::pair().unwrap();
    strangers.send(&"x", Some(theirs.as_fd())).unwrap();
    assert!(ours.receive::<WorkerMessage>(None).is_err());
    worker.end();
    if let WorkerState::Ending(ending) = &mut worker.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut worker);
}

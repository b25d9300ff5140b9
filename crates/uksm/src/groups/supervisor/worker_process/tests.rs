//! Workers that do not do as they should: a process of the test stands in for each.

use std::os::fd::AsFd as _;
use std::process::Command;
use std::thread::sleep;

use uksm_linux::processes::{Arrived, Left};
use uksm_policy::command::SpaceArrival;

use super::messages::MAX_SAID;
use super::*;
use crate::config::plans::tests::Host;
use crate::control::{Answer, Request};
use crate::groups::supervisor::accounts::Accounts;
use crate::groups::wire::messages::{SpaceAnswer, Word};
use crate::setting::Daemon;

/// A group whose worker is `sleep`, and the worker's end of the channel.
fn with_sleeper(ears: &Ears) -> (Upkeep, Channel) {
    let plan = Host::new().plan("[group.a]\ncomm = \"nginx\"\n").unwrap();
    let plan = plan.into_iter().next().unwrap();
    let daemon = Daemon {
        account_dir: None,
        ..Daemon::standard()
    };
    let account = Accounts::new(&daemon).of_group(&plan, None);
    let roots = Roots {
        proc_root: "/proc".into(),
        ksm_root: "/nonexistent".into(),
    };
    let written = WrittenPages::from_now_on(roots.proc_root.clone(), roots.ksm_root.clone());
    let counts = (account, Rc::new(written));
    let mut upkeep = Upkeep::new(GroupId(1), (plan, 1), roots, None, counts);
    let (channel, theirs) = Channel::pair().unwrap();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pidfd = pidfd::open(child.id()).unwrap().unwrap();
    ears.listen(upkeep.id, &channel).unwrap();
    ears.listen(upkeep.id, &pidfd).unwrap();
    upkeep.account.begun(child.id());
    upkeep.state = State::Running(Running {
        child,
        pidfd,
        channel,
        hints: None,
        since: Instant::now(),
        is_ready: true,
    });
    (upkeep, theirs)
}

fn process(upkeep: &Upkeep) -> u32 {
    upkeep.pid().unwrap()
}

fn await_end(upkeep: &mut Upkeep) {
    let end = Instant::now() + Duration::from_secs(20);
    while !upkeep.has_ended() {
        assert!(Instant::now() < end, "it should end");
        sleep(Duration::from_millis(5));
        upkeep.see_off();
    }
}

fn space(id: u32) -> Arrived {
    Arrived {
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
fn one_that_closes_its_channel_and_lives_is_killed_and_wakes_nobody_meanwhile() {
    let ears = Ears::new().unwrap();
    let (mut upkeep, theirs) = with_sleeper(&ears);
    let pid = process(&upkeep);
    drop(theirs);
    // A child of another test may have a copy of it between fork and exec.
    let end = Instant::now() + Duration::from_secs(20);
    while ears.heard().is_empty() {
        assert!(Instant::now() < end, "the end of the channel is told");
        sleep(Duration::from_millis(5));
    }
    upkeep.hear();
    assert!(!upkeep.has_ended() && upkeep.pid().is_none());
    assert!(ears.heard().is_empty(), "its channel is closed");
    assert!(upkeep.due().is_some(), "it will be killed");
    await_end(&mut upkeep);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(upkeep.restarts, 1);
    assert_eq!(
        upkeep.fault(),
        Some("the worker ended: signal: 9 (SIGKILL)")
    );
}

#[test]
fn one_that_is_stopped_is_not_waited_for() {
    let ears = Ears::new().unwrap();
    let (mut upkeep, _theirs) = with_sleeper(&ears);
    let begin = Instant::now();
    upkeep.ask(&Request::Status);
    upkeep.hear();
    assert!(upkeep.is_asked());
    let answer = upkeep.take_answer().unwrap();
    assert_eq!(answer, Err(messages::NO_ANSWER.to_owned()));
    assert!(upkeep.take_answer().is_none(), "that was all");
    // A group that was formed after the question.
    let line = upkeep.answer().unwrap_err();
    assert!(line.contains("was not asked"), "{line}");
    upkeep.end();
    upkeep.see_off();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(!upkeep.has_ended());
    let State::Ending(ending) = &mut upkeep.state else {
        panic!("it should be about to end");
    };
    ending.kill_at = Some(Instant::now());
    await_end(&mut upkeep);
    assert!(upkeep.is_held(), "none is started");
    upkeep.start(&ears);
    assert!(upkeep.pid().is_none());
    upkeep.go_on();
    assert!(!upkeep.is_held());
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
    let ears = Ears::new().unwrap();
    let (mut upkeep, theirs) = with_sleeper(&ears);
    upkeep.ask(&Request::Status);
    upkeep.ask(&Request::Spaces);
    let answer = |number: u64, line: &str| {
        let answer = Answer::Error(line.to_owned());
        theirs.send(&Word::Answer(number, answer), None).unwrap();
    };
    answer(1, "late");
    upkeep.hear();
    assert!(upkeep.is_asked());
    answer(2, &format!("\u{1b}]0;x\u{7}\n{}", "y".repeat(10_000)));
    upkeep.hear();
    assert!(!upkeep.is_asked());
    let Some(Ok(Answer::Error(line))) = upkeep.take_answer() else {
        panic!("it has answered");
    };
    assert!(
        line.len() <= 520 && !line.contains(char::is_control),
        "{line}"
    );
    upkeep.end();
    if let State::Ending(ending) = &mut upkeep.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut upkeep);
}

#[test]
fn a_report_that_is_repeated_is_taken_in_once_and_none_of_a_space_that_has_not_left() {
    let ears = Ears::new().unwrap();
    let (mut upkeep, theirs) = with_sleeper(&ears);
    upkeep.handover.arrive(space(7), false);
    upkeep.handover.arrive(space(8), false);
    let report = |upkeep: &mut Upkeep, answer: fn() -> SpaceAnswer| {
        let many: Vec<SpaceAnswer> = (0..5000).map(|_| answer()).collect();
        theirs.send(&Word::Spaces(many), None).unwrap();
        upkeep.hear();
        let reports = upkeep.take_reports();
        let all = [reports.detached, reports.dead];
        all.map(|spaces| spaces.into_iter().collect::<Vec<_>>())
    };
    let detached = || SpaceAnswer::Detached(7);
    assert_eq!(report(&mut upkeep, detached), [vec![], vec![]]);
    let left = Left {
        group: GroupId(1),
        space: SpaceId(7),
        was_told: true,
        lives: true,
    };
    assert!(!upkeep.handover.leave(left));
    assert_eq!(report(&mut upkeep, detached), [vec![SpaceId(7)], vec![]]);
    assert_eq!(report(&mut upkeep, detached), [vec![], vec![]]);
    let dead = || SpaceAnswer::Dead(8);
    assert_eq!(report(&mut upkeep, dead), [vec![], vec![SpaceId(8)]]);
    upkeep.end();
    if let State::Ending(ending) = &mut upkeep.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut upkeep);
}

#[test]
fn what_one_says_of_spaces_is_bounded_and_about_its_own() {
    let ears = Ears::new().unwrap();
    let (mut upkeep, theirs) = with_sleeper(&ears);
    upkeep.handover.arrive(space(7), false);
    let strange = |_| SpaceAnswer::Dead(8);
    let many: Vec<SpaceAnswer> = (0..5000).map(strange).collect();
    theirs.send(&Word::Spaces(many), None).unwrap();
    upkeep.hear();
    assert_eq!(
        upkeep.take_reports(),
        Reports::default(),
        "there is no such space"
    );
    let own: Vec<SpaceAnswer> = (0..5000).map(|_| SpaceAnswer::Dead(7)).collect();
    let mut sent = 0;
    for _ in 0..100 {
        while theirs.send(&Word::Spaces(own.clone()), None).is_ok() {
            sent += own.len();
        }
        upkeep.hear();
    }
    assert!(sent > MAX_SAID, "{sent}");
    assert!(
        upkeep.said.len() < MAX_SAID + own.len(),
        "{}",
        upkeep.said.len()
    );
    assert_eq!(ears.heard().len(), 1, "the rest waits in the socket");
    // What is no message ends it.
    drop(upkeep.take_reports());
    let (strangers, ours) = Channel::pair().unwrap();
    strangers.send(&"x", Some(theirs.as_fd())).unwrap();
    assert!(ours.receive::<Word>(None).is_err());
    upkeep.end();
    if let State::Ending(ending) = &mut upkeep.state {
        ending.kill_at = Some(Instant::now());
    }
    await_end(&mut upkeep);
}

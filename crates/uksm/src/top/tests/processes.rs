//! Processes, of a daemon without groups or of a group, and the explanation of one.

use super::*;
use crate::status::processes::ProcessList;

fn daemon() -> ScreenState {
    let answer = Answer::Status(Box::new(fake::status(512)));
    ScreenState::of(StatusAnswer::of(answer).unwrap())
}

/// Three processes: by merged pages in the order redis, nginx, sh; by further pages nginx, sh,
/// redis; by CPU sh, nginx, redis.
fn three() -> ProcessList {
    let process = |pid, comm, pages, seconds| {
        let mut process = fake::process(pid, comm, pages);
        process.sums.work_seconds = seconds;
        process
    };
    ProcessList {
        uptime_seconds: 10.0,
        processes: vec![
            process(977, "redis-server", (2560, 0), 0.1),
            process(4711, "nginx", (256, 512), 0.25),
            process(123_456, "sh", (0, 256), 1.0),
        ],
        left_out: 0,
    }
}

fn take_processes(state: &mut ScreenState, processes: ProcessList) {
    let whose = state.processes.whose.clone();
    state.take(PollerAnswer::Processes(whose, Ok(processes)));
}

fn with_processes() -> ScreenState {
    let mut state = daemon();
    take_processes(&mut state, three());
    state
}

fn pids(state: &ScreenState) -> Vec<u32> {
    let rows = state.rows();
    rows.iter().map(|row| row.process.pid).collect()
}

#[test]
fn at_80_columns_all_of_it_is_there() {
    let screen = plain(&with_processes(), 80, 24);
    assert_eq!(screen[0], "uksm 0.1.0  saved 1.0 MiB net  running 61 s");
    assert_eq!(screen[1], "net, all, last 1 answers: 1.0 to 1.0 MiB");
    assert_eq!(
        screen[5..11],
        [
            "levels  1000/125/37/15 regions, 2.50 % of a core of 20.00 %",
            "hints   300 came, 0 pages merged by them, from programs",
            "process             merged MiB potential MiB  cpu % memory MiB    read",
            "   977 redis-server       10.0           0.0   1.00       16.0  123.4k",
            "  4711 nginx               1.0           2.0   2.50       16.0  123.4k",
            "123456 sh                  0.0           1.0  10.00       16.0  123.4k",
        ],
        "{screen:#?}"
    );
    assert_eq!(screen[22], "3 processes");
    assert_eq!(
        screen[23],
        "s merged  p potential  c cpu  n name  enter: explain  t status  q quit"
    );
}

#[test]
fn at_40_columns_what_is_merged_and_could_be_is_left() {
    let screen = plain(&with_processes(), 40, 12);
    assert_eq!(
        screen[..7],
        [
            "net 1.0 MiB",
            "levels  1000/125/37/15 regions, 2.50 % o",
            "hints   300 came, 0 pages merged by them",
            "process         merged MiB potential MiB",
            "   977 redis-se       10.0           0.0",
            "  4711 nginx           1.0           2.0",
            "123456 sh              0.0           1.0",
        ],
        "{screen:#?}"
    );
}

#[test]
fn at_20_columns_ids_and_what_is_merged_are_left() {
    let screen = plain(&with_processes(), 20, 10);
    assert_eq!(
        screen[..5],
        [
            "net 1.0 MiB",
            "process   merged MiB",
            "   977 re       10.0",
            "  4711 ng        1.0",
            "123456 sh        0.0",
        ],
        "{screen:#?}"
    );
    assert_eq!(screen[9], "q quit");
}

#[test]
fn characters_of_two_columns_move_nothing_and_half_of_one_is_not_shown() {
    let mut state = daemon();
    let named = ["漢漢漢漢漢", "redis"].into_iter().zip(10..);
    let processes = named.map(|(comm, pid)| fake::process(pid, comm, (256, 0)));
    take_processes(
        &mut state,
        ProcessList {
            processes: processes.collect(),
            ..three()
        },
    );
    let text = tables::Table::of_processes(&state.rows()).text(21);
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "process    merged MiB",
            "10 漢漢漢         1.0",
            "11 redis          1.0",
        ]
    );
}

#[test]
fn keys_sort_and_the_chosen_process_stays_chosen_while_others_come_and_go() {
    let mut state = with_processes();
    for (key, order) in [
        ('s', [977, 4711, 123_456]),
        ('p', [4711, 123_456, 977]),
        ('c', [123_456, 4711, 977]),
        ('n', [4711, 977, 123_456]),
    ] {
        press(&mut state, &[KeyCode::Char(key)]);
        assert_eq!(pids(&state), order, "{key}");
    }
    press(&mut state, &[KeyCode::Char('s'), KeyCode::Down]);
    assert_eq!(state.chosen(), 1);
    let mut later = three();
    later.processes.remove(0);
    later
        .processes
        .push(fake::process(200_000, "sh", (9000, 0)));
    later
        .processes
        .push(fake::process(200_001, "sh", (8000, 0)));
    later.uptime_seconds = 11.0;
    take_processes(&mut state, later);
    assert_eq!(pids(&state), [200_000, 200_001, 4711, 123_456]);
    assert_eq!(state.chosen(), 2, "4711 is where it is now");
    press(&mut state, &[KeyCode::End]);
    assert_eq!(state.chosen(), 3);
    // The chosen process ends, and the first one is chosen.
    let mut last = three();
    last.processes.truncate(2);
    take_processes(&mut state, last);
    assert_eq!(state.chosen(), 0);
}

#[test]
fn left_out_and_unknown_processes_are_noted() {
    let note = |state: &ScreenState| plain(state, 80, 24)[22].clone();
    let mut state = daemon();
    assert_eq!(note(&state), "asking for processes");
    state.take(PollerAnswer::Processes(
        Whose::Daemon,
        Err("not now".to_owned()),
    ));
    assert_eq!(note(&state), "processes: not now");
    take_processes(&mut state, ProcessList::default());
    assert_eq!(note(&state), "no processes are followed yet");
    take_processes(
        &mut state,
        ProcessList {
            left_out: 744,
            ..three()
        },
    );
    assert_eq!(note(&state), "744 more processes are not listed");
    // A name cannot send control characters to the terminal.
    let mut odd = three();
    odd.processes[0].comm = "a\u{1b}[2J\n".to_owned();
    take_processes(&mut state, odd);
    let screen = plain(&state, 80, 24);
    assert!(
        screen[8].starts_with("   977 a\\u{1b}[2J\\n   "),
        "{screen:#?}"
    );
}

#[test]
fn a_process_is_explained_and_the_screen_does_not_wait_for_it() {
    let mut state = with_processes();
    assert_eq!(state.take_wishes(), [PollerRequest::Follow(Whose::Daemon)]);
    press(&mut state, &[KeyCode::Down, KeyCode::Enter, KeyCode::Enter]);
    assert_eq!(
        state.take_wishes(),
        [PollerRequest::Explain(4711)],
        "asked once"
    );
    let asking = "asking why memory of nginx (4711) is not merged";
    assert_eq!(plain(&state, 80, 24)[22], asking);
    // The explanation of another process is too late.
    state.take(PollerAnswer::Explained(
        977,
        Ok("redis-server (977)".to_owned()),
    ));
    assert_eq!(plain(&state, 80, 24)[22], asking);
    let text: String = (0..60).map(|n| format!("line {n}\n")).collect();
    state.take(PollerAnswer::Explained(4711, Ok(text)));
    let screen = plain(&state, 80, 24);
    assert_eq!((screen[5].as_str(), screen[22].as_str()), ("line 0", ""));
    assert!(screen[23].starts_with("esc: back  r: ask again"));
    press(&mut state, &[KeyCode::PageDown, KeyCode::Down]);
    assert_eq!(plain(&state, 80, 24)[5], "line 11");
    // Answers about processes continue meanwhile.
    take_processes(&mut state, three());
    assert_eq!(state.take_wishes(), [], "nothing more is asked by itself");
    press(&mut state, &[KeyCode::Char('r'), KeyCode::Char('r')]);
    assert_eq!(state.take_wishes(), [PollerRequest::Explain(4711)]);
    let screen = plain(&state, 80, 24);
    assert_eq!(
        (screen[5].as_str(), screen[22].as_str()),
        ("line 11", asking)
    );
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((state.page(), state.chosen()), (state::Page::Processes, 1));
    // An answer after the page was closed is dropped.
    state.take(PollerAnswer::Explained(4711, Ok("late".to_owned())));
    assert_eq!(state.page(), state::Page::Processes);
}

#[test]
fn an_explain_that_fails_is_one_line() {
    let mut state = with_processes();
    press(&mut state, &[KeyCode::Enter]);
    assert_eq!(state.take_wishes().len(), 2);
    let gone = "process 977 has ended".to_owned();
    state.take(PollerAnswer::Explained(977, Err(gone)));
    for (width, line) in [
        (80, "977: process 977 has ended"),
        (40, "977: process 977 has ended"),
        (20, "977: process 977 has"),
    ] {
        let screen = plain(&state, width, 12);
        assert!(screen.contains(&line.to_owned()), "{screen:#?}");
    }
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(state.take_wishes(), [PollerRequest::Explain(977)]);
}

#[test]
fn the_whole_status_is_a_key_away() {
    let mut state = with_processes();
    press(&mut state, &[KeyCode::Char('t')]);
    let screen = plain(&state, 80, 30);
    let has = |line: &str| screen.iter().any(|found| found.starts_with(line));
    assert!(
        has("uksm 0.1.0, process") && has("level   share"),
        "{screen:#?}"
    );
    // Nothing can be chosen, and scrolling stops at the last line.
    press(&mut state, &[KeyCode::Enter, KeyCode::Down]);
    assert_eq!(state.scrolled, 1);
    press(&mut state, &[KeyCode::PageDown; 40]);
    let screen = plain(&state, 80, 30);
    assert!(
        screen[5].starts_with("           ") || screen[5].starts_with("kernel"),
        "{screen:#?}"
    );
    press(&mut state, &[KeyCode::Home]);
    assert_eq!(state.scrolled, 0);
    press(&mut state, &[KeyCode::Char('t')]);
    assert_eq!(state.page(), state::Page::Processes);
    // The status also opens from the explanation, and closes to it.
    press(&mut state, &[KeyCode::Enter, KeyCode::Char('t')]);
    assert_eq!(state.page(), state::Page::Status);
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(state.page(), state::Page::Explained);
}

#[test]
fn a_group_is_opened_to_its_processes_and_its_own_curve() {
    let mut state = super::three();
    assert_eq!(state.take_wishes(), [PollerRequest::Follow(Whose::Nobody)]);
    press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    let db = Whose::Group("db".to_owned());
    assert_eq!(state.take_wishes(), [PollerRequest::Follow(db.clone())]);
    // An answer about another group is too late.
    let web = Whose::Group("web".to_owned());
    state.take(PollerAnswer::Processes(web, Ok(three())));
    assert!(state.rows().is_empty());
    state.take(PollerAnswer::Processes(db, Ok(three())));
    let screen = plain(&state, 80, 24);
    assert_eq!(screen[1], "net, db, last 1 answers: 1.0 to 1.0 MiB");
    assert!(
        screen[5].ends_with("50.00 % of a core of 20.00 %"),
        "{screen:#?}"
    );
    assert!(screen[8].starts_with("   977 redis-server"), "{screen:#?}");
    assert_eq!(
        screen[23],
        "esc: groups  s merged  p potential  c cpu  n name  enter: explain  t  q"
    );
    press(&mut state, &[KeyCode::Char('t')]);
    let screen = plain(&state, 80, 24);
    let has = |line: &str| screen.iter().any(|found| found.starts_with(line));
    assert!(has("saved      1.0 MiB net = 2.0 by frames"), "{screen:#?}");
    press(&mut state, &[KeyCode::Esc, KeyCode::Enter]);
    assert_eq!(state.take_wishes(), [PollerRequest::Explain(977)]);
    press(&mut state, &[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(state.take_wishes(), [PollerRequest::Follow(Whose::Nobody)]);
    assert_eq!((state.page(), state.chosen()), (state::Page::Groups, 1));
    // A group that is gone is closed, and the first one is chosen.
    press(&mut state, &[KeyCode::Enter, KeyCode::Char('t')]);
    state.take(PollerAnswer::Status(Ok(of(vec![fake::group("web", 1)]))));
    assert_eq!((state.page(), state.chosen()), (state::Page::Groups, 0));
    assert_eq!(
        state.take_wishes().last(),
        Some(&PollerRequest::Follow(Whose::Nobody))
    );
    // The status of all groups is that of `uksm status`.
    press(&mut state, &[KeyCode::Char('t')]);
    assert!(state.text().unwrap().contains("web"));
}

#[test]
fn group_without_a_worker_has_a_reason_for_no_processes() {
    let mut state = super::three();
    press(&mut state, &[KeyCode::End, KeyCode::Enter]);
    let idle = Whose::Group("idle".to_owned());
    let line = "group idle: /sys/fs/cgroup/idle: no such control group yet";
    state.take(PollerAnswer::Processes(idle, Err(line.to_owned())));
    let screen = plain(&state, 80, 24);
    assert_eq!(screen[22], format!("processes: {line}"));
    assert_eq!(screen[1], "net, idle, last 1 answers: nothing is known");
}

#[test]
fn another_daemon_at_the_socket_may_have_groups_or_none() {
    let mut state = with_processes();
    state.take(PollerAnswer::Status(Ok(of(vec![fake::group("web", 1)]))));
    assert_eq!(state.page(), state::Page::Groups);
    let answer = Answer::Status(Box::new(fake::status(512)));
    state.take(PollerAnswer::Status(StatusAnswer::of(answer)));
    assert_eq!(state.page(), state::Page::Processes);
    assert_eq!(
        state.take_wishes().last(),
        Some(&PollerRequest::Follow(Whose::Daemon))
    );
}

#[test]
fn of_wishes_that_wait_for_a_slow_daemon_only_the_last_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("uksm.sock");
    let (asked, questions) = std::sync::mpsc::channel();
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let _daemon = FakeDaemon::answering(&path, move |request, _| {
        asked.send(request.clone()).unwrap();
        // The end of the test opens it as well.
        let _ended = opened.recv();
        Answer::Error("not today".to_owned())
    });
    let (wishes, answers) = poller::start(path, Duration::from_secs(3600)).unwrap();
    let group = |name: &str| Whose::Group(name.to_owned());
    wishes.send(PollerRequest::Follow(group("a"))).unwrap();
    let question = |name: &str| Request::Processes(Some(name.to_owned()));
    assert_eq!(questions.recv().unwrap(), question("a"));
    let own = std::process::id();
    for wish in [
        PollerRequest::Follow(group("b")),
        PollerRequest::Explain(1),
        PollerRequest::Follow(group("c")),
        PollerRequest::Explain(own),
    ] {
        wishes.send(wish).unwrap();
    }
    drop(gate);
    let answers: Vec<PollerAnswer> = answers.iter().take(3).collect();
    let [
        PollerAnswer::Processes(first, _),
        PollerAnswer::Processes(second, _),
        PollerAnswer::Explained(pid, _),
    ] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!((first, second, *pid), (&group("a"), &group("c"), own));
    assert_eq!(questions.recv().unwrap(), question("c"));
}

#[test]
fn what_is_wished_is_asked_for_at_once_and_the_rest_once_an_interval() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("uksm.sock");
    let daemon = FakeDaemon::answering(&path, |request, _| match request {
        Request::Status => fake::groups(vec![fake::group("web", 512)]),
        Request::Processes(group) => {
            assert_eq!(group.as_deref(), Some("web"));
            Answer::Processes(Box::new(three()))
        }
        Request::Explain { pid, .. } => Answer::Error(format!("{pid}: not today")),
        other => panic!("{other:?}"),
    });
    let (wishes, answers) = poller::start(path.clone(), Duration::from_secs(3600)).unwrap();
    wishes
        .send(PollerRequest::Follow(Whose::Group("web".to_owned())))
        .unwrap();
    let PollerAnswer::Processes(_, Ok(processes)) = answers.recv().unwrap() else {
        panic!("processes were wished");
    };
    assert_eq!(processes, three());
    let own = std::process::id();
    for (pid, line) in [
        (own, format!("{own}: not today")),
        (u32::MAX, format!("process {} has ended", u32::MAX)),
    ] {
        wishes.send(PollerRequest::Explain(pid)).unwrap();
        let PollerAnswer::Explained(of, Err(error)) = answers.recv().unwrap() else {
            panic!("a reason was wished");
        };
        assert_eq!((of, error), (pid, line));
    }
    drop(wishes);
    assert!(answers.recv().is_err(), "nobody wishes anything");

    let (_wishes, answers) = poller::start(path, Duration::from_millis(20)).unwrap();
    assert!(matches!(
        answers.recv().unwrap(),
        PollerAnswer::Status(Ok(_))
    ));
    drop(daemon);
    let faults = answers.iter().filter_map(|word| match word {
        PollerAnswer::Status(answer) => answer.err(),
        other => panic!("nobody's processes were asked for: {other:?}"),
    });
    // By the third answer, requests that were under way are over.
    let third = { faults }.nth(2);
    assert_eq!(third.as_deref(), Some("no daemon answers"));
}

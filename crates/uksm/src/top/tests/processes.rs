//! Processes, of a daemon without groups or of a group, and the explanation of one.

use super::*;
use crate::status::processes::Processes;

fn daemon() -> View {
    let answer = Answer::Status(Box::new(fake::status(512)));
    View::of(Answered::of(answer).unwrap())
}

/// Three processes: by merged pages in the order redis, nginx, sh; by further pages nginx, sh,
/// redis; by CPU sh, nginx, redis.
fn three() -> Processes {
    let process = |pid, comm, pages, seconds| {
        let mut process = fake::process(pid, comm, pages);
        process.sums.work_seconds = seconds;
        process
    };
    Processes {
        uptime_seconds: 10.0,
        processes: vec![
            process(977, "redis-server", (2560, 0), 0.1),
            process(4711, "nginx", (256, 512), 0.25),
            process(123_456, "sh", (0, 256), 1.0),
        ],
        left_out: 0,
    }
}

fn said(view: &mut View, processes: Processes) {
    let whose = view.processes.whose.clone();
    view.take(Said::Processes(whose, Ok(processes)));
}

fn with_processes() -> View {
    let mut view = daemon();
    said(&mut view, three());
    view
}

fn pids(view: &View) -> Vec<u32> {
    let rows = view.rows();
    rows.iter().map(|row| row.process.pid).collect()
}

#[test]
fn at_80_columns_all_of_it_is_there() {
    let screen = plain(&with_processes(), 80, 24);
    assert_eq!(screen[0], "uksm 0.1.0  saved 1.0 MiB net  running 61 s");
    assert_eq!(screen[1], "saved, all, last 1 answers: 1.0 to 1.0 MiB");
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
            "saved 1.0 MiB",
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
            "saved 1.0 MiB",
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
    let mut view = daemon();
    let named = ["漢漢漢漢漢", "redis"].into_iter().zip(10..);
    let processes = named.map(|(comm, pid)| fake::process(pid, comm, (256, 0)));
    said(
        &mut view,
        Processes {
            processes: processes.collect(),
            ..three()
        },
    );
    let text = tables::Table::of_processes(&view.rows()).text(21);
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
    let mut view = with_processes();
    for (key, order) in [
        ('s', [977, 4711, 123_456]),
        ('p', [4711, 123_456, 977]),
        ('c', [123_456, 4711, 977]),
        ('n', [4711, 977, 123_456]),
    ] {
        press(&mut view, &[KeyCode::Char(key)]);
        assert_eq!(pids(&view), order, "{key}");
    }
    press(&mut view, &[KeyCode::Char('s'), KeyCode::Down]);
    assert_eq!(view.chosen(), 1);
    let mut later = three();
    later.processes.remove(0);
    later
        .processes
        .push(fake::process(200_000, "sh", (9000, 0)));
    later
        .processes
        .push(fake::process(200_001, "sh", (8000, 0)));
    later.uptime_seconds = 11.0;
    said(&mut view, later);
    assert_eq!(pids(&view), [200_000, 200_001, 4711, 123_456]);
    assert_eq!(view.chosen(), 2, "4711 is where it is now");
    press(&mut view, &[KeyCode::End]);
    assert_eq!(view.chosen(), 3);
    // The chosen process ends, and the first one is chosen.
    let mut last = three();
    last.processes.truncate(2);
    said(&mut view, last);
    assert_eq!(view.chosen(), 0);
}

#[test]
fn what_is_left_out_unknown_or_nobody_is_said() {
    let note = |view: &View| plain(view, 80, 24)[22].clone();
    let mut view = daemon();
    assert_eq!(note(&view), "asking for processes");
    view.take(Said::Processes(Whose::Daemon, Err("not now".to_owned())));
    assert_eq!(note(&view), "processes: not now");
    said(&mut view, Processes::default());
    assert_eq!(note(&view), "no processes are followed yet");
    said(
        &mut view,
        Processes {
            left_out: 744,
            ..three()
        },
    );
    assert_eq!(note(&view), "744 more processes are not listed");
    // A name cannot send control characters to the terminal.
    let mut odd = three();
    odd.processes[0].comm = "a\u{1b}[2J\n".to_owned();
    said(&mut view, odd);
    let screen = plain(&view, 80, 24);
    assert!(
        screen[8].starts_with("   977 a\\u{1b}[2J\\n   "),
        "{screen:#?}"
    );
}

#[test]
fn a_process_is_explained_and_the_screen_does_not_wait_for_it() {
    let mut view = with_processes();
    assert_eq!(view.take_wishes(), [Wish::Follow(Whose::Daemon)]);
    press(&mut view, &[KeyCode::Down, KeyCode::Enter, KeyCode::Enter]);
    assert_eq!(view.take_wishes(), [Wish::Explain(4711)], "asked once");
    let asking = "asking why memory of nginx (4711) is not merged";
    assert_eq!(plain(&view, 80, 24)[22], asking);
    // The explanation of another process is too late.
    view.take(Said::Explained(977, Ok("redis-server (977)".to_owned())));
    assert_eq!(plain(&view, 80, 24)[22], asking);
    let text: String = (0..60).map(|n| format!("line {n}\n")).collect();
    view.take(Said::Explained(4711, Ok(text)));
    let screen = plain(&view, 80, 24);
    assert_eq!((screen[5].as_str(), screen[22].as_str()), ("line 0", ""));
    assert!(screen[23].starts_with("esc: back  r: ask again"));
    press(&mut view, &[KeyCode::PageDown, KeyCode::Down]);
    assert_eq!(plain(&view, 80, 24)[5], "line 11");
    // Answers about processes continue meanwhile.
    said(&mut view, three());
    assert_eq!(view.take_wishes(), [], "nothing more is asked by itself");
    press(&mut view, &[KeyCode::Char('r'), KeyCode::Char('r')]);
    assert_eq!(view.take_wishes(), [Wish::Explain(4711)]);
    let screen = plain(&view, 80, 24);
    assert_eq!(
        (screen[5].as_str(), screen[22].as_str()),
        ("line 11", asking)
    );
    press(&mut view, &[KeyCode::Esc]);
    assert_eq!((view.page(), view.chosen()), (view::Page::Processes, 1));
    // An answer after the page was closed is dropped.
    view.take(Said::Explained(4711, Ok("late".to_owned())));
    assert_eq!(view.page(), view::Page::Processes);
}

#[test]
fn an_explain_that_fails_is_one_line() {
    let mut view = with_processes();
    press(&mut view, &[KeyCode::Enter]);
    assert_eq!(view.take_wishes().len(), 2);
    let gone = "process 977 has ended".to_owned();
    view.take(Said::Explained(977, Err(gone)));
    for (width, line) in [
        (80, "977: process 977 has ended"),
        (40, "977: process 977 has ended"),
        (20, "977: process 977 has"),
    ] {
        let screen = plain(&view, width, 12);
        assert!(screen.contains(&line.to_owned()), "{screen:#?}");
    }
    press(&mut view, &[KeyCode::Char('r')]);
    assert_eq!(view.take_wishes(), [Wish::Explain(977)]);
}

#[test]
fn the_whole_status_is_a_key_away() {
    let mut view = with_processes();
    press(&mut view, &[KeyCode::Char('t')]);
    let screen = plain(&view, 80, 30);
    let has = |line: &str| screen.iter().any(|found| found.starts_with(line));
    assert!(
        has("uksm 0.1.0, process") && has("level   share"),
        "{screen:#?}"
    );
    // Nothing can be chosen, and scrolling stops at the last line.
    press(&mut view, &[KeyCode::Enter, KeyCode::Down]);
    assert_eq!(view.scrolled, 1);
    press(&mut view, &[KeyCode::PageDown; 40]);
    let screen = plain(&view, 80, 30);
    assert!(
        screen[5].starts_with("           ") || screen[5].starts_with("kernel"),
        "{screen:#?}"
    );
    press(&mut view, &[KeyCode::Home]);
    assert_eq!(view.scrolled, 0);
    press(&mut view, &[KeyCode::Char('t')]);
    assert_eq!(view.page(), view::Page::Processes);
    // The status also opens from the explanation, and closes to it.
    press(&mut view, &[KeyCode::Enter, KeyCode::Char('t')]);
    assert_eq!(view.page(), view::Page::Status);
    press(&mut view, &[KeyCode::Esc]);
    assert_eq!(view.page(), view::Page::Explained);
}

#[test]
fn a_group_is_opened_to_its_processes_and_its_own_curve() {
    let mut view = super::three();
    assert_eq!(view.take_wishes(), [Wish::Follow(Whose::Nobody)]);
    press(&mut view, &[KeyCode::Down, KeyCode::Enter]);
    let db = Whose::Group("db".to_owned());
    assert_eq!(view.take_wishes(), [Wish::Follow(db.clone())]);
    // An answer about another group is too late.
    let web = Whose::Group("web".to_owned());
    view.take(Said::Processes(web, Ok(three())));
    assert!(view.rows().is_empty());
    view.take(Said::Processes(db, Ok(three())));
    let screen = plain(&view, 80, 24);
    assert_eq!(screen[1], "saved, db, last 1 answers: 1.0 to 1.0 MiB");
    assert!(
        screen[5].ends_with("50.00 % of a core of 20.00 %"),
        "{screen:#?}"
    );
    assert!(screen[8].starts_with("   977 redis-server"), "{screen:#?}");
    assert_eq!(
        screen[23],
        "esc: groups  s merged  p potential  c cpu  n name  enter: explain  t  q"
    );
    press(&mut view, &[KeyCode::Char('t')]);
    let screen = plain(&view, 80, 24);
    let has = |line: &str| screen.iter().any(|found| found.starts_with(line));
    assert!(has("saved      1.0 MiB net = 2.0 by frames"), "{screen:#?}");
    press(&mut view, &[KeyCode::Esc, KeyCode::Enter]);
    assert_eq!(view.take_wishes(), [Wish::Explain(977)]);
    press(&mut view, &[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(view.take_wishes(), [Wish::Follow(Whose::Nobody)]);
    assert_eq!((view.page(), view.chosen()), (view::Page::Groups, 1));
    // A group that is gone is closed, and the first one is chosen.
    press(&mut view, &[KeyCode::Enter, KeyCode::Char('t')]);
    view.take(Said::Status(Ok(of(vec![fake::group("web", 1)]))));
    assert_eq!((view.page(), view.chosen()), (view::Page::Groups, 0));
    assert_eq!(
        view.take_wishes().last(),
        Some(&Wish::Follow(Whose::Nobody))
    );
    // The status of all groups is that of `uksm status`.
    press(&mut view, &[KeyCode::Char('t')]);
    assert!(view.text().unwrap().contains("web"));
}

#[test]
fn a_group_without_a_worker_says_why_it_has_no_processes() {
    let mut view = super::three();
    press(&mut view, &[KeyCode::End, KeyCode::Enter]);
    let idle = Whose::Group("idle".to_owned());
    let line = "group idle: /sys/fs/cgroup/idle: no such control group yet";
    view.take(Said::Processes(idle, Err(line.to_owned())));
    let screen = plain(&view, 80, 24);
    assert_eq!(screen[22], format!("processes: {line}"));
    assert_eq!(screen[1], "saved, idle, last 1 answers: nothing is known");
}

#[test]
fn another_daemon_at_the_socket_may_have_groups_or_none() {
    let mut view = with_processes();
    view.take(Said::Status(Ok(of(vec![fake::group("web", 1)]))));
    assert_eq!(view.page(), view::Page::Groups);
    let answer = Answer::Status(Box::new(fake::status(512)));
    view.take(Said::Status(Answered::of(answer)));
    assert_eq!(view.page(), view::Page::Processes);
    assert_eq!(
        view.take_wishes().last(),
        Some(&Wish::Follow(Whose::Daemon))
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
    let (wishes, said) = asking::start(path, Duration::from_secs(3600)).unwrap();
    let group = |name: &str| Whose::Group(name.to_owned());
    wishes.send(Wish::Follow(group("a"))).unwrap();
    let question = |name: &str| Request::Processes(Some(name.to_owned()));
    assert_eq!(questions.recv().unwrap(), question("a"));
    let own = std::process::id();
    for wish in [
        Wish::Follow(group("b")),
        Wish::Explain(1),
        Wish::Follow(group("c")),
        Wish::Explain(own),
    ] {
        wishes.send(wish).unwrap();
    }
    drop(gate);
    let said: Vec<Said> = said.iter().take(3).collect();
    let [
        Said::Processes(first, _),
        Said::Processes(second, _),
        Said::Explained(pid, _),
    ] = &said[..]
    else {
        panic!("{said:?}");
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
    let (wishes, said) = asking::start(path.clone(), Duration::from_secs(3600)).unwrap();
    wishes
        .send(Wish::Follow(Whose::Group("web".to_owned())))
        .unwrap();
    let Said::Processes(_, Ok(processes)) = said.recv().unwrap() else {
        panic!("processes were wished");
    };
    assert_eq!(processes, three());
    let own = std::process::id();
    for (pid, line) in [
        (own, format!("{own}: not today")),
        (u32::MAX, format!("process {} has ended", u32::MAX)),
    ] {
        wishes.send(Wish::Explain(pid)).unwrap();
        let Said::Explained(of, Err(error)) = said.recv().unwrap() else {
            panic!("a reason was wished");
        };
        assert_eq!((of, error), (pid, line));
    }
    drop(wishes);
    assert!(said.recv().is_err(), "nobody wishes anything");

    let (_wishes, said) = asking::start(path, Duration::from_millis(20)).unwrap();
    assert!(matches!(said.recv().unwrap(), Said::Status(Ok(_))));
    drop(daemon);
    let faults = said.iter().filter_map(|word| match word {
        Said::Status(answer) => answer.err(),
        other => panic!("nobody's processes were asked for: {other:?}"),
    });
    // By the third answer, requests that were under way are over.
    let third = { faults }.nth(2);
    assert_eq!(third.as_deref(), Some("no daemon answers"));
}

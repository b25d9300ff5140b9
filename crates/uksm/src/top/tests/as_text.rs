//! `--once`: complete, and as wide as there is room.

use super::*;
use crate::status::processes::ProcessList;

fn some(whose: Whose, count: u32) -> PollerAnswer {
    let process = |n: u32| fake::process(n + 1, "redis", (u64::from(n), 0));
    let processes = ProcessList {
        uptime_seconds: 10.0,
        processes: (0..count).map(process).collect(),
        left_out: 3,
    };
    PollerAnswer::Processes(whose, Ok(processes))
}

fn daemon() -> ScreenState {
    let answer = Answer::Status(Box::new(fake::status(512)));
    ScreenState::of(StatusAnswer::of(answer).unwrap())
}

#[test]
fn of_a_daemon_without_groups_it_has_the_processes_and_the_status() {
    let state = daemon();
    assert_eq!(plain_text::whose(&state.answered), [Whose::Daemon]);
    let text = plain_text::text(&state, vec![some(Whose::Daemon, 256)], 80);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "uksm 0.1.0  saved 1.0 MiB net  running 61 s",
            "process   merged MiB potential MiB  cpu % memory MiB    read",
            "256 redis        1.0           0.0   5.00       16.0  123.4k",
        ]
    );
    assert_eq!(lines[258..260], ["3 more processes are not listed", ""]);
    assert!(lines[260].starts_with("uksm 0.1.0, process"), "{text}");
    assert!(text.ends_with('\n') && !text.ends_with("\n\n") && !text.contains('█'));
    let narrow = plain_text::text(&state, vec![some(Whose::Daemon, 2)], 20);
    assert_eq!(
        narrow.lines().take(3).collect::<Vec<_>>(),
        ["net 1.0 MiB", "process merged MiB", "2 redis        0.0"]
    );
}

#[test]
fn of_groups_it_has_all_with_their_faults_and_the_processes_of_each() {
    let groups = (0..300)
        .map(|n| fake::group(&format!("g{n}"), 256))
        .collect();
    let text = plain_text::text(&ScreenState::of(of(groups)), vec![], 240);
    // A heading and a head; of each group a line, and four of its own.
    assert_eq!(text.lines().count(), 2 + 300 * 5);
    let state = three();
    let [db, web] = ["db", "web"].map(|name| Whose::Group(name.to_owned()));
    assert_eq!(
        plain_text::whose(&state.answered),
        [db.clone(), web.clone()]
    );
    let answers = vec![
        some(db, 1),
        PollerAnswer::Processes(web, Err("group web: the worker ended".to_owned())),
    ];
    let text = plain_text::text(&state, answers, 80);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[4..],
        [
            "idle          -             -      -     -                -       -       -",
            "idle: /sys/fs/cgroup/idle: no such control group yet",
            "",
            "group web",
            "levels  1000/125/37/15 regions, 2.50 % of a core of 20.00 %",
            "hints   300 came, 0 pages merged by them, from programs",
            "processes: group web: the worker ended",
            "",
            "group db",
            "levels  1000/125/37/15 regions, 50.00 % of a core of 20.00 %",
            "hints   300 came, 0 pages merged by them, from programs",
            "process merged MiB potential MiB  cpu % memory MiB    read",
            "1 redis        0.0           0.0   5.00       16.0  123.4k",
            "3 more processes are not listed",
        ],
        "{text}"
    );
    assert!(!text.contains('\u{1b}') && !text.contains("quit"), "{text}");
}

#[test]
fn daemon_without_a_process_list_is_shown() {
    let error = "the running daemon does not know Processes".to_owned();
    let answers = vec![PollerAnswer::Processes(Whose::Daemon, Err(error))];
    let text = plain_text::text(&daemon(), answers, 80);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1], "processes: the running daemon does not know Processes",
        "{text}"
    );
    assert!(lines[3].starts_with("uksm 0.1.0, process"), "{text}");
}

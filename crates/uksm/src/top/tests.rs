//! What is on the screen, at several sizes, and what keys do to it.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::*;
use crate::control::Answer;
use crate::control::fake::{self, FakeDaemon};
use crate::status::groups::GroupStatus;

fn of(groups: Vec<GroupStatus>) -> Answered {
    Answered::of(fake::groups(groups)).unwrap()
}

/// Three groups: what is saved is in the order web, db, idle, CPU in the order db, web, idle.
fn three() -> View {
    let mut db = fake::group("db", 512);
    db.status.as_mut().unwrap().cpu.policy.recent_share = 0.5;
    let mut idle = fake::group("idle", 0);
    (idle.status, idle.pid) = (None, None);
    idle.fault = Some("/sys/fs/cgroup/idle: no such control group yet".to_owned());
    View::of(of(vec![db, idle, fake::group("web", 2560)]))
}

fn drawn(view: &View, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw =
        |frame: &mut ratatui::Frame| screen::draw(view, look, frame.area(), frame.buffer_mut());
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let rows = buffer
        .content()
        .chunks(usize::from(buffer.area.width).max(1));
    let line = |row: &[ratatui::buffer::Cell]| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    rows.map(line).collect()
}

fn plain(view: &View, width: u16, height: u16) -> Vec<String> {
    lines(&drawn(view, Look { is_coloured: false }, width, height))
}

fn press(view: &mut View, keys: &[KeyCode]) {
    for code in keys {
        assert!(
            view.press(KeyEvent::new(*code, KeyModifiers::NONE))
                .is_continue()
        );
    }
}

/// The first words of the list's lines.
fn order(view: &View) -> Vec<String> {
    view.groups()
        .iter()
        .map(|group| group.name.clone())
        .collect()
}

#[test]
fn at_80_columns_all_of_it_is_there() {
    let screen = plain(&three(), 80, 24);
    assert_eq!(
        screen[0],
        "uksm 0.1.0  saved 9.0 MiB net  groups 3  running 61 s"
    );
    assert_eq!(screen[1], "saved, all, last 1 answers: 9.0 to 9.0 MiB");
    assert!(
        screen[2].ends_with('█') && screen[4].ends_with('█'),
        "{screen:#?}"
    );
    assert_eq!(
        screen[5..9],
        [
            "group saved MiB  cpu % procs           levels   hints    left  merged",
            "web         9.0   2.50     4   1000/125/37/15     300      17    2660",
            "db          1.0  50.00     4   1000/125/37/15     300      17     612",
            "idle          -      -     -                -       -       -       -",
        ],
        "{screen:#?}"
    );
    assert_eq!(screen[22], "web: from /etc/uksm/config.toml:3: web");
    assert_eq!(
        screen[23],
        "s saved  c cpu  n name  enter: all of it  q quit"
    );
}

#[test]
fn at_20_columns_names_and_savings_are_left_and_below_that_a_word() {
    let screen = plain(&three(), 20, 10);
    assert_eq!(
        screen[..5],
        [
            "saved 9.0 MiB",
            "group saved MiB",
            "web         9.0",
            "db          1.0",
            "idle          -"
        ],
        "{screen:#?}"
    );
    assert_eq!(screen[9], "q quit");
    assert_eq!(plain(&three(), 15, 3), ["too small", "", ""]);
    assert_eq!(plain(&three(), 3, 1), ["too"]);
    // Any size is drawn.
    for width in (0..60).step_by(7) {
        for height in (0..30).step_by(3) {
            let mut view = three();
            plain(&view, width, height);
            press(&mut view, &[KeyCode::Enter, KeyCode::PageDown]);
            view.take(Err("no daemon answers".to_owned()));
            plain(&view, width, height);
        }
    }
}

#[test]
fn long_names_are_cut_and_no_column_runs_into_another() {
    let name = "a-group-with-a-very-long-name-of-all-its-words-and-more-of-them-still-that-go-on";
    let view = View::of(of(vec![fake::group(name, 512)]));
    let screen = plain(&view, 80, 24);
    assert!(screen[6].starts_with("a-group-with-a-v"), "{screen:#?}");
    assert!(screen[6].contains(" 1.0   2.50 "), "{screen:#?}");
    // Where it is for scripts, nothing is cut.
    assert!(screen::text(&view, WIDE).contains(&format!("\n{name}       1.0   2.50 ")));
}

#[test]
fn keys_sort_and_the_chosen_group_stays_chosen() {
    let mut view = three();
    assert_eq!(order(&view), ["web", "db", "idle"]);
    press(&mut view, &[KeyCode::Down]);
    assert_eq!(view.chosen(), 1);
    press(&mut view, &[KeyCode::Char('c')]);
    assert_eq!(
        (order(&view), view.chosen()),
        (vec!["db".into(), "web".into(), "idle".into()], 0)
    );
    press(
        &mut view,
        &[KeyCode::Char('n'), KeyCode::PageDown, KeyCode::PageDown],
    );
    assert_eq!(order(&view), ["db", "idle", "web"]);
    assert_eq!(view.chosen(), 2);
    press(&mut view, &[KeyCode::Home, KeyCode::Up]);
    assert_eq!(view.chosen(), 0);
    let underlined = |sort: KeyCode| {
        let mut view = three();
        press(&mut view, &[sort]);
        let buffer = drawn(&view, Look { is_coloured: false }, 80, 24);
        let row = buffer.content().chunks(80).nth(5).unwrap();
        let cells = row
            .iter()
            .filter(|cell| cell.modifier.contains(Modifier::UNDERLINED));
        cells
            .map(ratatui::buffer::Cell::symbol)
            .collect::<String>()
            .trim()
            .to_owned()
    };
    assert_eq!(underlined(KeyCode::Char('s')), "saved MiB");
    assert_eq!(underlined(KeyCode::Char('c')), "cpu %");
    assert!(
        view.press(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))
            .is_break()
    );
    assert!(
        view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))
            .is_break()
    );
}

#[test]
fn one_group_is_shown_as_its_status_and_its_own_curve() {
    let mut view = three();
    press(&mut view, &[KeyCode::Down, KeyCode::Enter]);
    let screen = plain(&view, 80, 24);
    assert_eq!(screen[1], "saved, db, last 1 answers: 1.0 to 1.0 MiB");
    let has = |line: &str| screen.iter().any(|found| found.starts_with(line));
    assert!(has("saved      1.0 MiB net = 2.0 by frames"), "{screen:#?}");
    assert!(
        has("hints      0 calls, 0.00 s in the programs, 300 came"),
        "{screen:#?}"
    );
    assert!(screen[23].starts_with("esc: back"), "{screen:#?}");
    press(&mut view, &[KeyCode::Down]);
    assert!(
        !plain(&view, 80, 24)
            .iter()
            .any(|line| line.starts_with("uksm 0.1.0, process"))
    );
    press(&mut view, &[KeyCode::Esc]);
    assert_eq!(view.chosen(), 1);
    // A group that is gone is not shown any more, and the first one is chosen.
    press(&mut view, &[KeyCode::Enter]);
    view.take(Ok(of(vec![fake::group("web", 1)])));
    assert_eq!(view.chosen(), 0);
}

#[test]
fn a_daemon_without_groups_is_its_status() {
    let answer = Answer::Status(Box::new(fake::status(512)));
    let mut view = View::of(Answered::of(answer).unwrap());
    let screen = plain(&view, 80, 30);
    assert_eq!(screen[0], "uksm 0.1.0  saved 1.0 MiB net  running 61 s");
    assert!(
        screen.iter().any(|line| line.starts_with("level   share")),
        "{screen:#?}"
    );
    // There is nothing to choose, and nothing to open.
    press(&mut view, &[KeyCode::Enter, KeyCode::Down]);
    assert_eq!((view.is_open, view.scrolled), (false, 1));
    // Not past the last line.
    press(&mut view, &[KeyCode::PageDown; 40]);
    let screen = plain(&view, 80, 30);
    assert!(
        screen[5].starts_with("           ") || screen[5].starts_with("kernel"),
        "{screen:#?}"
    );
    press(&mut view, &[KeyCode::Home]);
    assert_eq!(view.scrolled, 0);
    let text = screen::text(&view, 80);
    assert!(
        text.starts_with("uksm 0.1.0  saved 1.0 MiB net  running 61 s\nuksm 0.1.0, process"),
        "{text}"
    );
    assert!(
        text.ends_with('\n') && !text.ends_with("\n\n") && !text.contains('█'),
        "{text}"
    );
}

#[test]
fn once_is_text_with_all_groups_and_their_faults() {
    let groups = (0..300)
        .map(|n| fake::group(&format!("g{n}"), 256))
        .collect();
    let text = screen::text(&View::of(of(groups)), 80);
    assert_eq!(text.lines().count(), 302);
    let text = screen::text(&three(), 80);
    let last = text.lines().last().unwrap();
    assert_eq!(last, "idle: /sys/fs/cgroup/idle: no such control group yet");
    assert!(!text.contains('\u{1b}') && !text.contains("quit"), "{text}");
}

#[test]
fn a_daemon_that_is_gone_is_said_and_what_was_stays() {
    let mut view = three();
    view.take(Err("no daemon answers".to_owned()));
    let screen = plain(&view, 80, 24);
    assert_eq!(screen[1], "no daemon answers; below is what was");
    assert_eq!(screen[2], "saved, all, last 2 answers: 9.0 to 9.0 MiB");
    // The newest column is empty, the one before is not.
    assert!(
        screen[3].ends_with('█') && screen[3].chars().count() == 79,
        "{screen:#?}"
    );
    view.take(Ok(of(vec![fake::group("web", 512)])));
    let screen = plain(&view, 80, 24);
    assert_eq!(screen[1], "saved, all, last 3 answers: 0.0 to 9.0 MiB");
}

#[test]
fn there_are_no_colours_where_none_are_wanted() {
    let colours = |is_coloured| {
        let mut view = three();
        view.take(Err("no daemon answers".to_owned()));
        let buffer = drawn(&view, Look { is_coloured }, 80, 24);
        let cells = buffer.content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 100);
}

#[test]
fn answers_come_once_an_interval_and_faults_between_them() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("uksm.sock");
    let daemon = FakeDaemon::new(&path, |_| fake::groups(vec![fake::group("web", 512)]));
    let answers = answers(path, Duration::from_millis(20)).unwrap();
    assert!(answers.recv().unwrap().is_ok());
    drop(daemon);
    let gone = answers.iter().find_map(Result::err);
    assert!(gone.is_some());
    // By the third, whatever was half done is over.
    let third = answers.iter().filter_map(Result::err).nth(2);
    assert_eq!(third.as_deref(), Some("no daemon answers"));
}

/// For a person: `UKSM_SOCKET=/tmp/x/uksm.sock cargo test -p uksm a_daemon_to_look_at -- --ignored`, and beside it
/// `uksm top --socket /tmp/x/uksm.sock`. It answers until it is ended.
#[test]
#[ignore = "answers until it is ended, for whoever wants to look"]
fn a_daemon_to_look_at() {
    let path = std::env::var_os("UKSM_SOCKET").expect("UKSM_SOCKET names the socket");
    let _daemon = FakeDaemon::new(path.as_ref(), |asked| {
        let wave = |n: u64| u32::try_from(2000 + n * 700 + (asked * (n + 3) * 97) % 3000).unwrap();
        let mut groups: Vec<GroupStatus> = (0..30)
            .map(|n| fake::group(&format!("tenant-{n}"), wave(n)))
            .collect();
        groups[7].status = None;
        groups[7].fault = Some("/sys/fs/cgroup/tenant-7: no such control group yet".to_owned());
        fake::groups(groups)
    });
    loop {
        std::thread::park();
    }
}

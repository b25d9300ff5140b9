//! The screen at several sizes, and the effects of keys: with groups here, with processes in
//! [`processes`], and as text in [`as_text`].

mod as_text;
mod processes;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::*;
use crate::control::Answer;
use crate::control::tests::fake::{self, FakeDaemon};
use crate::status::groups::GroupStatus;
use poller::Whose;

/// Without colours.
const PLAIN: TerminalStyle = TerminalStyle {
    is_coloured: false,
    has_blocks: true,
};

fn of(groups: Vec<GroupStatus>) -> StatusAnswer {
    StatusAnswer::of(fake::groups(groups)).unwrap()
}

/// Three groups: by savings in the order web, db, idle, by CPU in the order db, web, idle.
fn three() -> ScreenState {
    let mut db = fake::group("db", 512);
    db.status.as_mut().unwrap().cpu.policy.recent_share = 0.5;
    let mut idle = fake::group("idle", 0);
    (idle.status, idle.pid) = (None, None);
    idle.fault = Some("/sys/fs/cgroup/idle: no such control group yet".to_owned());
    ScreenState::of(of(vec![db, idle, fake::group("web", 2560)]))
}

fn drawn(state: &ScreenState, styles: TerminalStyle, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw =
        |frame: &mut ratatui::Frame| drawing::draw(state, styles, frame.area(), frame.buffer_mut());
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

fn plain(state: &ScreenState, width: u16, height: u16) -> Vec<String> {
    lines(&drawn(state, PLAIN, width, height))
}

fn press(state: &mut ScreenState, keys: &[KeyCode]) {
    for code in keys {
        assert!(
            state
                .press(KeyEvent::new(*code, KeyModifiers::NONE))
                .is_continue()
        );
    }
}

/// The first words of the lines of the list.
fn order(state: &ScreenState) -> Vec<String> {
    state
        .groups()
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
    assert_eq!(screen[1], "net, all, last 1 answers: 9.0 to 9.0 MiB");
    assert!(
        screen[2].ends_with('█') && screen[4].ends_with('█'),
        "{screen:#?}"
    );
    assert_eq!(
        screen[5..9],
        [
            "group   net MiB potential MiB  cpu % procs           levels   hints  merged",
            "web         9.0           0.1   2.50     4   1000/125/37/15     300    2660",
            "db          1.0           0.1  50.00     4   1000/125/37/15     300     612",
            "idle          -             -      -     -                -       -       -",
        ],
        "{screen:#?}"
    );
    assert_eq!(screen[22], "web: from /etc/uksm/config.toml:3: web");
    assert_eq!(
        screen[23],
        "s net  p potential  c cpu  n name  enter: processes  t status  q quit"
    );
}

#[test]
fn at_20_columns_names_and_savings_are_left_and_below_that_a_word() {
    let screen = plain(&three(), 20, 10);
    assert_eq!(
        screen[..5],
        [
            "net 9.0 MiB",
            "group   net MiB",
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
            let mut state = three();
            plain(&state, width, height);
            press(&mut state, &[KeyCode::Enter, KeyCode::PageDown]);
            plain(&state, width, height);
            press(&mut state, &[KeyCode::Char('t'), KeyCode::PageDown]);
            state.take(PollerAnswer::Status(Err("no daemon answers".to_owned())));
            plain(&state, width, height);
        }
    }
}

#[test]
fn long_names_are_cut_and_no_column_runs_into_another() {
    let name = "a-group-with-a-very-long-name-of-all-its-words-and-more-of-them-still-that-go-on";
    let state = ScreenState::of(of(vec![fake::group(name, 512)]));
    let screen = plain(&state, 80, 24);
    assert!(screen[6].starts_with("a-group-with-a-v"), "{screen:#?}");
    assert!(
        screen[6].contains(" 1.0           0.1   2.50 "),
        "{screen:#?}"
    );
    // In output for scripts, nothing is cut.
    let text = plain_text::text(&state, vec![], plain_text::WIDTH_WITHOUT_TERMINAL);
    assert!(
        text.contains(&format!("\n{name}       1.0           0.1   2.50 ")),
        "{text}"
    );
}

#[test]
fn keys_sort_and_the_chosen_group_stays_chosen() {
    let mut state = three();
    assert_eq!(order(&state), ["web", "db", "idle"]);
    press(&mut state, &[KeyCode::Down]);
    assert_eq!(state.chosen(), 1);
    press(&mut state, &[KeyCode::Char('c')]);
    assert_eq!(
        (order(&state), state.chosen()),
        (vec!["db".into(), "web".into(), "idle".into()], 0)
    );
    press(
        &mut state,
        &[KeyCode::Char('n'), KeyCode::PageDown, KeyCode::PageDown],
    );
    assert_eq!(order(&state), ["db", "idle", "web"]);
    assert_eq!(state.chosen(), 2);
    press(&mut state, &[KeyCode::Home, KeyCode::Up]);
    assert_eq!(state.chosen(), 0);
    let underlined = |sort: KeyCode| {
        let mut state = three();
        press(&mut state, &[sort]);
        let buffer = drawn(&state, PLAIN, 80, 24);
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
    assert_eq!(underlined(KeyCode::Char('s')), "net MiB");
    assert_eq!(underlined(KeyCode::Char('c')), "cpu %");
    assert!(
        state
            .press(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))
            .is_break()
    );
    assert!(
        state
            .press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))
            .is_break()
    );
}

#[test]
fn missing_daemon_is_reported_and_old_figures_stay() {
    let mut state = three();
    state.take(PollerAnswer::Status(Err("no daemon answers".to_owned())));
    let screen = plain(&state, 80, 24);
    assert_eq!(screen[1], "no daemon answers; the figures below are older");
    assert_eq!(screen[2], "net, all, last 2 answers: 9.0 to 9.0 MiB");
    // The newest column is empty, the one before is not.
    assert!(
        screen[3].ends_with('█') && screen[3].chars().count() == 79,
        "{screen:#?}"
    );
    state.take(PollerAnswer::Status(Ok(of(vec![fake::group("web", 512)]))));
    let screen = plain(&state, 80, 24);
    assert_eq!(screen[1], "net, all, last 3 answers: 0.0 to 9.0 MiB");
}

#[test]
fn there_are_no_colours_where_none_are_wanted() {
    let colours = |is_coloured| {
        let mut state = three();
        state.take(PollerAnswer::Status(Err("no daemon answers".to_owned())));
        let styles = TerminalStyle {
            is_coloured,
            ..PLAIN
        };
        let buffer = drawn(&state, styles, 80, 24);
        let cells = buffer.content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 100);
}

#[test]
fn terminal_features_come_from_the_environment() {
    let styles = |set: &[(&str, &str)]| {
        let set: std::collections::BTreeMap<&str, &str> = set.iter().copied().collect();
        let styles = TerminalStyle::of_environment(|name| set.get(name).map(Into::into));
        (styles.is_coloured, styles.has_blocks)
    };
    assert_eq!(styles(&[]), (true, false));
    assert_eq!(
        styles(&[("LANG", "C.UTF-8"), ("NO_COLOR", "")]),
        (true, true)
    );
    assert_eq!(
        styles(&[("LANG", "de_DE.utf8"), ("NO_COLOR", "1")]),
        (false, true)
    );
    assert_eq!(
        styles(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")]),
        (true, false)
    );
    assert_eq!(
        styles(&[("LC_CTYPE", "nonsense"), ("LC_ALL", "")]),
        (true, false)
    );
}

#[test]
fn where_the_locale_has_no_blocks_all_is_ascii() {
    let mut state = three();
    for saved in [2000, 500, 0, 1500] {
        state.take(PollerAnswer::Status(Ok(of(vec![fake::group(
            "web", saved,
        )]))));
    }
    let styles = TerminalStyle {
        has_blocks: false,
        ..PLAIN
    };
    let screen = lines(&drawn(&state, styles, 80, 24));
    assert!(screen.iter().all(|line| line.is_ascii()), "{screen:#?}");
    let bars = |line: usize, end: &str| assert!(screen[line].ends_with(end), "{screen:#?}");
    bars(3, " ##  .");
    bars(4, " ##  #");
}

/// For manual use: `UKSM_SOCKET=/tmp/x/uksm.sock cargo test -p uksm a_daemon_to_look_at --
/// --ignored`, with `UKSM_GROUPS=` for a daemon without groups, and beside it `uksm top --socket
/// /tmp/x/uksm.sock`. It answers until it is ended.
#[test]
#[ignore = "answers until it is ended, for whoever wants to look"]
fn a_daemon_to_look_at() {
    let path = std::env::var_os("UKSM_SOCKET").expect("UKSM_SOCKET names the socket");
    let begun = std::time::Instant::now();
    let wave = move |n: u64| {
        let seconds = begun.elapsed().as_secs();
        u32::try_from(2000 + n * 700 + (seconds * (n + 3) * 97) % 3000).unwrap()
    };
    let groups = move || {
        let mut groups: Vec<GroupStatus> = (0..30)
            .map(|n| fake::group(&format!("tenant-{n}"), wave(n)))
            .collect();
        groups[7].status = None;
        groups[7].fault = Some("/sys/fs/cgroup/tenant-7: no such control group yet".to_owned());
        fake::groups(groups)
    };
    // UKSM_GROUPS= is a daemon without groups.
    let has_groups = std::env::var_os("UKSM_GROUPS").is_none_or(|value| !value.is_empty());
    let _daemon = FakeDaemon::answering(path.as_ref(), move |request, _| match request {
        Request::Status if has_groups => groups(),
        Request::Status => Answer::Status(Box::new(fake::status(wave(1)))),
        Request::Processes(_) => {
            let own = std::process::id();
            let process = |n: u32| {
                let pages = u64::from(wave(n.into()));
                let mut process = fake::process(own + n, "redis-server", (pages, 5000 - pages / 4));
                process.sums.work_seconds = begun.elapsed().as_secs_f64() / f64::from(n + 2);
                process
            };
            Answer::Processes(Box::new(crate::status::processes::ProcessList {
                uptime_seconds: begun.elapsed().as_secs_f64(),
                processes: (0..20).map(process).collect(),
                left_out: 0,
            }))
        }
        Request::Explain { .. } => {
            std::thread::sleep(Duration::from_secs(2));
            let place = crate::status::evidence::ProcessStanding::NotChosen;
            let evidence = crate::status::evidence::Evidence::of(place, None);
            Answer::Explained(Box::new(evidence))
        }
        other => Answer::Error(format!("{other:?}: not here")),
    });
    loop {
        std::thread::park();
    }
}

//! The picture of a view.
//!
//! # Approach
//! From the top: the daemon and its savings; the curve of savings; levels and hints of the daemon
//! or group whose processes are shown; the list, or a text; a note on the chosen entry; the keys.
//! Without room, the least important parts are left out first: columns by their order, then the
//! curve, then levels and hints, then the keys. A terminal of [`NARROWEST`] columns shows names and
//! savings.
//!
//! # Units
//! MiB, percent of one core, pages.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline, Widget as _, Wrap};

use super::list::List;
use super::poller::StatusAnswer;
use super::state::{Page, ScreenState};
use super::tables::{Table, levels, short};
use super::terminal_style::TerminalStyle;
use crate::status::Status;
use crate::status::groups::GroupStatus;

/// With fewer columns or lines only a note is shown.
const NARROWEST: u16 = 16;
const LOWEST: u16 = 4;

/// Lines of the curve, and the minimum height of a picture with one.
const CURVE: u16 = 3;
const ROOM_FOR_CURVE: u16 = 14;
/// The same for levels and hints.
const SUMMARY: u16 = 2;
const ROOM_FOR_SUMMARY: u16 = 10;

/// Bars without blocks.
const LETTERS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "=",
    five_eighths: "=",
    half: "-",
    three_eighths: "-",
    one_quarter: ".",
    one_eighth: ".",
    empty: " ",
};

/// Draws the whole picture.
pub(super) fn draw(state: &ScreenState, styles: TerminalStyle, area: Rect, buffer: &mut Buffer) {
    if area.width < NARROWEST || area.height < LOWEST {
        Line::raw("too small").render(area, buffer);
        return;
    }
    let page = state.page();
    let is_wide = area.width >= 2 * NARROWEST;
    let has_curve = area.height >= ROOM_FOR_CURVE && is_wide;
    let summary = match page {
        Page::Processes if area.height >= ROOM_FOR_SUMMARY && is_wide => {
            state.status().map(summary)
        }
        _ => None,
    };
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(state.fault.is_some())),
        Constraint::Length(if has_curve { CURVE + 1 } else { 0 }),
        Constraint::Length(if summary.is_some() { SUMMARY } else { 0 }),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height > 6)),
    ]);
    let [head, fault_line, curve_area, summary_area, body, note, keys] = parts.areas(area);
    let style = styles.of(Color::Green).add_modifier(Modifier::BOLD);
    Line::styled(title(state, area.width), style).render(head, buffer);
    if let Some(fault) = &state.fault {
        let line = Line::styled(
            format!("{fault}; the figures below are older"),
            styles.of(Color::Red),
        );
        line.render(fault_line, buffer);
    }
    if has_curve {
        curve(state, styles, curve_area, buffer);
    }
    if let Some(lines) = summary {
        let lines = lines.map(Line::raw).to_vec();
        Paragraph::new(lines).render(summary_area, buffer);
    }
    let chosen = state.chosen();
    match (page, state.text()) {
        (Page::Groups, _) => {
            Table::of_groups(&state.groups()).draw(state.sort, styles, chosen, body, buffer);
        }
        (Page::Processes, _) => {
            Table::of_processes(&state.rows()).draw(state.sort, styles, chosen, body, buffer);
        }
        (_, text) => details(&text.unwrap_or_default(), state.scrolled, body, buffer),
    }
    note_of(state, styles).render(note, buffer);
    let help = match is_wide {
        true => help(state),
        false => "q quit",
    };
    Line::styled(help, Style::new().add_modifier(Modifier::DIM)).render(keys, buffer);
}

/// Help on the keys.
fn help(state: &ScreenState) -> &'static str {
    match state.page() {
        Page::Groups => "s net  p potential  c cpu  n name  enter: processes  t status  q quit",
        Page::Processes if state.open().is_some() => {
            "esc: groups  s merged  p potential  c cpu  n name  enter: explain  t  q"
        }
        Page::Processes => "s merged  p potential  c cpu  n name  enter: explain  t status  q quit",
        Page::Explained => "esc: back  r: ask again  up and down scroll  q quit",
        Page::Status => "esc: back  up and down scroll  q quit",
    }
}

/// The daemon, and its savings in total.
pub(super) fn title(state: &ScreenState, width: u16) -> String {
    let (version, seconds, groups) = match &state.answered {
        StatusAnswer::One(status) => {
            let daemon = &status.daemon;
            (&daemon.version, daemon.uptime_seconds, String::new())
        }
        StatusAnswer::Groups(status) => {
            let groups = format!("  groups {}", status.groups.len());
            (&status.version, status.uptime_seconds, groups)
        }
    };
    let net = state.answered.net_mib();
    let long = format!("uksm {version}  saved {net:.1} MiB net{groups}  running {seconds:.0} s");
    match long.len() <= width.into() {
        true => long,
        false => format!("net {net:.1} MiB"),
    }
}

/// Levels and hints in a status.
pub(super) fn summary(status: &Status) -> [String; 2] {
    let (cpu, hints) = (&status.cpu.policy, &status.hints);
    [
        format!(
            "levels  {} regions, {:.2} % of a core of {:.2} %",
            levels(status),
            cpu.recent_share * 100.0,
            cpu.budget_share * 100.0
        ),
        format!(
            "hints   {} came, {} pages merged by them, from {}",
            short(hints.policy.taken),
            short(hints.policy.merged_pages),
            uksm_input::plain::plain(&hints.source)
        ),
    ]
}

/// The curve of savings, in total or of the open group; the newest on the right.
fn curve(state: &ScreenState, styles: TerminalStyle, area: Rect, buffer: &mut Buffer) {
    let Some(history) = state.history() else {
        return;
    };
    let width = usize::from(area.width);
    let seen: Vec<Option<f64>> = history.iter().rev().take(width).copied().collect();
    let known = || seen.iter().copied().flatten();
    let (least, most) = (known().reduce(f64::min), known().reduce(f64::max));
    let of = state.open().map_or("all", |group| group.name.as_str());
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("{least:.1} to {most:.1} MiB"),
        _ => "nothing is known".to_owned(),
    };
    let title = format!("net, {of}, last {} answers: {range}", seen.len());
    let [head, bars] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(CURVE)]).areas(area);
    Line::raw(title).render(head, buffer);
    // The scale begins at 0, so that a calm curve is flat.
    let bar = |saved: Option<f64>| saved.map(|mib| kib(mib.max(0.0)));
    Sparkline::default()
        .data(seen.iter().copied().map(bar).collect::<Vec<Option<u64>>>())
        .bar_set(match styles.has_blocks {
            true => bar::NINE_LEVELS,
            false => LETTERS,
        })
        .direction(ratatui::widgets::RenderDirection::RightToLeft)
        .style(styles.of(Color::Cyan))
        .render(bars, buffer);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the height of a bar; no less than 0"
)]
fn kib(mib: f64) -> u64 {
    (mib * 1024.0) as u64
}

/// Why a group does not work, in one line.
pub(super) fn fault(group: &GroupStatus) -> Option<String> {
    let fault = group.fault.as_ref()?;
    Some(format!("{}: {fault}", group.name))
}

/// The number of processes that a list leaves out, if any.
pub(super) fn left_out(list: &List) -> Option<String> {
    match list.left_out {
        0 => None,
        1 => Some("1 more process is not listed".to_owned()),
        many => Some(format!("{many} more processes are not listed")),
    }
}

/// A fault of the chosen entry, a pending answer, or the entry's origin.
fn note_of(state: &ScreenState, styles: TerminalStyle) -> Line<'static> {
    let is_wrong = |line: String| Line::styled(line, styles.of(Color::Red));
    match state.page() {
        Page::Groups => match state.groups().get(state.chosen()) {
            Some(group) => match fault(group) {
                Some(fault) => is_wrong(fault),
                None => Line::raw(format!("{}: from {}", group.name, group.origin)),
            },
            None => Line::raw("there are no groups yet"),
        },
        Page::Processes => {
            let list = &state.processes;
            match (&list.fault, left_out(list)) {
                (Some(line), _) => is_wrong(format!("processes: {line}")),
                (None, _) if !list.is_known() => Line::raw("asking for processes"),
                (None, Some(line)) => Line::raw(line),
                (None, None) => match state.rows().get(state.chosen()) {
                    Some(_) => Line::raw(format!("{} processes", state.rows().len())),
                    None => Line::raw("no processes are followed yet"),
                },
            }
        }
        Page::Explained => match &state.explained {
            Some(explained) if explained.is_asked => Line::raw(format!(
                "asking why memory of {} ({}) is not merged",
                explained.comm.escape_debug(),
                explained.pid
            )),
            _ => Line::default(),
        },
        Page::Status => Line::default(),
    }
}

/// A text, from the scrolled line on.
fn details(text: &str, scrolled: u16, area: Rect, buffer: &mut Buffer) {
    let lines = text.lines().skip(scrolled.into()).map(Line::raw);
    Paragraph::new(lines.collect::<Vec<_>>())
        .wrap(Wrap { trim: false })
        .render(area, buffer);
}

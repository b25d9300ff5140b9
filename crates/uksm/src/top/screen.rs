//! The picture of a view.
//!
//! # Approach
//! From the top: who answers and what all save; what was saved over time; the groups, a line each, or all that is known of one; the
//! keys. What has no room is left out, the least wanted first: columns by their order of worth, then the curve, then
//! the keys. A terminal of [`NARROWEST`] columns shows names and what is saved.
//!
//! # Units
//! MiB, percent of one core, pages.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{
    Cell, Paragraph, Row, Sparkline, StatefulWidget, Table, TableState, Widget as _, Wrap,
};

use super::view::{Answered, Sort, View};
use crate::status::Status;
use crate::status::groups::GroupStatus;

/// With fewer columns or lines there is only a word of that.
const NARROWEST: u16 = 16;
const LOWEST: u16 = 4;

/// The curve has so many lines, and the picture at least these if there is one.
const CURVE: u16 = 3;
const ROOM_FOR_CURVE: u16 = 14;

/// A name has so many columns before another column is shown.
const NAME: u16 = 12;

/// Whether there are colours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// NO_COLOR is not set.
    pub(super) is_coloured: bool,
}

impl Look {
    fn of(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}

/// A column of the list.
struct Column {
    name: &'static str,
    width: u16,
    /// What its order is called, if it has one.
    sort: Option<Sort>,
    cell: fn(&Status) -> String,
}

/// Behind the name, the most wanted first.
const COLUMNS: [Column; 7] = [
    Column {
        name: "saved MiB",
        width: 9,
        sort: Some(Sort::Saved),
        cell: |status| format!("{:.1}", status.saved.net_mib),
    },
    Column {
        name: "cpu %",
        width: 6,
        sort: Some(Sort::Cpu),
        cell: |status| format!("{:.2}", status.cpu.policy.recent_share * 100.0),
    },
    Column {
        name: "procs",
        width: 5,
        sort: None,
        cell: |status| short(status.targets.processes),
    },
    Column {
        name: "levels",
        width: 16,
        sort: None,
        cell: |status| {
            let levels = status.levels.iter();
            levels
                .map(|level| short(level.regions))
                .collect::<Vec<_>>()
                .join("/")
        },
    },
    Column {
        name: "hints",
        width: 7,
        sort: None,
        cell: |status| short(status.hints.policy.taken),
    },
    Column {
        name: "left",
        width: 7,
        sort: None,
        cell: |status| short(status.merged.duplicates.left),
    },
    Column {
        name: "merged",
        width: 7,
        sort: None,
        cell: |status| short(status.merged.pages.now),
    },
];

/// A count of six places at most.
fn short(count: u64) -> String {
    const ENDS: [(u64, char); 4] = [
        (1_000_000_000_000, 'T'),
        (1_000_000_000, 'G'),
        (1_000_000, 'M'),
        (1_000, 'k'),
    ];
    let end = ENDS.into_iter().find(|(size, _)| count >= *size);
    match end {
        Some((size, end)) if count >= 100_000 => {
            format!("{}.{}{end}", count / size, count % size / (size / 10))
        }
        _ => count.to_string(),
    }
}

/// The picture as text, without what is of use only while it changes.
pub(super) fn text(view: &View, width: u16) -> String {
    let lines = match &view.answered {
        Answered::One(_) => 400,
        Answered::Groups(status) => status.groups.len().saturating_mul(2) + 4,
    };
    // A buffer has at most so many cells as 16 bits count.
    let height = u16::try_from(lines)
        .unwrap_or(u16::MAX)
        .min(u16::MAX / width.max(1));
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let look = Look { is_coloured: false };
    let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).split(area);
    heading(view, look, areas[0], &mut buffer);
    match &view.answered {
        Answered::One(status) => details(&status.to_string(), 0, areas[1], &mut buffer),
        Answered::Groups(_) => {
            let groups = view.groups();
            list(view, &groups, look, None, areas[1], &mut buffer);
            let faults = groups.iter().filter_map(|group| fault(group));
            let below = u16::try_from(groups.len() + 1).unwrap_or(u16::MAX);
            for (line, fault) in (below..areas[1].height).zip(faults) {
                buffer.set_stringn(0, areas[1].y + line, fault, width.into(), Style::new());
            }
        }
    }
    let rows = buffer.content().chunks(usize::from(width.max(1)));
    let lines = rows.map(|row| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.trim_end().to_owned() + "\n"
}

/// Draws all of it.
pub(super) fn draw(view: &View, look: Look, area: Rect, buffer: &mut Buffer) {
    if area.width < NARROWEST || area.height < LOWEST {
        Line::raw("too small").render(area, buffer);
        return;
    }
    let has_curve = area.height >= ROOM_FOR_CURVE && area.width >= 2 * NARROWEST;
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(view.fault.is_some())),
        Constraint::Length(if has_curve { CURVE + 1 } else { 0 }),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height > 6)),
    ]);
    let [head, fault_line, curve_area, body, note, keys] = parts.areas(area);
    heading(view, look, head, buffer);
    if let Some(fault) = &view.fault {
        let line = Line::styled(format!("{fault}; below is what was"), look.of(Color::Red));
        line.render(fault_line, buffer);
    }
    if has_curve {
        curve(view, look, curve_area, buffer);
    }
    let groups = view.groups();
    let mut help = "s saved  c cpu  n name  enter: all of it  q quit";
    match view.details() {
        Some(text) => {
            details(&text, view.scrolled, body, buffer);
            help = match view.open() {
                Some(_) => "esc: back  up and down scroll  q quit",
                None => "up and down scroll  q quit",
            };
        }
        None => list(view, &groups, look, Some(view.chosen()), body, buffer),
    }
    if let Some(group) = groups.get(view.chosen()) {
        note_of(group, look, note, buffer);
    }
    if area.width < 2 * NARROWEST {
        help = "q quit";
    }
    Line::styled(help, Style::new().add_modifier(Modifier::DIM)).render(keys, buffer);
}

/// Who answers, and what all of it saves.
fn heading(view: &View, look: Look, area: Rect, buffer: &mut Buffer) {
    let (version, seconds, net, groups) = match &view.answered {
        Answered::One(status) => {
            let daemon = &status.daemon;
            (
                &daemon.version,
                daemon.uptime_seconds,
                status.saved.net_mib,
                None,
            )
        }
        Answered::Groups(status) => {
            let groups = Some(status.groups.len());
            (
                &status.version,
                status.uptime_seconds,
                status.net_mib,
                groups,
            )
        }
    };
    let groups = groups.map_or_else(String::new, |number| format!("  groups {number}"));
    let long = format!("uksm {version}  saved {net:.1} MiB net{groups}  running {seconds:.0} s");
    let line = match long.len() <= area.width.into() {
        true => long,
        false => format!("saved {net:.1} MiB"),
    };
    let style = look.of(Color::Green).add_modifier(Modifier::BOLD);
    Line::styled(line, style).render(area, buffer);
}

/// What was saved over time: of all, or of the group that is shown; the newest on the right.
fn curve(view: &View, look: Look, area: Rect, buffer: &mut Buffer) {
    let Some(history) = view.history() else {
        return;
    };
    let width = usize::from(area.width);
    let seen: Vec<Option<f64>> = history.iter().rev().take(width).copied().collect();
    let known = || seen.iter().copied().flatten();
    let (least, most) = (known().reduce(f64::min), known().reduce(f64::max));
    let of = view.open().map_or("all", |group| group.name.as_str());
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("{least:.1} to {most:.1} MiB"),
        _ => "nothing is known".to_owned(),
    };
    let title = format!("saved, {of}, last {} answers: {range}", seen.len());
    let [head, bars] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(CURVE)]).areas(area);
    Line::raw(title).render(head, buffer);
    // From nothing, so that a calm curve is flat.
    let bar = |saved: Option<f64>| saved.map(|mib| kib(mib.max(0.0)));
    Sparkline::default()
        .data(seen.iter().copied().map(bar).collect::<Vec<Option<u64>>>())
        .direction(ratatui::widgets::RenderDirection::RightToLeft)
        .style(look.of(Color::Cyan))
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

/// The groups, a line each.
fn list(
    view: &View,
    groups: &[&GroupStatus],
    look: Look,
    chosen: Option<usize>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let longest = groups.iter().map(|group| group.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let longest = longest.max(u16::try_from("group".len()).unwrap_or(u16::MAX));
    let (mut used, mut shown) = (longest.min(NAME), Vec::new());
    for column in &COLUMNS {
        // What is saved is always shown, and names are cut for it.
        used = used.saturating_add(column.width + 1);
        if used > area.width && !shown.is_empty() {
            break;
        }
        shown.push(column);
    }
    let others: u16 = shown.iter().map(|column| column.width + 1).sum();
    let name = longest.min(area.width.saturating_sub(others));
    let widths = std::iter::once(name).chain(shown.iter().map(|column| column.width));
    let title = |name: &'static str, sort: Option<Sort>| {
        let is_it = sort == Some(view.sort);
        let modifier = match is_it {
            true => Modifier::BOLD | Modifier::UNDERLINED,
            false => Modifier::BOLD,
        };
        (name, Style::new().add_modifier(modifier))
    };
    let right = |text: String| Line::raw(text).right_aligned();
    let (group, style) = title("group", Some(Sort::Name));
    let head = std::iter::once(Cell::new(group).style(style));
    let head = head.chain(shown.iter().map(|column| {
        let (name, style) = title(column.name, column.sort);
        Cell::new(right(name.to_owned())).style(style)
    }));
    let rows = groups.iter().map(|group| {
        let name = std::iter::once(Cell::new(group.name.as_str()));
        let cells = shown.iter().map(|column| {
            let text = group.status.as_ref().map(|status| (column.cell)(status));
            Cell::new(right(text.unwrap_or_else(|| "-".to_owned())))
        });
        let style = match fault(group) {
            Some(_) => look.of(Color::Red),
            None => Style::new(),
        };
        Row::new(name.chain(cells)).style(style)
    });
    let table = Table::new(rows, widths.map(Constraint::Length))
        .header(Row::new(head))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen);
    StatefulWidget::render(table, area, buffer, &mut state);
}

/// Why a group does not work, in one line.
fn fault(group: &GroupStatus) -> Option<String> {
    let fault = group.fault.as_ref()?;
    Some(format!("{}: {fault}", group.name))
}

/// Of the chosen group: what is wrong with it, or where it comes from.
fn note_of(group: &GroupStatus, look: Look, area: Rect, buffer: &mut Buffer) {
    let line = match fault(group) {
        Some(fault) => Line::styled(fault, look.of(Color::Red)),
        None => Line::raw(format!("{}: from {}", group.name, group.origin)),
    };
    line.render(area, buffer);
}

/// A status as `uksm status` prints it, from as far down as was scrolled.
fn details(status: &str, scrolled: u16, area: Rect, buffer: &mut Buffer) {
    let lines = status.lines().skip(scrolled.into()).map(Line::raw);
    Paragraph::new(lines.collect::<Vec<_>>())
        .wrap(Wrap { trim: false })
        .render(area, buffer);
}

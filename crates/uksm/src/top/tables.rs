//! The lists of groups and of processes as tables of any width.
//!
//! # Approach
//! Names are cut, and columns, which are ordered by importance, are left out from the right, if
//! there is no room. Savings are always shown. The same table is drawn or written as text.
//!
//! # Units
//! MiB, percent of one core, pages.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as Cells, StatefulWidget, Table as Drawn, TableState};
use textwrap::core::display_width;

use super::list::{ProcessRow, Sort};
use super::terminal_style::TerminalStyle;
use crate::status::Status;
use crate::status::groups::GroupStatus;

/// Minimum width of names before another column is shown.
const MIN_NAME_WIDTH: u16 = 12;

/// A column behind the name.
#[derive(Debug)]
struct Column<T> {
    name: &'static str,
    width: u16,
    /// The order that it belongs to, if there is one.
    sort: Option<Sort>,
    cell: fn(&T) -> String,
}

/// Columns of groups, the most important first.
const GROUPS: [Column<Status>; 7] = [
    Column {
        name: "net MiB",
        width: 9,
        sort: Some(Sort::Saved),
        cell: |status| format!("{:.1}", status.saved.net_mib),
    },
    Column {
        name: "potential MiB",
        width: 13,
        sort: Some(Sort::Potential),
        cell: |status| mib(status.merged.duplicates.left),
    },
    Column {
        name: "cpu %",
        width: 6,
        sort: Some(Sort::Cpu),
        cell: |status| percent(status.cpu.policy.recent_share),
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
        cell: levels,
    },
    Column {
        name: "hints",
        width: 7,
        sort: None,
        cell: |status| short(status.hints.policy.taken),
    },
    Column {
        name: "merged",
        width: 7,
        sort: None,
        cell: |status| short(status.merged.pages.now),
    },
];

/// Columns of processes.
const PROCESSES: [Column<ProcessRow>; 5] = [
    Column {
        name: "merged MiB",
        width: 10,
        sort: Some(Sort::Saved),
        cell: |row| mib(row.process.sums.merged_pages),
    },
    Column {
        name: "potential MiB",
        width: 13,
        sort: Some(Sort::Potential),
        cell: |row| mib(row.process.sums.left_pages),
    },
    Column {
        name: "cpu %",
        width: 6,
        sort: Some(Sort::Cpu),
        cell: |row| percent(row.cpu),
    },
    Column {
        name: "memory MiB",
        width: 10,
        sort: None,
        cell: |row| mib(row.process.sums.resident_pages),
    },
    Column {
        name: "read",
        width: 7,
        sort: None,
        cell: |row| short(row.process.sums.read_pages),
    },
];

fn mib(pages: u64) -> String {
    format!("{:.1}", pages as f64 / 256.0)
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Regions of each level, the bottom first.
pub(super) fn levels(status: &Status) -> String {
    let levels = status.levels.iter();
    let regions: Vec<String> = levels.map(|level| short(level.regions)).collect();
    regions.join("/")
}

/// A count in at most six places.
pub(super) fn short(count: u64) -> String {
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

/// The part of a name that fits into this number of columns; some characters take two.
fn cut(name: &str, columns: usize) -> &str {
    let ends = name.char_indices().map(|(at, char)| at + char.len_utf8());
    let fitting = ends.take_while(|&end| display_width(&name[..end]) <= columns);
    &name[..fitting.last().unwrap_or(0)]
}

/// A line of a table.
#[derive(Debug)]
struct Entry {
    name: String,
    cells: Vec<String>,
    is_faulty: bool,
}

/// A table of any width.
#[derive(Debug)]
pub(super) struct Table {
    /// Head of the column of names.
    title: &'static str,
    columns: Vec<(&'static str, u16, Option<Sort>)>,
    entries: Vec<Entry>,
}

fn heads<T>(columns: &[Column<T>]) -> Vec<(&'static str, u16, Option<Sort>)> {
    let head = |column: &Column<T>| (column.name, column.width, column.sort);
    columns.iter().map(head).collect()
}

impl Table {
    /// A table of groups in this order.
    pub(super) fn of_groups(groups: &[&GroupStatus]) -> Table {
        let entry = |group: &&GroupStatus| Entry {
            name: group.name.clone(),
            cells: GROUPS
                .iter()
                .map(|column| match &group.status {
                    Some(status) => (column.cell)(status),
                    None => "-".to_owned(),
                })
                .collect(),
            is_faulty: group.fault.is_some(),
        };
        Table {
            title: "group",
            columns: heads(&GROUPS),
            entries: groups.iter().map(entry).collect(),
        }
    }

    /// A table of processes in this order.
    pub(super) fn of_processes(rows: &[&ProcessRow]) -> Table {
        let longest = rows.iter().map(|row| row.process.pid.to_string().len());
        let longest = longest.max().unwrap_or(0);
        let entry = |row: &&ProcessRow| Entry {
            name: format!(
                "{:>longest$} {}",
                row.process.pid,
                row.process.comm.escape_debug()
            ),
            cells: PROCESSES.iter().map(|column| (column.cell)(row)).collect(),
            is_faulty: false,
        };
        Table {
            title: "process",
            columns: heads(&PROCESSES),
            entries: rows.iter().map(entry).collect(),
        }
    }

    /// The width of names, and the number of columns that are shown.
    fn fit(&self, width: u16) -> (u16, usize) {
        let names = self.entries.iter().map(|entry| display_width(&entry.name));
        let longest = names.max().unwrap_or(0).max(self.title.len());
        let longest = u16::try_from(longest).unwrap_or(u16::MAX);
        let (mut used, mut shown, mut others) = (longest.min(MIN_NAME_WIDTH), 0, 0u16);
        for (_, column, _) in &self.columns {
            // Savings are always shown, and names are cut for them.
            used = used.saturating_add(column + 1);
            if used > width && shown > 0 {
                break;
            }
            shown += 1;
            others += column + 1;
        }
        (longest.min(width.saturating_sub(others)), shown)
    }

    /// Draws the table, with the chosen line in view.
    pub(super) fn draw(
        &self,
        sort: Sort,
        styles: TerminalStyle,
        chosen: usize,
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let (name, shown) = self.fit(area.width);
        let columns = &self.columns[..shown];
        let widths = std::iter::once(name).chain(columns.iter().map(|&(_, width, _)| width));
        let style = |of: Option<Sort>| match of == Some(sort) {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new().add_modifier(Modifier::BOLD),
        };
        let right = |text: &str| Line::raw(text.to_owned()).right_aligned();
        let head = std::iter::once(Cell::new(self.title).style(style(Some(Sort::Name))));
        let head = head.chain(
            (columns.iter()).map(|&(name, _, sort)| Cell::new(right(name)).style(style(sort))),
        );
        let rows = self.entries.iter().map(|entry| {
            let name = std::iter::once(Cell::new(entry.name.as_str()));
            let cells = entry.cells.iter().take(shown);
            let style = match entry.is_faulty {
                true => styles.of(Color::Red),
                false => Style::new(),
            };
            Cells::new(name.chain(cells.map(|cell| Cell::new(right(cell))))).style(style)
        });
        let table = Drawn::new(rows, widths.map(Constraint::Length))
            .header(Cells::new(head))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(Some(chosen));
        StatefulWidget::render(table, area, buffer, &mut state);
    }

    /// The table as lines of text.
    pub(super) fn text(&self, width: u16) -> String {
        let (name_width, shown) = self.fit(width);
        let name_width = usize::from(name_width);
        let heads: Vec<String> = self.columns.iter().map(|it| it.0.to_owned()).collect();
        let line = |name: &str, cells: &[String]| {
            let mut line = cut(name, name_width).to_owned();
            line.extend(std::iter::repeat_n(' ', name_width - display_width(&line)));
            for (cell, &(_, width, _)) in cells.iter().zip(&self.columns).take(shown) {
                line += &format!(" {cell:>width$}", width = usize::from(width));
            }
            line.trim_end().to_owned() + "\n"
        };
        let entries = self.entries.iter();
        let lines = entries.map(|entry| line(&entry.name, &entry.cells));
        line(self.title, &heads) + &lines.collect::<String>()
    }
}

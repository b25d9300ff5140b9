//! The whole view as text, once, without parts that only make sense live.
//!
//! # Approach
//! The heading; then, without groups, the processes and the status as `uksm status` prints it; with
//! groups, the groups, and for each its levels, its hints and its processes. Tables are as wide as
//! the terminal; without a terminal nothing is cut.

use super::drawing::{fault, left_out, summary, title};
use super::list::{List, Sort};
use super::poller::{PollerAnswer, StatusAnswer, Whose};
use super::state::ScreenState;
use super::tables::Table;

/// Columns without a terminal: enough to cut nothing.
pub(super) const WIDTH_WITHOUT_TERMINAL: u16 = 240;

/// Columns of a terminal of unknown width.
const DEFAULT_WIDTH: u16 = 80;

/// Plausible numbers of columns in `COLUMNS`.
const PLAUSIBLE_WIDTHS: std::ops::RangeInclusive<u16> = 10..=4096;

/// Number of columns: a serial console does not know its width, and reports 0.
pub(super) fn width(terminal: u16, reported: Option<&str>) -> u16 {
    let reported = reported.and_then(|columns| columns.trim().parse().ok());
    match terminal {
        0 => reported
            .filter(|columns| PLAUSIBLE_WIDTHS.contains(columns))
            .unwrap_or(DEFAULT_WIDTH),
        known => known,
    }
}

/// The lists of processes that are shown.
pub(super) fn whose(answered: &StatusAnswer) -> Vec<Whose> {
    match answered {
        StatusAnswer::One(_) => vec![Whose::Daemon],
        StatusAnswer::Groups(status) => {
            let groups = status.groups.iter();
            let running = groups.filter(|group| group.status.is_some());
            running
                .map(|group| Whose::Group(group.name.clone()))
                .collect()
        }
    }
}

/// The text of a view with these lists of processes.
pub(super) fn text(state: &ScreenState, answers: Vec<PollerAnswer>, width: u16) -> String {
    let mut lists: Vec<List> = Vec::new();
    for answer in answers {
        if let PollerAnswer::Processes(whose, answer) = answer {
            let mut list = List::of(whose);
            list.take(answer);
            lists.push(list);
        }
    }
    let list_of = |whose: &Whose| lists.iter().find(|list| list.whose == *whose);
    let processes = |whose: Whose| list_of(&whose).map_or_else(String::new, |it| table(it, width));
    let mut text = title(state, width) + "\n";
    match &state.answered {
        StatusAnswer::One(status) => {
            text += &processes(Whose::Daemon);
            text += &format!("\n{}\n", status.to_string().trim_end());
        }
        StatusAnswer::Groups(_) => {
            let groups = state.groups();
            text += &Table::of_groups(&groups).text(width);
            for fault in groups.iter().filter_map(|group| fault(group)) {
                text += &(fault + "\n");
            }
            for group in groups {
                let Some(status) = &group.status else {
                    continue;
                };
                text += &format!("\ngroup {}\n", group.name);
                for line in summary(status) {
                    text += &(line + "\n");
                }
                text += &processes(Whose::Group(group.name.clone()));
            }
        }
    }
    text
}

fn table(list: &List, width: u16) -> String {
    let fault = list.fault.iter().map(|line| format!("processes: {line}\n"));
    let mut text: String = fault.collect();
    if list.is_known() {
        text += &Table::of_processes(&list.sorted(Sort::Saved)).text(width);
        let left_out = left_out(list).map(|line| line + "\n");
        text += &left_out.unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn console_of_unknown_width_uses_columns_or_80() {
        assert_eq!(width(132, Some("40")), 132, "who knows is believed");
        assert_eq!(width(0, Some("132")), 132);
        for nonsense in [
            None,
            Some(""),
            Some("0"),
            Some("9"),
            Some("x"),
            Some("65535"),
            Some("-1"),
        ] {
            assert_eq!(width(0, nonsense), 80, "{nonsense:?}");
        }
    }
}

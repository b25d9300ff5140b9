//! The whole view as text, once, without parts that only make sense live.
//!
//! # Approach
//! The heading; then, without groups, the processes and the status as `uksm status` prints it; with
//! groups, the groups, and for each its levels, its hints and its processes. Tables are as wide as
//! the terminal; without a terminal nothing is cut.

use super::asking::{Answered, Said, Whose};
use super::list::{List, Sort};
use super::screen::{fault, left_out, summary, title};
use super::tables::Table;
use super::view::View;

/// Columns without a terminal: enough to cut nothing.
pub(super) const WIDE: u16 = 240;

/// Columns of a terminal of unknown width.
const USUAL: u16 = 80;

/// Plausible numbers of columns in `COLUMNS`.
const SENSIBLE: std::ops::RangeInclusive<u16> = 10..=4096;

/// Number of columns: a serial console does not know its width, and reports 0.
pub(super) fn width(terminal: u16, told: Option<&str>) -> u16 {
    let told = told.and_then(|columns| columns.trim().parse().ok());
    match terminal {
        0 => told
            .filter(|columns| SENSIBLE.contains(columns))
            .unwrap_or(USUAL),
        known => known,
    }
}

/// The lists of processes that are shown.
pub(super) fn whose(answered: &Answered) -> Vec<Whose> {
    match answered {
        Answered::One(_) => vec![Whose::Daemon],
        Answered::Groups(status) => {
            let groups = status.groups.iter();
            let running = groups.filter(|group| group.status.is_some());
            running
                .map(|group| Whose::Group(group.name.clone()))
                .collect()
        }
    }
}

/// The text of a view with these lists of processes.
pub(super) fn text(view: &View, said: Vec<Said>, width: u16) -> String {
    let mut lists: Vec<List> = Vec::new();
    for word in said {
        if let Said::Processes(whose, answer) = word {
            let mut list = List::of(whose);
            list.take(answer);
            lists.push(list);
        }
    }
    let list_of = |whose: &Whose| lists.iter().find(|list| list.whose == *whose);
    let processes = |whose: Whose| list_of(&whose).map_or_else(String::new, |it| table(it, width));
    let mut text = title(view, width) + "\n";
    match &view.answered {
        Answered::One(status) => {
            text += &processes(Whose::Daemon);
            text += &format!("\n{}\n", status.to_string().trim_end());
        }
        Answered::Groups(_) => {
            let groups = view.groups();
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
    fn a_console_that_knows_no_columns_is_told_them_or_has_80() {
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

//! How figures of an experiment are compared, tabulated and drawn, wherever they were measured.
//!
//! # Problem
//! Experiments run in guests and on simulated hosts. Their results hold different things, but a
//! ratio must mean the same in both, and tables and plots are read side by side.
//!
//! # Approach
//! A result is a [`report::Report`], of guests and of simulated hosts alike. It makes a [`Row`] of
//! each variant's figures in each case; ratios, tables ([`report::Report::table`]) and
//! [`pictures`] know nothing else.

pub mod agreement;
pub mod clock;
pub mod cost_figure;
pub mod exit_status;
pub mod interval;
pub mod over_time;
pub mod pictures;
mod plot;
pub mod report;
pub mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use interval::Interval;
use serde::{Deserialize, Serialize};

/// One variant's figures in one case.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// The variant: `uksm-full`, `ksm-unlimited`, …
    pub name: &'a str,
    /// The case; empty if there is one only.
    pub case: &'a str,
    /// Memory saved at the end.
    pub saved_mib: f64,
    /// What merging everything would save.
    pub mergeable_mib: f64,
    /// To the moment that was waited for, or the whole run.
    pub wall_seconds: f64,
    /// CPU over the same time.
    pub cpu_seconds: f64,
    /// Whether that moment came.
    pub finished: bool,
    /// When it came, as the table shows it.
    pub reached_seconds: Option<f64>,
    /// Memory saved over CPU used.
    pub mib_per_cpu_second: f64,
    /// Most memory of the variant itself.
    pub own_mib: f64,
    /// Figures that only this experiment has.
    pub figures: &'a BTreeMap<String, f64>,
    /// The course: seconds, and MiB saved by then.
    pub course: Vec<(f64, f64)>,
    /// Of each run, in the order of rounds; nothing if there was one.
    pub runs: &'a [Outcome],
}

/// What one run came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Memory saved over CPU used.
    pub mib_per_cpu_second: f64,
    /// To the moment that was waited for, if it came.
    pub reached_seconds: Option<f64>,
}

/// The words of a table in which results differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    /// What was measured, and where.
    pub(crate) title: &'a str,
    /// Heads the column of the moment that was waited for.
    pub(crate) reached: &'a str,
    /// Stands before how far a variant came that did not get there.
    pub(crate) missed: &'a str,
    /// Unit of CPU.
    pub(crate) cpu: &'a str,
    /// Heads the column of a variant's own memory.
    pub(crate) own: &'a str,
    /// Stands beside each ratio: what the machine was that it was measured on.
    pub(crate) machine: &'a str,
}

/// The cases, in order of appearance.
pub(crate) fn cases<'a>(rows: &[Row<'a>]) -> Vec<&'a str> {
    let mut cases = Vec::new();
    for row in rows {
        if !cases.contains(&row.case) {
            cases.push(row.case);
        }
    }
    cases
}

/// How `ours` compares with each peer of the same case; above 1 is in favour of `ours`. The names
/// of all cases but `plain` carry theirs after an `@`. A peer that did not finish gives a lower
/// bound of speed: the time it was given. Where `ours` did not, it gives an upper bound.
pub(crate) fn ratios(
    rows: &[Row<'_>],
    ours: &str,
    plain: Option<&str>,
    is_peer: impl Fn(&str) -> bool,
) -> BTreeMap<String, f64> {
    let mut ratios = BTreeMap::new();
    for_pairs(rows, ours, plain, is_peer, |own, peer, suffix| {
        let name = peer.name;
        if own.mib_per_cpu_second > 0.0 && peer.mib_per_cpu_second > 0.0 {
            let ratio = own.mib_per_cpu_second / peer.mib_per_cpu_second;
            ratios.insert(format!("cpu_efficiency_vs_{name}{suffix}"), ratio);
        }
        let bound = match (own.finished, peer.finished) {
            (true, true) => "",
            (true, false) => "_at_least",
            (false, true) => "_at_most",
            (false, false) => return,
        };
        if own.wall_seconds > 0.0 {
            let ratio = peer.wall_seconds / own.wall_seconds;
            ratios.insert(format!("speed_vs_{name}{bound}{suffix}"), ratio);
        }
    });
    ratios
}

/// How sure those [`ratios`] are of which both variants have several runs: by the same names.
pub(crate) fn intervals(
    rows: &[Row<'_>],
    ours: &str,
    plain: Option<&str>,
    is_peer: impl Fn(&str) -> bool,
) -> BTreeMap<String, Interval> {
    let mut intervals = BTreeMap::new();
    for_pairs(rows, ours, plain, is_peer, |own, peer, suffix| {
        let pairs = || own.runs.iter().zip(peer.runs);
        let name = peer.name;
        let efficiency: Vec<f64> = pairs()
            .map(|(own, peer)| own.mib_per_cpu_second / peer.mib_per_cpu_second)
            .collect();
        if let Some(interval) = Interval::of(&efficiency) {
            intervals.insert(format!("cpu_efficiency_vs_{name}{suffix}"), interval);
        }
        let speed = pairs().map(|(own, peer)| Some(peer.reached_seconds? / own.reached_seconds?));
        let speed: Option<Vec<f64>> = speed.collect();
        if let Some(interval) = speed.and_then(|speed| Interval::of(&speed)) {
            intervals.insert(format!("speed_vs_{name}{suffix}"), interval);
        }
    });
    intervals
}

/// Calls `compare` with our row, a peer's of the same case, and what ends the names of their
/// ratios.
fn for_pairs(
    rows: &[Row<'_>],
    ours: &str,
    plain: Option<&str>,
    is_peer: impl Fn(&str) -> bool,
    mut compare: impl FnMut(&Row<'_>, &Row<'_>, &str),
) {
    for case in cases(rows) {
        let of_case = || rows.iter().filter(|row| row.case == case);
        let Some(own) = of_case().find(|row| row.name == ours) else {
            continue;
        };
        let suffix = if plain == Some(case) {
            String::new()
        } else {
            format!("@{case}")
        };
        for peer in of_case().filter(|row| is_peer(row.name)) {
            compare(own, peer, &suffix);
        }
    }
}

/// A result as a table for people: the figures of all, those that only some have, and the ratios
/// with their intervals.
pub(crate) fn table(
    words: Words<'_>,
    rows: &[Row<'_>],
    ratios: &BTreeMap<String, f64>,
    intervals: &BTreeMap<String, Interval>,
) -> String {
    let mut text = format!("{}\n", words.title);
    let efficiency = format!("MiB/{}", words.cpu);
    let head = [
        "variant",
        "case",
        "saved MiB",
        "of MiB",
        words.reached,
        words.cpu,
        &efficiency,
        words.own,
    ];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| cells(row, words.missed)));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            let _ = if column < 2 {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for row in rows.iter().filter(|row| !row.figures.is_empty()) {
        let separator = if row.case.is_empty() { "" } else { ", " };
        let figures = figures(row.figures).join("; ");
        let _ = writeln!(text, "{}{separator}{}: {figures}", row.name, row.case);
    }
    for (name, value) in ratios {
        let _ = match intervals.get(name) {
            Some(interval) => writeln!(
                text,
                "{name}: {value:.2} ({}); mean of pairs {interval}",
                words.machine
            ),
            None => writeln!(text, "{name}: {value:.2} ({})", words.machine),
        };
    }
    text
}

/// Each figure as text, with its interval behind it if `NAME_low@CASE` and `NAME_high@CASE` tell
/// one.
fn figures(all: &BTreeMap<String, f64>) -> Vec<String> {
    let named = |name: &str, end: &str| {
        let (name, case) = name.split_at(name.find('@').unwrap_or(name.len()));
        format!("{name}{end}{case}")
    };
    let interval = |name: &str| {
        let low = all.get(&named(name, "_low"))?;
        Some((low, all.get(&named(name, "_high"))?))
    };
    let ends: BTreeSet<String> = all
        .keys()
        .filter(|name| interval(name).is_some())
        .flat_map(|name| [named(name, "_low"), named(name, "_high")])
        .collect();
    let own = all.iter().filter(|(name, _)| !ends.contains(*name));
    own.map(|(name, value)| match interval(name) {
        Some((low, high)) => format!("{name} {value:.3} ({low:.3} to {high:.3})"),
        None => format!("{name} {value:.3}"),
    })
    .collect()
}

fn cells(row: &Row<'_>, missed: &str) -> [String; 8] {
    let reached = match row.reached_seconds {
        Some(seconds) => format!("{seconds:.2} s"),
        None if row.mergeable_mib > 0.0 => {
            let share = 100.0 * row.saved_mib / row.mergeable_mib;
            format!("{missed}{share:.0} % in {:.0} s", row.wall_seconds)
        }
        None => format!("- ({:.0} s)", row.wall_seconds),
    };
    [
        row.name.to_owned(),
        row.case.to_owned(),
        format!("{:.1}", row.saved_mib),
        format!("{:.1}", row.mergeable_mib),
        reached,
        format!("{:.3}", row.cpu_seconds),
        format!("{:.0}", row.mib_per_cpu_second),
        format!("{:.1}", row.own_mib),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_interval_behind_it() {
        let all = [
            ("percent@build,nothing", 0.5),
            ("percent_low@build,nothing", 0.25),
            ("percent_high@build,nothing", 0.75),
            ("p99_ms", 2.0),
            // An end without the other, or without what it is of, is a figure like any other.
            ("alone_low", 1.0),
            ("busy", 3.0),
            ("busy_high", 4.0),
        ];
        let all = all.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(
            figures(&all.into()),
            [
                "alone_low 1.000",
                "busy 3.000",
                "busy_high 4.000",
                "p99_ms 2.000",
                "percent@build,nothing 0.500 (0.250 to 0.750)",
            ]
        );
    }
}

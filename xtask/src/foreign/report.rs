//! The report of a run, for people and for docs/foreign-suites.md.

use std::fmt::Write as _;

use super::compare::{Comparison, Split};
use uksm_guest_tests::foreign::schedule::{Arm, Record, TortureCounts};

/// Pages of a program that may have been exchanged without a test: those of its start, zeroes
/// mostly.
const MAX_UNTESTED_PAGES: u64 = 10;

/// The torturer's work in all items, and the number of items in which it exceeded the start of a
/// program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The sum.
    pub torture: TortureCounts,
    /// Items beside which it ran.
    pub items: usize,
    /// Items in which it exchanged more than a few pages.
    pub reached: usize,
    /// The other items, by name.
    pub untouched: Vec<String>,
}

/// The torturer's work.
#[must_use]
pub fn pressure(records: &[Record]) -> Pressure {
    let mut pressure = Pressure::default();
    for record in records.iter().filter(|record| record.arm == Arm::Tortured) {
        pressure.items += 1;
        if record.torture.exchanged() > MAX_UNTESTED_PAGES {
            pressure.reached += 1;
        } else {
            pressure.untouched.push(record.item.clone());
        }
        let (sum, one) = (&mut pressure.torture, record.torture);
        sum.rounds += one.rounds;
        sum.sampled += one.sampled;
        sum.tried += one.tried;
        sum.merged += one.merged;
        sum.zeroed += one.zeroed;
        sum.splits += one.splits;
    }
    pressure
}

/// The table of a run, in the form of the document.
#[must_use]
pub fn table(arms: &[Arm], comparison: &Comparison, records: &[Record]) -> String {
    let mut text = String::from(
        "| arm | programs | passed | failed | expected to fail | skipped | minutes | complaints |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for arm in arms {
        let counts = comparison.counts.get(arm).copied().unwrap_or_default();
        let own = || records.iter().filter(|record| record.arm == *arm);
        let minutes = own().map(|record| record.seconds).sum::<f64>() / 60.0;
        let complaints = own().map(|record| record.complaints.len()).sum::<usize>();
        // Writing to a string cannot fail.
        let _written = writeln!(
            text,
            "| {arm} | {} | {} | {} | {} | {} | {minutes:.1} | {complaints} |",
            counts.programs, counts.passed, counts.failed, counts.expected, counts.skipped
        );
    }
    text
}

/// One line for each name under which arms differ.
#[must_use]
pub fn splits(splits: &[Split]) -> String {
    let mut text = String::new();
    for split in splits {
        let _written = writeln!(text, "{}", line(split));
    }
    text
}

/// The same for differences with a known reason, each reason behind its differences.
#[must_use]
pub fn explained(known: &[(Split, &'static str)]) -> String {
    let mut text = String::new();
    for group in known.chunk_by(|(a, why), (b, other)| a.item == b.item && why == other) {
        for (split, _) in group {
            let _written = writeln!(text, "{}", line(split));
        }
        let _written = writeln!(text, "    reason: {}", group[0].1);
    }
    text
}

fn line(split: &Split) -> String {
    let outcomes: Vec<String> = split
        .outcomes
        .iter()
        .map(|(arm, outcome)| format!("{arm} {outcome}"))
        .collect();
    let name = if split.name.is_empty() {
        "its end"
    } else {
        &split.name
    };
    format!("  {}: {name}: {}", split.item, outcomes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::outcome::Outcome;

    #[test]
    fn a_reason_stands_behind_all_that_it_explains() {
        let split = |item: &str, name: &str| Split {
            item: item.into(),
            name: name.into(),
            outcomes: [
                (Arm::Bare, Outcome::Passed),
                (Arm::Tortured, Outcome::Failed),
            ]
            .into(),
        };
        let text = explained(&[
            (split("a", ""), "first"),
            (split("a", "x"), "first"),
            (split("b", ""), "second"),
        ]);
        assert_eq!(
            text,
            "  a: its end: bare passed, tortured failed\n  a: x: bare passed, tortured failed\n    \
             reason: first\n  b: its end: bare passed, tortured failed\n    reason: second\n"
        );
    }

    #[test]
    fn programs_that_the_torturer_did_not_reach_are_named() {
        let record = |arm, item: &str, merged| Record {
            arm,
            item: item.into(),
            status: Some(0),
            seconds: 1.0,
            output: String::new(),
            complaints: Vec::new(),
            torture: TortureCounts {
                merged,
                ..TortureCounts::default()
            },
        };
        let pressure = pressure(&[
            record(Arm::Bare, "a", 0),
            record(Arm::Tortured, "a", 17),
            record(Arm::Tortured, "b", 3),
        ]);
        assert_eq!((pressure.items, pressure.reached), (2, 1));
        assert_eq!(pressure.untouched, ["b"]);
        assert_eq!(pressure.torture.exchanged(), 20);
    }
}

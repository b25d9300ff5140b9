//! What a run shows, for people and for docs/foreign-suites.md.

use std::fmt::Write as _;

use super::compare::{Comparison, Split};
use super::schedule::{Arm, Record, Torment};

/// What the torturer did in all items, and in how many it did anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The sum.
    pub torment: Torment,
    /// Items that ran beside it.
    pub items: usize,
    /// Items of which it exchanged a page.
    pub reached: usize,
    /// The others, by name.
    pub untouched: Vec<String>,
}

/// What the torturer did.
#[must_use]
pub fn pressure(records: &[Record]) -> Pressure {
    let mut pressure = Pressure::default();
    for record in records.iter().filter(|record| record.arm == Arm::Tortured) {
        pressure.items += 1;
        if record.torment.exchanged() > 0 {
            pressure.reached += 1;
        } else {
            pressure.untouched.push(record.item.clone());
        }
        let (sum, one) = (&mut pressure.torment, record.torment);
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
        let _written = writeln!(text, "  {}: {name}: {}", split.item, outcomes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_the_torturer_did_not_reach_are_named() {
        let record = |arm, item: &str, merged| Record {
            arm,
            item: item.into(),
            status: Some(0),
            seconds: 1.0,
            output: String::new(),
            complaints: Vec::new(),
            torment: Torment {
                merged,
                ..Torment::default()
            },
        };
        let pressure = pressure(&[
            record(Arm::Bare, "a", 0),
            record(Arm::Tortured, "a", 7),
            record(Arm::Tortured, "b", 0),
        ]);
        assert_eq!((pressure.items, pressure.reached), (2, 1));
        assert_eq!(pressure.untouched, ["b"]);
        assert_eq!(pressure.torment.exchanged(), 7);
    }
}

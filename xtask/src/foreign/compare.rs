//! Whether the arms had equal outcomes.
//!
//! # Approach
//! The two arms without the module give one or two outcomes for each name; the other arms may have
//! only these. If the two differ, the outcome is unsteady, and is listed. If an arm does not
//! mention a name, that is an outcome, too.

use std::collections::{BTreeMap, BTreeSet};

use super::allowed_differences;
use super::outcome::{self, Outcome, Outcomes};
use uksm_guest_tests::foreign::schedule::{Arm, Item, Record};

/// One name under which arms differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The item.
    pub item: String,
    /// The outcome's name in it; empty for the program's own end.
    pub name: String,
    /// The outcome in each arm.
    pub outcomes: BTreeMap<Arm, Outcome>,
}

/// Number of outcomes of each kind in an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Programs that were run.
    pub programs: usize,
    /// Passed outcomes.
    pub passed: usize,
    /// Failed outcomes of any kind.
    pub failed: usize,
    /// Failed outcomes that are expected.
    pub expected: usize,
    /// Outcomes that could not be tried.
    pub skipped: usize,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Outcomes with the module that did not occur without it, for no known reason.
    pub differences: Vec<Split>,
    /// Differences that merging cannot avoid, each with the reason.
    pub known: Vec<(Split, &'static str)>,
    /// Outcomes that differ without the module.
    pub unsteady: Vec<Split>,
    /// Items for which an arm has no record.
    pub missing: Vec<(Arm, String)>,
    /// Counts of each arm.
    pub counts: BTreeMap<Arm, Counts>,
}

/// Compares the records of these arms.
#[must_use]
pub fn compare(items: &[Item], arms: &[Arm], records: &[Record]) -> Comparison {
    let mut comparison = Comparison::default();
    for item in items {
        let mut by_arm: BTreeMap<Arm, Outcomes> = BTreeMap::new();
        let mut outputs: BTreeMap<Arm, &str> = BTreeMap::new();
        for &arm in arms {
            let record = records
                .iter()
                .find(|record| record.arm == arm && record.item == item.name);
            match record {
                Some(record) => {
                    let outcomes = outcome::of(item, record);
                    comparison.counts.entry(arm).or_default().add(&outcomes);
                    by_arm.insert(arm, outcomes);
                    outputs.insert(arm, &record.output);
                }
                None => comparison.missing.push((arm, item.name.clone())),
            }
        }
        // The program's own end comes first: its name is empty.
        let names: BTreeSet<&String> = by_arm.values().flat_map(BTreeMap::keys).collect();
        let mut stopped = BTreeMap::new();
        for name in names {
            let outcomes: BTreeMap<Arm, Outcome> = by_arm
                .iter()
                .map(|(&arm, outcomes)| {
                    (arm, outcomes.get(name).copied().unwrap_or(Outcome::Missing))
                })
                .collect();
            let reason = |arm| {
                allowed_differences::reason(&item.name, name, arm, outputs.get(&arm).copied()?)
            };
            comparison.decide((&item.name, name), outcomes, &reason, &mut stopped);
        }
    }
    comparison
}

impl Comparison {
    /// Whether all arms have all outcomes, and equal ones.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.missing.is_empty()
    }

    /// Decides whether the outcomes of one name of an item differ. `reason` is the reason for which
    /// they may differ in an arm. `stopped` has the arms in which the program ended otherwise for a
    /// known reason, which explains outcomes that it did not come to.
    fn decide(
        &mut self,
        (item, name): (&str, &str),
        outcomes: BTreeMap<Arm, Outcome>,
        reason: &dyn Fn(Arm) -> Option<&'static str>,
        stopped: &mut BTreeMap<Arm, &'static str>,
    ) {
        let outcomes_without_module: BTreeSet<Outcome> = outcomes
            .iter()
            .filter(|(arm, _)| !arm.has_module())
            .map(|(_, &outcome)| outcome)
            .collect();
        let differing: Vec<Arm> = outcomes
            .iter()
            .filter(|(arm, outcome)| arm.has_module() && !outcomes_without_module.contains(outcome))
            .map(|(&arm, _)| arm)
            .collect();
        let split = Split {
            item: item.to_owned(),
            name: name.to_owned(),
            outcomes,
        };
        if outcomes_without_module.len() > 1 {
            self.unsteady.push(split.clone());
        }
        let reasons: Option<Vec<_>> = differing
            .iter()
            .map(|&arm| {
                let outcome = split.outcomes[&arm];
                let not_reached = stopped.get(&arm).copied();
                reason(arm)
                    .or_else(|| not_reached.filter(|_| outcome == Outcome::Missing))
                    .filter(|_| !outcome.is_grave())
            })
            .collect();
        if let (true, Some(reasons)) = (name.is_empty(), &reasons) {
            stopped.extend(differing.iter().copied().zip(reasons.iter().copied()));
        }
        match reasons.as_deref() {
            Some([]) => {}
            Some([reason, ..]) => self.known.push((split, reason)),
            None => self.differences.push(split),
        }
    }
}

impl Counts {
    fn add(&mut self, outcomes: &Outcomes) {
        self.programs += 1;
        for outcome in outcomes.values() {
            match outcome {
                Outcome::Passed => self.passed += 1,
                Outcome::Expected => self.expected += 1,
                Outcome::Skipped => self.skipped += 1,
                Outcome::Failed
                | Outcome::Ended(_)
                | Outcome::Unfinished
                | Outcome::Complaint
                | Outcome::Missing => self.failed += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_guest_tests::foreign::schedule::{Allowed, Dialect, TortureCounts};

    fn item(name: &str) -> Item {
        Item {
            name: name.into(),
            program: "/x".into(),
            arguments: Vec::new(),
            dialect: Dialect::Selftest,
            bound: 1,
            endless: false,
            allowed: Allowed::FULL,
        }
    }

    fn record(arm: Arm, output: &str) -> Record {
        Record {
            arm,
            item: "a".into(),
            status: Some(0),
            seconds: 1.0,
            output: output.into(),
            complaints: Vec::new(),
            torture: TortureCounts::default(),
        }
    }

    /// The comparison of one program with these outputs in the four arms.
    fn compared(outputs: [&str; 4]) -> Comparison {
        let records: Vec<Record> = Arm::ALL
            .into_iter()
            .zip(outputs)
            .map(|(arm, output)| record(arm, output))
            .collect();
        compare(&[item("a")], &Arm::ALL, &records)
    }

    #[test]
    fn equal_arms_are_equal() {
        let comparison = compared(["ok 1 x\nnot ok 2 y"; 4]);
        assert!(comparison.is_equal(), "{comparison:?}");
        assert!(comparison.unsteady.is_empty());
        let counts = comparison.counts[&Arm::Idle];
        assert_eq!((counts.programs, counts.passed, counts.failed), (1, 2, 1));
    }

    #[test]
    fn a_planted_difference_is_found_in_each_arm_with_the_module() {
        for (arm, outputs) in [
            (Arm::Idle, ["ok 1 x", "ok 1 x", "not ok 1 x", "ok 1 x"]),
            (
                Arm::Tortured,
                ["ok 1 x", "ok 1 x", "ok 1 x", "ok 1 x # SKIP y"],
            ),
        ] {
            let comparison = compared(outputs);
            assert!(!comparison.is_equal());
            let [split] = comparison.differences.as_slice() else {
                panic!("one name differs: {comparison:?}");
            };
            assert_eq!((split.item.as_str(), split.name.as_str()), ("a", "x"));
            assert_ne!(split.outcomes[&arm], split.outcomes[&Arm::Bare]);
        }
    }

    #[test]
    fn a_test_that_is_not_reported_is_a_difference() {
        let comparison = compared([
            "ok 1 x\nok 2 y",
            "ok 1 x\nok 2 y",
            "ok 1 x\nok 2 y",
            "ok 1 x",
        ]);
        assert_eq!(comparison.differences.len(), 1);
        assert_eq!(
            comparison.differences[0].outcomes[&Arm::Tortured],
            Outcome::Missing
        );
    }

    #[test]
    fn what_differs_without_the_module_is_unsteady_and_no_difference() {
        let comparison = compared(["ok 1 x", "not ok 1 x", "ok 1 x", "not ok 1 x"]);
        assert!(comparison.is_equal(), "{comparison:?}");
        assert_eq!(comparison.unsteady.len(), 1);
    }

    #[test]
    fn an_unsteady_test_must_not_do_a_third_thing() {
        let comparison = compared(["ok 1 x", "not ok 1 x", "ok 1 x", "ok 1 x # SKIP"]);
        assert_eq!(comparison.differences.len(), 1);
    }

    #[test]
    fn a_complaint_of_the_kernel_is_a_difference() {
        let mut records = Arm::ALL.map(|arm| record(arm, "ok 1 x"));
        records[3].complaints = vec!["BUG: Bad page state in process x  pfn:12345".into()];
        let comparison = compare(&[item("a")], &Arm::ALL, &records);
        assert_eq!(comparison.differences.len(), 1, "{comparison:?}");
    }

    #[test]
    fn a_known_reason_to_stop_explains_what_was_not_reached_and_nothing_else() {
        let compared = |output: &str| {
            let mut records = Arm::ALL.map(|arm| record(arm, "ok 1 x\nok 2 y"));
            for record in &mut records {
                record.item = "khugepaged all:anon".into();
            }
            records[3].status = Some(1);
            records[3].output = output.into();
            compare(&[item("khugepaged all:anon")], &Arm::ALL, &records)
        };
        let stopped = compared("ok 1 x\nFail");
        assert!(
            stopped.is_equal() && stopped.known.len() == 2,
            "{stopped:?}"
        );
        let failed = compared("ok 1 x\nnot ok 2 y\nFail");
        assert_eq!(failed.differences.len(), 1, "{failed:?}");
    }

    #[test]
    fn known_reasons_excuse_failures_and_nothing_grave() {
        let compared = |status, complaints: &[&str]| {
            let mut records = Arm::ALL.map(|arm| record(arm, ""));
            for record in &mut records {
                record.item = "ksm_tests -M".into();
            }
            records[3].status = status;
            records[3].complaints = complaints.iter().map(ToString::to_string).collect();
            compare(&[item("ksm_tests -M")], &Arm::ALL, &records)
        };
        let failed = compared(Some(1), &[]);
        assert!(failed.is_equal() && failed.known.len() == 1, "{failed:?}");
        for grave in [
            compared(Some(139), &[]),
            compared(None, &[]),
            compared(Some(0), &["BUG: Bad page state"]),
        ] {
            assert!(!grave.is_equal(), "{grave:?}");
        }
    }

    #[test]
    fn an_arm_without_a_record_is_not_equal() {
        let records = [Arm::Bare, Arm::Busy, Arm::Idle].map(|arm| record(arm, "ok 1 x"));
        let comparison = compare(&[item("a")], &Arm::ALL, &records);
        assert_eq!(comparison.missing, [(Arm::Tortured, "a".to_owned())]);
        assert!(!comparison.is_equal());
    }
}

//! The result of an experiment: one JSON file, the same form for all, and the same bytes each time.
//!
//! The form is that of the guest experiments. A ratio above 1 is always in uksm's favour.
//! `cpu_seconds` and `wall_seconds` run from the moment at which the workload is there to the
//! moment at which the wanted share of the mergeable memory is merged, or to the end if that is not
//! reached (`finished` false). All times are simulated.

use std::collections::BTreeMap;

use serde::Serialize;
use uksm_results::{Row, Words};

use crate::stopwatch::Real;

/// The result of one experiment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Its name.
    pub experiment: String,
    /// Always `simulated`.
    pub kernel: String,
    /// Name of the file of costs.
    pub accel: String,
    /// Largest memory of a case's workload.
    pub memory_mib: u64,
    /// Seed of everything.
    pub seed: u64,
    /// The measurements.
    pub variants: Vec<Measured>,
    /// Ratios; above 1 is in uksm's favour.
    pub ratios: BTreeMap<String, f64>,
}

/// One variant's figures in one case.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    /// The variant: `uksm-full`, `ksm-unlimited`, …
    pub name: String,
    /// The case; empty if there is one only.
    pub case: String,
    /// Time to the wanted share, or of the whole run.
    pub wall_seconds: f64,
    /// CPU over the same time.
    pub cpu_seconds: f64,
    /// Memory saved at the end.
    pub saved_mib: f64,
    /// Memory that merging all equal pages would save.
    pub mergeable_mib: f64,
    /// Whether the wanted share was reached.
    pub finished: bool,
    /// Time to 95 %, where that is the goal.
    pub seconds_to_95_percent: Option<f64>,
    /// Memory saved over CPU used.
    pub mib_per_cpu_second: f64,
    /// Largest memory of the engine itself.
    pub daemon_mib: f64,
    /// Figures that only this experiment has.
    pub figures: BTreeMap<String, f64>,
    /// The course.
    pub looks: Vec<Look>,
    /// Times of the run on this machine, which are not part of its result.
    #[serde(skip)]
    pub real: Real,
}

/// One look at the host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Look {
    /// Time since the workload is there.
    pub seconds: f64,
    /// CPU used since then.
    pub cpu_seconds: f64,
    /// Memory saved.
    pub saved_mib: f64,
}

impl Report {
    /// The figures in the form that all results have in common.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        self.variants.iter().map(Measured::row).collect()
    }

    /// Adds the comparisons of `ours` with each peer in the same case. The first case has plain
    /// names, the others carry theirs after an `@`.
    pub fn compare(&mut self, ours: &str) {
        let rows = self.rows();
        let plain = rows.first().map(|first| first.case);
        let is_peer = |name: &str| !name.starts_with("uksm-");
        let ratios = uksm_results::ratios(&rows, ours, plain, is_peer);
        self.ratios.extend(ratios);
    }

    /// The result as a file.
    ///
    /// # Panics
    /// Never: the form can be written as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it is plain data") + "\n"
    }

    /// The result as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let title = format!(
            "{} on a simulated host (costs: {}, up to {} MiB, seed {})",
            self.experiment, self.accel, self.memory_mib, self.seed
        );
        let words = Words {
            title: &title,
            reached: "reached",
            missed: "",
            cpu: "CPU s",
            own: "engine MiB",
            machine: "simulated",
        };
        uksm_results::table(words, &self.rows(), &self.ratios, &BTreeMap::new())
    }
}

impl Measured {
    fn row(&self) -> Row<'_> {
        let course = self.looks.iter();
        Row {
            name: &self.name,
            case: &self.case,
            saved_mib: self.saved_mib,
            mergeable_mib: self.mergeable_mib,
            wall_seconds: self.wall_seconds,
            cpu_seconds: self.cpu_seconds,
            finished: self.finished,
            reached_seconds: self.finished.then_some(self.wall_seconds),
            mib_per_cpu_second: self.mib_per_cpu_second,
            own_mib: self.daemon_mib,
            figures: &self.figures,
            course: course.map(|look| (look.seconds, look.saved_mib)).collect(),
            runs: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, case: &str, efficiency: f64, seconds: Option<f64>) -> Measured {
        Measured {
            name: name.into(),
            case: case.into(),
            mib_per_cpu_second: efficiency,
            finished: seconds.is_some(),
            wall_seconds: seconds.unwrap_or(30.0),
            ..Measured::default()
        }
    }

    #[test]
    fn a_ratio_above_one_is_in_our_favour() {
        let mut report = Report {
            variants: vec![
                measured("ksm-unlimited", "a", 10.0, Some(8.0)),
                measured("uksm-full", "a", 50.0, Some(2.0)),
                measured("ksm-unlimited", "b", 10.0, None),
                measured("uksm-full", "b", 5.0, Some(3.0)),
            ],
            ..Report::default()
        };
        report.compare("uksm-full");
        assert_eq!(report.ratios["cpu_efficiency_vs_ksm-unlimited"], 5.0);
        assert_eq!(report.ratios["speed_vs_ksm-unlimited"], 4.0);
        assert_eq!(report.ratios["cpu_efficiency_vs_ksm-unlimited@b"], 0.5);
        assert_eq!(report.ratios["speed_vs_ksm-unlimited_at_least@b"], 10.0);
    }

    #[test]
    fn the_table_says_how_far_a_variant_came_that_did_not_finish() {
        let slow = Measured {
            saved_mib: 3.0,
            mergeable_mib: 4.0,
            ..measured("uksm-low", "a", 1.0, None)
        };
        let report = Report {
            variants: vec![slow],
            ..Report::default()
        };
        assert!(
            report.table().contains("75 % in 30 s"),
            "{}",
            report.table()
        );
    }
}

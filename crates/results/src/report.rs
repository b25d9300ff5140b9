//! The result of an experiment: one JSON file, the same form for all, wherever it ran.
//!
//! # Problem
//! Experiments run in guests, on this machine, and on simulated hosts. Not all count the same
//! figures, but results are compared, and read side by side.
//!
//! # Approach
//! One form. A figure that is counted in guests only is left out of a file where it is nothing, so
//! that a simulated result holds none of them, and has the same bytes each time.
//!
//! # Units
//! A ratio above 1 is always in uksm's favour. `cpu_seconds` and `wall_seconds` run from the start
//! of the system under test, on a simulated host from the moment at which the workload is there, to
//! the moment when the wanted share of the mergeable memory is merged (95 % in guests), or to the
//! end of the run if that is not reached (`finished` false). `saved_mib` is counted from page
//! tables at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::interval::Interval;
use crate::timeline::Timeline;
use crate::{Outcome, Row, Words};

/// The kernel of a simulated host, in place of a release.
pub const SIMULATED: &str = "simulated";

/// The result of one experiment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub experiment: String,
    /// Kernel release of the guest, or [`SIMULATED`].
    pub kernel: String,
    /// `kvm` or `tcg`: absolute figures of an emulated guest are meaningless, ratios are not. Of a
    /// simulated host the name of the file of costs.
    pub accel: String,
    /// The source of the guest's clock. If it counted instructions, a second of CPU is 10⁹ of them,
    /// a microsecond is 1000, and figures of different hosts and hours can be compared. A simulated
    /// host has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Memory of the guest; simulated, the largest memory of a case's workload.
    pub memory_mib: u64,
    /// Seed of all contents.
    pub seed: u64,
    /// The measurements.
    pub variants: Vec<Measured>,
    /// Ratios; above 1 is in uksm's favour.
    pub ratios: BTreeMap<String, f64>,
    /// The intervals of the ratios whose variants ran several times, by the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Interval>,
}

/// One variant's figures in one case: those of the median run, by CPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The variant: `ksm-unlimited`, `uksm-full`, …
    pub name: String,
    /// Size or order, where the experiment has several; empty otherwise.
    #[serde(default)]
    pub case: String,
    /// Seconds to the wanted share, or of the whole run.
    pub wall_seconds: f64,
    /// CPU of daemon and kernel threads over the same time.
    pub cpu_seconds: f64,
    /// MiB saved at the end.
    pub saved_mib: f64,
    /// MiB that merging everything would save.
    pub mergeable_mib: f64,
    /// Whether the wanted share of that was reached.
    pub finished: bool,
    /// Seconds until 95 %, where that is the goal.
    pub seconds_to_95_percent: Option<f64>,
    /// Memory saved over CPU used, at that moment.
    pub mib_per_cpu_second: f64,
    /// Pages the workload found unchanged afterwards.
    #[serde(default, skip_serializing_if = "is_none")]
    pub verified_pages: u64,
    /// Largest memory of the daemon, or the simulated engine, itself.
    pub daemon_mib: f64,
    /// CPU of all runs of this variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_seconds_of_runs: Vec<f64>,
    /// The outcome of each run, in the order of rounds: those of one round had the same contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
    /// Figures that only this experiment has.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Number of values of a quantity up to a bound and above the one before, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Vec<(f64, usize)>>,
    /// The course of the median run.
    #[serde(default)]
    pub looks: Timeline,
    /// Other curves of the median run by name, seconds and MiB, if the experiment has any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub courses: BTreeMap<String, Vec<(f64, f64)>>,
    /// The part of each run whose instructions were counted by function, if they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// The system's own report at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<serde_json::Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A part of a run whose instructions were counted by function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The number of windows opened before, in this boot.
    pub number: usize,
    /// CPU that the system under test used in it, by the scheduler's clock.
    pub cpu_seconds: f64,
    /// MiB saved when it was closed.
    pub saved_mib: f64,
    /// Whether it was closed at the first look that saw 95 % merged; otherwise, at the end of the
    /// run.
    pub reached: bool,
}

impl Report {
    /// The variant with this name and case.
    #[must_use]
    pub fn find(&self, name: &str, case: &str) -> Option<&Measured> {
        self.variants
            .iter()
            .find(|variant| variant.name == name && variant.case == case)
    }

    /// Whether it ran on a simulated host.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.kernel == SIMULATED
    }

    /// The source of the clock: time, if none is stated.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.unwrap_or_default()
    }

    /// The figures in the form that tables and pictures take.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let is_simulated = self.is_simulated();
        let variants = self.variants.iter();
        variants.map(|one| one.row(is_simulated)).collect()
    }

    /// Adds the comparisons of `ours` with each peer of the same case. The first case has plain
    /// names, the others carry theirs after an `@`.
    pub fn compare(&mut self, ours: &str) {
        let plain = self.variants.first().map(|first| first.case.clone());
        self.compare_cases(ours, plain.as_deref());
    }

    /// The same, where the names of all cases but `plain` carry theirs. Peers are KSM's variants,
    /// and on a simulated host all others that are not uksm's.
    pub fn compare_cases(&mut self, ours: &str, plain: Option<&str>) {
        let is_simulated = self.is_simulated();
        let is_peer = |name: &str| match is_simulated {
            true => !name.starts_with("uksm-"),
            false => name.starts_with("ksm-"),
        };
        let rows = self.rows();
        let ratios = crate::ratios(&rows, ours, plain, is_peer);
        let intervals = crate::intervals(&rows, ours, plain, is_peer);
        self.ratios.extend(ratios);
        self.intervals.extend(intervals);
    }

    /// The kind of machine, for display beside ratios.
    #[must_use]
    pub fn machine_kind(&self) -> &'static str {
        match (&self.accel[..], self.clock()) {
            _ if self.is_simulated() => SIMULATED,
            ("tcg", Clock::Time) => "emulated",
            ("tcg", Clock::Instructions) => "emulated, instructions",
            ("kvm", _) => "virtual, at native speed",
            _ => "native",
        }
    }

    /// The environment of the guest: accel and clock.
    #[must_use]
    pub fn machine(&self) -> String {
        match self.clock() {
            Clock::Time => self.accel.clone(),
            Clock::Instructions => format!("{}, 1 s = 10^9 instructions", self.accel),
        }
    }

    /// The text of its file.
    ///
    /// # Errors
    /// A figure cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes the result; returns the file's path.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join(format!("{}.json", self.experiment));
        fs::write(&path, self.json()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Reads a result.
    ///
    /// # Errors
    /// There is none, or it has another form.
    pub fn read(path: &Path) -> Result<Report> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: run the experiment first", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}: not a result", path.display()))
    }

    /// The result as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let title = if self.is_simulated() {
            format!(
                "{} on a simulated host (costs: {}, up to {} MiB, seed {})",
                self.experiment, self.accel, self.memory_mib, self.seed
            )
        } else {
            format!(
                "{} on Linux {} ({}, {} MiB, seed {})",
                self.experiment,
                self.kernel,
                self.machine(),
                self.memory_mib,
                self.seed
            )
        };
        let (reached, missed, own) = match self.is_simulated() {
            true => ("reached", "", "engine MiB"),
            false => ("to 95 %", "not: ", "daemon MiB"),
        };
        let words = Words {
            title: &title,
            reached,
            missed,
            cpu: self.clock().cpu_unit(),
            own,
            machine: self.machine_kind(),
        };
        crate::table(words, &self.rows(), &self.ratios, &self.intervals)
    }
}

impl Measured {
    fn row(&self, is_simulated: bool) -> Row<'_> {
        let course = self.looks.0.iter();
        Row {
            name: &self.name,
            case: &self.case,
            saved_mib: self.saved_mib,
            mergeable_mib: self.mergeable_mib,
            wall_seconds: self.wall_seconds,
            cpu_seconds: self.cpu_seconds,
            finished: self.finished,
            reached_seconds: match is_simulated {
                true => self.finished.then_some(self.wall_seconds),
                false => self.seconds_to_95_percent,
            },
            mib_per_cpu_second: self.mib_per_cpu_second,
            own_mib: self.daemon_mib,
            figures: &self.figures,
            course: course.map(|look| (look.seconds, look.saved_mib)).collect(),
            runs: &self.outcomes,
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
            seconds_to_95_percent: seconds,
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
                measured("ksm-unlimited", "c", 10.0, Some(6.0)),
                measured("uksm-full", "c", 5.0, None),
            ],
            ..Report::default()
        };
        report.compare("uksm-full");
        assert_eq!(report.ratios["cpu_efficiency_vs_ksm-unlimited"], 5.0);
        assert_eq!(report.ratios["speed_vs_ksm-unlimited"], 4.0);
        assert_eq!(report.ratios["cpu_efficiency_vs_ksm-unlimited@b"], 0.5);
        assert_eq!(report.ratios["speed_vs_ksm-unlimited_at_least@b"], 10.0);
        assert_eq!(report.ratios["speed_vs_ksm-unlimited_at_most@c"], 0.2);
    }

    #[test]
    fn without_a_plain_case_every_ratio_names_its_case() {
        let mut report = Report {
            variants: vec![
                measured("ksm-unlimited", "a", 10.0, Some(8.0)),
                measured("uksm-full", "a", 50.0, Some(2.0)),
            ],
            ..Report::default()
        };
        report.compare_cases("uksm-full", None);
        let names: Vec<&str> = report.ratios.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "cpu_efficiency_vs_ksm-unlimited@a",
                "speed_vs_ksm-unlimited@a"
            ]
        );
    }

    #[test]
    fn a_ratio_of_several_runs_has_an_interval_and_says_so() {
        let of_runs = |name: &str, figures: [(f64, f64); 3]| Measured {
            outcomes: figures
                .map(|(efficiency, seconds)| Outcome {
                    mib_per_cpu_second: efficiency,
                    reached_seconds: Some(seconds),
                })
                .to_vec(),
            ..measured(name, "", figures[1].0, Some(figures[1].1))
        };
        let mut report = Report {
            variants: vec![
                of_runs("ksm-unlimited", [(10.0, 8.0), (10.0, 8.0), (10.0, 8.0)]),
                of_runs("uksm-full", [(49.0, 2.0), (50.0, 2.0), (51.0, 2.0)]),
            ],
            ..Report::default()
        };
        report.compare("uksm-full");
        let efficiency = report.intervals["cpu_efficiency_vs_ksm-unlimited"];
        assert!(efficiency.low < 5.0 && 5.0 < efficiency.high && efficiency.pairs == 3);
        assert!(report.intervals["speed_vs_ksm-unlimited"].spread() < 1e-9);
        assert!(
            report.table().contains("mean of pairs 5.00 in 4.7"),
            "{}",
            report.table()
        );
        report.variants[0].outcomes[2].reached_seconds = None;
        report.intervals.clear();
        report.compare("uksm-full");
        assert!(!report.intervals.contains_key("speed_vs_ksm-unlimited"));
    }

    #[test]
    fn a_result_states_its_clock_in_its_file_and_in_its_table() {
        let report = Report {
            clock: Some(Clock::Instructions),
            variants: vec![measured("uksm-full", "", 1.0, None)],
            ..Report::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["clock"], "instructions");
        assert!(report.table().contains("1 s = 10^9 instructions"));
        assert!(report.table().contains("MiB/10^9 instr"));
        let timed = Report {
            clock: Some(Clock::Time),
            ..report
        };
        assert_eq!(serde_json::to_value(&timed).unwrap()["clock"], "time");
        assert!(timed.table().contains("MiB/CPU s"));
        assert!(!timed.table().contains("instr"));
    }

    #[test]
    fn a_result_from_before_clocks_were_stated_was_timed() {
        let json = serde_json::to_value(Report::default()).unwrap();
        assert!(json.get("clock").is_none());
        let report: Report = serde_json::from_value(json).unwrap();
        assert_eq!(report.clock(), Clock::Time);
    }

    #[test]
    fn a_result_reads_back_as_written() {
        let directory = std::env::temp_dir().join(format!("uksm-bench-{}", std::process::id()));
        let mut report = Report {
            experiment: "x".into(),
            seed: 7,
            ..Report::default()
        };
        report.variants.push(measured("ksm-1000", "", 1.0, None));
        let path = report.write(&directory).unwrap();
        let read = Report::read(&path).unwrap();
        assert_eq!(read.seed, 7);
        assert_eq!(read.variants[0].name, "ksm-1000");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_simulated_result_has_peers_and_words_of_its_own() {
        let slow = Measured {
            saved_mib: 3.0,
            mergeable_mib: 4.0,
            ..measured("uksm-low", "a", 1.0, None)
        };
        let mut report = Report {
            kernel: SIMULATED.to_owned(),
            variants: vec![
                slow,
                measured("xlh-100", "a", 10.0, Some(8.0)),
                measured("uksm-full", "a", 50.0, Some(2.0)),
            ],
            ..Report::default()
        };
        report.compare("uksm-full");
        assert_eq!(report.ratios["cpu_efficiency_vs_xlh-100"], 5.0);
        let table = report.table();
        assert!(table.contains("75 % in 30 s") && !table.contains("not: "));
        assert!(table.contains("(simulated)"), "{table}");
    }

    #[test]
    fn a_figure_that_is_nothing_is_left_out() {
        let report = Report {
            variants: vec![measured("uksm-full", "a", 1.0, None)],
            ..Report::default()
        };
        let json = report.json().unwrap();
        for name in ["clock", "verified_pages", "outcomes", "counters", "windows"] {
            assert!(!json.contains(name), "{name}: {json}");
        }
    }
}

//! The result of an experiment: one JSON file, the same form for all.
//!
//! A ratio above 1 is always in uksm's favour. `cpu_seconds` and `wall_seconds` run from the start
//! of the system under test to the moment when 95 % of the mergeable memory is merged, or to the
//! end of the run if that is not reached (`finished` false). `saved_mib` is counted from page
//! tables at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use uksm_results::interval::Interval;
use uksm_results::{Outcome, Row, Words};

use crate::measure::clock::Clock;
use crate::measure::timeline::Timeline;
use crate::measure::window::Window;

/// The result of one experiment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Its name.
    pub experiment: String,
    /// Kernel release of the guest.
    pub kernel: String,
    /// `kvm` or `tcg`: absolute figures of an emulated guest are meaningless, ratios are not.
    pub accel: String,
    /// The source of the guest's clock. If it counted instructions, a second of CPU is 10⁹ of them,
    /// a microsecond is 1000, and figures of different hosts and hours can be compared.
    #[serde(default)]
    pub clock: Clock,
    /// Memory of the guest.
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

/// One variant's figures: those of the median run, by CPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The variant: `ksm-unlimited`, `uksm-full`, …
    pub name: String,
    /// Size or order, where the experiment has several; empty otherwise.
    #[serde(default)]
    pub case: String,
    /// Seconds to 95 % merged, or of the whole run.
    pub wall_seconds: f64,
    /// CPU of daemon and kernel threads over the same time.
    pub cpu_seconds: f64,
    /// MiB saved at the end.
    pub saved_mib: f64,
    /// MiB that merging everything would save.
    pub mergeable_mib: f64,
    /// Whether 95 % of that was reached.
    pub finished: bool,
    /// Seconds until 95 %.
    pub seconds_to_95_percent: Option<f64>,
    /// Memory saved over CPU used, at that moment.
    pub mib_per_cpu_second: f64,
    /// Pages the workload found unchanged afterwards.
    pub verified_pages: u64,
    /// Largest memory of the daemon itself.
    pub daemon_mib: f64,
    /// CPU of all runs of this variant.
    pub cpu_seconds_of_runs: Vec<f64>,
    /// The outcome of each run, in the order of rounds: those of one round had the same contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
    /// Figures that only this experiment has.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Number of values of a quantity up to a bound and above the one before, by its name.
    #[serde(default)]
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
    #[serde(default)]
    pub counters: Option<serde_json::Value>,
}

impl Report {
    /// The variant with this name and case.
    pub(crate) fn find(&self, name: &str, case: &str) -> Option<&Measured> {
        self.variants
            .iter()
            .find(|variant| variant.name == name && variant.case == case)
    }

    /// The figures in the form that all results have in common.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        self.variants.iter().map(Measured::row).collect()
    }

    /// Adds the comparisons of `ours` with each KSM variant of the same case. The first case has
    /// plain names.
    pub(crate) fn compare(&mut self, ours: &str) {
        let plain = self.variants.first().map(|first| first.case.clone());
        self.compare_cases(ours, plain.as_deref());
    }

    /// The same, where the names of all cases but `plain` carry theirs.
    pub(crate) fn compare_cases(&mut self, ours: &str, plain: Option<&str>) {
        let is_peer = |name: &str| name.starts_with("ksm-");
        let rows = self.rows();
        let ratios = uksm_results::ratios(&rows, ours, plain, is_peer);
        let intervals = uksm_results::intervals(&rows, ours, plain, is_peer);
        self.ratios.extend(ratios);
        self.intervals.extend(intervals);
    }

    /// The kind of machine, for display beside ratios.
    pub(crate) fn kind_of_machine(&self) -> &'static str {
        match (&self.accel[..], self.clock) {
            ("tcg", Clock::Time) => "emulated",
            ("tcg", Clock::Instructions) => "emulated, instructions",
            ("kvm", _) => "virtual, at native speed",
            _ => "native",
        }
    }

    /// The environment of the guest: accel and clock.
    pub(crate) fn machine(&self) -> String {
        match self.clock {
            Clock::Time => self.accel.clone(),
            Clock::Instructions => format!("{}, 1 s = 10^9 instructions", self.accel),
        }
    }

    /// Writes the result; returns the file's path.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join(format!("{}.json", self.experiment));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Reads a result.
    pub(crate) fn read(path: &Path) -> Result<Report> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: run the experiment first", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}: not a result", path.display()))
    }

    /// The result as a table for people.
    pub(crate) fn table(&self) -> String {
        let title = format!(
            "{} on Linux {} ({}, {} MiB, seed {})",
            self.experiment,
            self.kernel,
            self.machine(),
            self.memory_mib,
            self.seed
        );
        let words = Words {
            title: &title,
            reached: "to 95 %",
            missed: "not: ",
            cpu: self.clock.cpu_unit(),
            own: "daemon MiB",
            machine: self.kind_of_machine(),
        };
        uksm_results::table(words, &self.rows(), &self.ratios, &self.intervals)
    }
}

impl Measured {
    fn row(&self) -> Row<'_> {
        let course = self.looks.0.iter();
        Row {
            name: &self.name,
            case: &self.case,
            saved_mib: self.saved_mib,
            mergeable_mib: self.mergeable_mib,
            wall_seconds: self.wall_seconds,
            cpu_seconds: self.cpu_seconds,
            finished: self.finished,
            reached_seconds: self.seconds_to_95_percent,
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
            clock: Clock::Instructions,
            variants: vec![measured("uksm-full", "", 1.0, None)],
            ..Report::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["clock"], "instructions");
        assert!(report.table().contains("1 s = 10^9 instructions"));
        assert!(report.table().contains("MiB/10^9 instr"));
        let timed = Report {
            clock: Clock::Time,
            ..report
        };
        assert_eq!(serde_json::to_value(&timed).unwrap()["clock"], "time");
        assert!(timed.table().contains("MiB/CPU s"));
        assert!(!timed.table().contains("instr"));
    }

    #[test]
    fn a_result_from_before_clocks_were_stated_was_timed() {
        let mut json = serde_json::to_value(Report::default()).unwrap();
        json.as_object_mut().unwrap().remove("clock");
        let report: Report = serde_json::from_value(json).unwrap();
        assert_eq!(report.clock, Clock::Time);
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
}

//! The results of runs: a table, and ratios with their intervals.
//!
//! A cell is the median of a variant's runs, with the least and the most in brackets. Ratios are of
//! pairs, the two variants in one round. If a variant did not reach the goal within its window, its
//! row has a mark: its figures are of another amount of work.

use std::fmt::{self, Write as _};

use serde::Serialize;
use uksm_results::interval::Interval;

use super::workloads::{VARIANTS, WORKLOADS, Workload};

/// The results of one run.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Figures {
    /// Pages saved at its end.
    pub(super) saved_pages: u64,
    /// Pages that can be saved.
    pub(super) possible_pages: u64,
    /// Seconds until nine tenths were saved, or the whole window.
    pub(super) seconds: f64,
    /// Whether nine tenths were saved.
    pub(super) is_done: bool,
    /// Processor time of ksmd.
    pub(super) ksmd_seconds: f64,
    /// Processor time of the daemon.
    pub(super) daemon_seconds: f64,
    /// Processor time of the agent.
    pub(super) agent_seconds: f64,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct KsmRun {
    pub(super) round: usize,
    pub(super) workload: String,
    pub(super) variant: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

impl Figures {
    fn cpu(&self) -> f64 {
        self.ksmd_seconds + self.daemon_seconds + self.agent_seconds
    }

    fn mib(&self) -> f64 {
        self.saved_pages as f64 / 256.0
    }

    /// Microseconds of processor time for a page saved; none if none was.
    fn page_cost(&self) -> Option<f64> {
        (self.saved_pages > 0).then(|| self.cpu() * 1e6 / self.saved_pages as f64)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} of {:.1} MiB in {:.2} s, CPU {:.3} s",
            self.mib(),
            self.possible_pages as f64 / 256.0,
            self.seconds,
            self.cpu()
        )
    }
}

/// Median, least and most of some figures.
fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let median = values[values.len() / 2];
    format!("{median:.digits$} [{least:.digits$}-{most:.digits$}]")
}

/// The table of all runs.
pub(super) fn table(runs: &[KsmRun], kernel: &str, window: u64) -> String {
    let mut text = format!(
        "native, Linux {kernel}: to 90 % of what can be saved, or {window} s; median [least-most] of each variant's runs\n"
    );
    for Workload { name, layout } in WORKLOADS {
        let _infallible = writeln!(text, "\n{name}: {layout}");
        let mut rows = vec![
            [
                "variant",
                "runs",
                "saved MiB",
                "wall s",
                "ksmd s",
                "uksm s",
                "agent s",
                "CPU us/page",
                "",
            ]
            .map(str::to_owned),
        ];
        for variant in VARIANTS {
            let of = of(runs, name, variant.name());
            let all = |figure: &dyn Fn(&Figures) -> f64, digits| {
                spread(of.iter().map(|run| figure(&run.figures)).collect(), digits)
            };
            let costs = of.iter().filter_map(|run| run.figures.page_cost());
            let done = of.iter().filter(|run| run.figures.is_done).count();
            let remark = match done == of.len() {
                true => String::new(),
                false => format!(
                    "{} of {} did not get there: not the same work",
                    of.len() - done,
                    of.len()
                ),
            };
            rows.push([
                variant.name().to_owned(),
                of.len().to_string(),
                all(&Figures::mib, 1),
                all(&|figures| figures.seconds, 2),
                all(&|figures| figures.ksmd_seconds, 3),
                all(&|figures| figures.daemon_seconds, 3),
                all(&|figures| figures.agent_seconds, 4),
                spread(costs.collect(), 2),
                remark,
            ]);
        }
        text += &aligned(&rows);
        text += &ratios(runs, name);
    }
    text
}

fn of<'a>(runs: &'a [KsmRun], workload: &str, variant: &str) -> Vec<&'a KsmRun> {
    let is = |run: &&KsmRun| run.workload == workload && run.variant == variant;
    runs.iter().filter(is).collect()
}

/// CPU a saved page of each other variant, as a multiple of uksm's.
fn ratios(runs: &[KsmRun], workload: &str) -> String {
    let mut text = String::new();
    let own = of(runs, workload, "uksm");
    for variant in VARIANTS.into_iter().skip(1) {
        let name = variant.name();
        let peers = of(runs, workload, name);
        let pair = |own: &&&KsmRun| {
            let peer = peers.iter().find(|peer| peer.round == own.round)?;
            Some(peer.figures.page_cost()? / own.figures.page_cost()?)
        };
        let ratios: Option<Vec<f64>> = own.iter().map(|own| pair(&own)).collect();
        let ratio_text = match ratios.as_deref().map(Interval::of) {
            None => "saved nothing in some round".to_owned(),
            Some(None) => "one pair has no interval".to_owned(),
            Some(Some(interval)) => interval.to_string(),
        };
        let _infallible = writeln!(text, "CPU a saved page, {name} / uksm: {ratio_text}");
    }
    text
}

fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells =
            row.iter()
                .zip(&widths)
                .enumerate()
                .map(
                    |(column, (cell, &width))| match column == 0 || column == COLUMNS - 1 {
                        true => format!("{cell:<width$}"),
                        false => format!("{cell:>width$}"),
                    },
                );
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, variant: &str, saved_pages: u64, cpu: f64) -> KsmRun {
        KsmRun {
            round,
            workload: "static-mixed".to_owned(),
            variant: variant.to_owned(),
            figures: Figures {
                saved_pages,
                possible_pages: 1000,
                seconds: 2.0,
                is_done: saved_pages >= 900,
                ksmd_seconds: cpu,
                daemon_seconds: 0.0,
                agent_seconds: 0.0,
            },
        }
    }

    #[test]
    fn ratios_are_of_pairs_and_who_did_not_get_there_is_named() {
        let runs: Vec<KsmRun> = (0..3)
            .flat_map(|round| {
                let host = 1.0 + 0.1 * round as f64;
                [
                    run(round, "uksm", 1000, host),
                    run(round, "ksm-unlimited", 1000, 4.0 * host),
                    run(round, "ksm-shipped", if round == 1 { 0 } else { 10 }, 1.0),
                ]
            })
            .collect();
        let text = table(&runs, "6.18", 12);
        for line in [
            "CPU a saved page, ksm-unlimited / uksm: 4.00 in 4.00 to 4.00 (± 0 %, 3 pairs)",
            "CPU a saved page, ksm-shipped / uksm: saved nothing in some round",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let shipped = text
            .lines()
            .find(|line| line.starts_with("ksm-shipped"))
            .unwrap();
        assert!(
            shipped.ends_with("3 of 3 did not get there: not the same work"),
            "{shipped}"
        );
        let own = text.lines().find(|line| line.starts_with("uksm")).unwrap();
        assert!(own.contains("1100.00 [1000.00-1200.00]"), "{own}");
    }
}

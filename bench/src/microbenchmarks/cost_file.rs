//! The simulator's cost file, as a calibration writes it.
//!
//! One line a cost, each with its measurement. The file is made of a result of `calibrate`; the
//! simulator reads it, and refuses it if a cost is missing, unknown or impossible.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow};
use uksm_results::report::Report;

/// One cost.
pub(crate) struct Cost {
    /// Its name; a dot separates its section.
    pub name: &'static str,
    /// What measures it.
    pub source: &'static str,
}

const fn measured(name: &'static str, source: &'static str) -> Cost {
    Cost { name, source }
}

/// All costs, in the order of the file.
pub(crate) const COSTS: [Cost; 39] = [
    measured(
        "start",
        "the daemon with nobody to serve, 60 ms after its exec",
    ),
    measured("call", "SAMPLE of one page, less its parts"),
    measured("fold", "FOLD of one page, less its parts"),
    measured(
        "list_processes",
        "a process list by search, everybody known",
    ),
    measured("events", "a process list by events, nothing happened"),
    measured("process", "the same after 32 processes appeared, a process"),
    measured("size", "SIZES of 1 and 2048 spaces"),
    measured(
        "list_mappings",
        "a mapping list of a small process, less one mapping",
    ),
    measured(
        "mapping",
        "mapping lists of 1 and 400 mappings, a line of maps",
    ),
    measured("page", "SAMPLE of 1 and 4096 pages, less the line"),
    measured(
        "page_merged",
        "SAMPLE of 512 pages merged already, less the line",
    ),
    measured("run", "SAMPLE of 512 pages in 1 and 512 runs"),
    measured("line", "SAMPLE of 1 and 64 lines of 4096 pages"),
    measured("merge", "FOLD of 1 and 248 pages into a frame"),
    measured("pair", "FOLD of 256 pairs: both pages"),
    measured(
        "table",
        "FOLD of pages side by side and under page tables of their own",
    ),
    measured("check", "FOLD of 248 pages merged already"),
    measured("compare", "FOLD of 512 pages that differ from the frame"),
    measured("frame", "FRAMES of 1 and 2048 frames, less the line"),
    measured("wake", "a sleep of 2 ms"),
    measured("late", "sleeps of 20 ms: how much longer they are"),
    measured("write", "a process that writes all its pages"),
    measured("unshare", "the same with 2048 of 4096 pages merged"),
    measured("drain", "FOLD with and without DRAIN"),
    measured(
        "step",
        "engine steps by pages sampled, and a turn of the driver",
    ),
    measured(
        "step_page",
        "engine steps by pages sampled, none with a twin",
    ),
    measured(
        "step_merged",
        "engine steps, nearly all pages merged already, by pages",
    ),
    measured("step_run", "the same by runs"),
    measured("step_pair", "engine steps, each page with one twin"),
    measured("step_join", "engine steps, all pages equal"),
    measured("ksm.wake", "ksmd by 1 page and 20 ms, less the page"),
    measured("ksm.late", "the same: how much longer its sleeps are"),
    measured(
        "ksm.first",
        "ksmd's first scan of unique pages, less the checksum",
    ),
    measured(
        "ksm.checksum",
        "ksmd's later scans of 8 and 64 MiB, less the search",
    ),
    measured("ksm.tree_step", "the same: a level"),
    measured(
        "ksm.stable_step",
        "later scans of unique pages beside 4096 frames, a level",
    ),
    measured(
        "ksm.merge",
        "ksmd's second scan of equal pages, less the search",
    ),
    measured("ksm.pair", "ksmd's second scan of pairs, less the search"),
    measured("ksm.revisit", "ksmd's third scan of equal pages"),
];

/// The file that a result of `calibrate` makes.
///
/// # Errors
/// A cost was not measured, or is impossible.
pub(crate) fn text(report: &Report) -> Result<String> {
    let mut costs = BTreeMap::new();
    for variant in &report.variants {
        if let Some(&nanoseconds) = variant.figures.get("nanoseconds") {
            costs.insert(variant.name.as_str(), nanoseconds);
        }
    }
    let mut text = format!(
        "# What things cost, in nanoseconds, on Linux {} ({}), seed {}.\n\
         # Written by `uksm-bench calibrate`: do not edit. Each line names what measured it.\n\n",
        report.kernel,
        report.machine(),
        report.seed
    );
    let mut section = "";
    for cost in &COSTS {
        let (of, name) = cost.name.split_once('.').unwrap_or(("", cost.name));
        if of != section {
            section = of;
            let _ = writeln!(text, "\n[{section}]");
        }
        let value = costs.get(cost.name);
        let value = value.with_context(|| format!("{} was not measured", cost.name))?;
        let given = format!("{name} = {value:.0}");
        let _ = writeln!(text, "{given:<24} # {}", cost.source);
    }
    uksm_simulator::Costs::read(&text).map_err(|error| anyhow!(error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_results::report::Measured;

    fn report(but: &str) -> Report {
        let named = COSTS.iter().zip(1_u32..);
        let measured = named
            .filter(|(cost, _)| cost.name != but)
            .map(|(cost, number)| Measured {
                name: cost.name.to_owned(),
                figures: [("nanoseconds".to_owned(), f64::from(100 * number))].into(),
                ..Measured::default()
            });
        Report {
            variants: measured.collect(),
            ..Report::default()
        }
    }

    #[test]
    fn the_simulator_reads_what_a_calibration_writes() {
        let text = text(&report("")).unwrap();
        let costs = uksm_simulator::Costs::read(&text).unwrap();
        assert_eq!(costs.start, 100);
        assert_eq!(costs.call, 200);
    }

    #[test]
    fn a_cost_that_was_not_measured_is_named() {
        let error = text(&report("merge")).unwrap_err().to_string();
        assert_eq!(error, "merge was not measured");
    }

    #[test]
    fn a_cost_that_cannot_be_is_named() {
        let mut impossible = report("");
        impossible.variants[1]
            .figures
            .insert("nanoseconds".into(), 0.0);
        let error = text(&impossible).unwrap_err().to_string();
        assert!(error.contains("call = 0"), "{error}");
    }
}

//! calibrate: each cost of the simulator on this machine, by micro-benchmarks alone.
//!
//! The simulator advances its time by costs from a file. This experiment measures each of those
//! costs by itself: calls into the module with partners known by plan, listings of processes and
//! mappings, the engine's own steps, and scans of ksmd over memory of one kind. No cost is fitted
//! to a workload, so that workloads can show whether the simulator is right (`uksm-bench realism`).

mod calls;
mod costs;
mod ksmd;
mod listings;
mod meter;

use anyhow::{Result, ensure};
use uksm_results::report::{Measured, Report};
use uksm_simulator::steps::StepCosts;

use crate::microbenchmarks::cost_file::COSTS;
use crate::setup::Setup;
use costs::Costs;

/// Runs the experiment.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("calibrate")?;
    let mut costs = Costs::new();
    for part in [calls::measure, listings::measure, ksmd::measure] {
        part(setup, &mut costs)?;
    }
    let steps = StepCosts::measure();
    costs.insert("step", steps.step + costs["turn"]);
    costs.insert("step_page", steps.page);
    costs.insert("step_merged", steps.merged);
    costs.insert("step_run", steps.run);
    costs.insert("step_pair", steps.pair);
    costs.insert("step_join", steps.join);
    for cost in &COSTS {
        let measured = costs.get(cost.name).copied();
        ensure!(measured.is_some(), "{}: nothing measured it", cost.name);
        let nanoseconds = measured.unwrap_or_default();
        println!("{} = {nanoseconds:.0}: {}", cost.name, cost.source);
        report.variants.push(Measured {
            name: cost.name.to_owned(),
            figures: [("nanoseconds".to_owned(), nanoseconds)].into(),
            ..Measured::default()
        });
    }
    Ok(report)
}

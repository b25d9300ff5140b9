//! Experiments: each a small file that says which workload, which variants, which question.
//!
//! They run inside a guest, as root, with the module loaded, and write one result each. All
//! variants of one experiment run in the same boot, interleaved, each on a fresh process tree.

mod average;
mod calibrate;
mod clone;
mod cost;
mod cow_broken;
mod crowd;
mod fold_cost;
mod hints;
mod idle;
mod newcomers;
mod race;
mod respond;
mod sample_cost;
mod scatter;
mod short_lived;
mod sparse_majority;
mod static_mixed;
mod watch;

pub(crate) use race::{Race, Run};
pub(crate) use watch::Watch;

use crate::boot::Needs;
use crate::result::Report;
use crate::setup::Setup;
use anyhow::{Context, Result, ensure};

/// An experiment.
pub(crate) struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Memory its guest needs at the default sizes, MiB.
    memory_mib: u32,
    /// What else its guest needs: options of the harness.
    packed: &'static [&'static str],
    run: fn(&Setup) -> Result<Report>,
}

/// All experiments.
pub(crate) const EXPERIMENTS: [Experiment; 18] = [
    Experiment {
        name: "static-mixed",
        question: "identical and random pages, 1:1 (UKSM §8.1.1)",
        memory_mib: 1792,
        packed: &[],
        run: static_mixed::run,
    },
    Experiment {
        name: "sparse-majority",
        question: "one part identical, six parts random",
        memory_mib: 1536,
        packed: &[],
        run: sparse_majority::run,
    },
    Experiment {
        name: "clone",
        question: "two processes with the same distinct pages",
        memory_mib: 2432,
        packed: &[],
        run: clone::run,
    },
    Experiment {
        name: "sample-cost",
        question: "SAMPLE against ksmd, a page without a partner",
        memory_mib: 768,
        packed: &[],
        run: sample_cost::run,
    },
    Experiment {
        name: "fold-cost",
        question: "FOLD alone, partners known",
        memory_mib: 768,
        packed: &[],
        run: fold_cost::run,
    },
    Experiment {
        name: "calibrate",
        question: "what each cost of the simulator is here",
        memory_mib: 640,
        packed: &[],
        run: calibrate::run,
    },
    Experiment {
        name: "idle",
        question: "CPU and memory with nothing left to merge",
        memory_mib: 640,
        packed: &[],
        run: idle::run,
    },
    Experiment {
        name: "respond",
        question: "100 MiB of copied pages appear in a settled system",
        memory_mib: 768,
        packed: &[],
        run: respond::run,
    },
    Experiment {
        name: "scatter",
        question: "equal pages few or many, anywhere, singly or in runs",
        memory_mib: 2944,
        packed: &[],
        run: scatter::run,
    },
    Experiment {
        name: "crowd",
        question: "newcomers among thousands of idle processes, and in a storm",
        memory_mib: 2432,
        packed: &[],
        run: crowd::run,
    },
    Experiment {
        name: "hints-build",
        question: "two machines build the same: hints of I/O (XLH §5.2)",
        memory_mib: 1536,
        packed: &[],
        run: hints::build,
    },
    Experiment {
        name: "hints-web",
        question: "two machines serve the same files in other orders (XLH §5.2)",
        memory_mib: 1536,
        packed: &[],
        run: hints::web,
    },
    Experiment {
        name: "hints-mixed",
        question: "one machine builds, one serves files: hints that do not pay",
        memory_mib: 1536,
        packed: &[],
        run: hints::mixed,
    },
    Experiment {
        name: "hints-guests",
        question: "two QEMU guests read the files of equal disks: hints of I/O",
        memory_mib: 1280,
        packed: &["--nested"],
        run: hints::guests,
    },
    Experiment {
        name: "hints-programs",
        question: "four servers load one file, four Pythons the same modules: hints of I/O",
        memory_mib: 1024,
        packed: &["--redis", "--python"],
        run: hints::programs,
    },
    Experiment {
        name: "hints-cost",
        question: "what the programs that tell of I/O cost a build, and a program that reads",
        memory_mib: 640,
        packed: &["--python"],
        run: hints::cost,
    },
    Experiment {
        name: "cow-broken",
        question: "pages rewritten as they are merged (UKSM §8.1.2)",
        memory_mib: 2816,
        packed: &[],
        run: cow_broken::run,
    },
    Experiment {
        name: "short-lived",
        question: "mappings that live for T (UKSM §8.1.3)",
        memory_mib: 640,
        packed: &[],
        run: short_lived::run,
    },
];

fn find(name: &str) -> Result<&'static Experiment> {
    let found = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name);
    found.with_context(|| {
        let names: Vec<&str> = EXPERIMENTS
            .iter()
            .map(|experiment| experiment.name)
            .collect();
        format!("no experiment '{name}'; there are {}", names.join(", "))
    })
}

/// What the guest of an experiment needs.
pub(crate) fn needs(name: &str) -> Result<Needs> {
    find(name).map(|experiment| Needs {
        memory_mib: experiment.memory_mib,
        packed: experiment.packed,
    })
}

/// Runs one experiment, prints its table and writes its result.
pub(crate) fn run_named(name: &str, setup: &Setup) -> Result<()> {
    let experiment = find(name)?;
    let report = (experiment.run)(setup).with_context(|| format!("experiment {name}"))?;
    ensure!(
        !report.variants.is_empty(),
        "experiment {name}: no variant ran"
    );
    println!("{}", report.table());
    let path = report.write(&setup.output)?;
    println!("written {}", path.display());
    Ok(())
}

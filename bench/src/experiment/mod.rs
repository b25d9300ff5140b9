//! Experiments: each a small file with its workload, its variants and its question.
//!
//! They run inside a guest, as root, with the module loaded, and write one result each. All
//! variants of one experiment run in the same boot, interleaved, each on a fresh process tree.

mod average;
mod calibrate;
mod clone;
mod containers;
mod cost;
mod cow_broken;
mod criu;
mod crowd;
mod fold_cost;
pub(crate) mod groups;
mod hints;
mod idle;
mod jvm;
mod ksm_settings;
mod machines;
mod newcomers;
mod penalty;
pub(crate) mod primitives;
mod race;
mod replay;
mod respond;
mod sample_cost;
mod scatter;
mod sharers;
mod short_lived;
mod similar;
mod sparse_majority;
mod static_mixed;
mod watch;

pub(crate) use race::{Race, Run, interleave_by, start_workload};
pub(crate) use watch::Watch;

use crate::needs::Needs;
use crate::result::Report;
use crate::setup::Setup;
use anyhow::{Context, Result, ensure};

/// An experiment.
pub(crate) struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its question.
    pub question: &'static str,
    /// Memory its guest needs at the default sizes, MiB.
    memory_mib: u32,
    /// Other needs of its guest: options of the harness.
    packed: &'static [&'static str],
    run: fn(&Setup) -> Result<Report>,
}

/// All experiments.
pub(crate) const EXPERIMENTS: [Experiment; 29] = [
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
        name: "similar",
        question: "pages alike in all lines but one (UKSM §8.3.1)",
        memory_mib: 768,
        packed: &[],
        run: similar::run,
    },
    Experiment {
        name: "sharers",
        question: "contents with 2 to 1000 copies, by a Zipf law",
        memory_mib: 768,
        packed: &[],
        run: sharers::run,
    },
    Experiment {
        name: "ksm-settings",
        question: "what KSM's settings change",
        memory_mib: 1024,
        packed: &[],
        run: ksm_settings::run,
    },
    Experiment {
        name: "machines",
        question: "QEMU guests with the same system, idle, booting, over-committed (UKSM §8.2.1)",
        memory_mib: 1280,
        packed: &["--nested", "--kernel-module", "zram"],
        run: machines::run,
    },
    Experiment {
        name: "containers",
        question: "small systems with a service and a store each (UKSM §8.2.2)",
        memory_mib: 1536,
        packed: &["--redis", "--python"],
        run: containers::run,
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
        name: "criu",
        question: "a family that is merged, written to files, restored and merged again",
        memory_mib: 1024,
        packed: &["--python", "--criu"],
        run: criu::run,
    },
    Experiment {
        name: "jvm",
        question: "Java virtual machines with the same service, idle after a collection",
        memory_mib: 1536,
        packed: &["--java"],
        run: jvm::run,
    },
    Experiment {
        name: "groups",
        question: "two groups, one short of memory: policies and rates (Euro-Par'11 §4)",
        memory_mib: 512,
        packed: &["--kernel-module", "zram"],
        run: groups::run,
    },
    Experiment {
        name: "penalty",
        question: "what merging costs the applications on the host (UKSM §8.4)",
        memory_mib: 1280,
        packed: &["--redis", "--python", "--postgres"],
        run: penalty::run,
    },
    Experiment {
        name: "primitives",
        question: "what is done to pages, each alone, in caches and in memory",
        memory_mib: 640,
        packed: &[],
        run: primitives::run,
    },
    Experiment {
        name: "replay",
        question: "memory as real processes had it, at its true layout",
        memory_mib: 2432,
        packed: &[],
        run: replay::run,
    },
    Experiment {
        name: "short-lived",
        question: "mappings that live for T (UKSM §8.1.3)",
        memory_mib: 640,
        packed: &[],
        run: short_lived::run,
    },
];

/// Experiments whose runs have a stretch to profile.
const PROFILED: [&str; 14] = [
    "containers",
    "similar",
    "sharers",
    "static-mixed",
    "sparse-majority",
    "clone",
    "respond",
    "scatter",
    "crowd",
    "cow-broken",
    "primitives",
    "replay",
    "sample-cost",
    "short-lived",
];

/// Whether an experiment can be profiled.
///
/// # Errors
/// It cannot, or there is no such experiment.
pub(crate) fn is_profiled(name: &str) -> Result<()> {
    find(name)?;
    ensure!(
        PROFILED.contains(&name),
        "experiment {name} cannot be profiled; these can: {}",
        PROFILED.join(", ")
    );
    Ok(())
}

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

/// Experiments whose programs are at random addresses each time, as on any machine.
const RANDOM_ADDRESSES: [&str; 3] = ["machines", "containers", "jvm"];

/// The needs of an experiment's guest.
pub(crate) fn needs(name: &str) -> Result<Needs> {
    find(name).map(|experiment| Needs {
        memory_mib: experiment.memory_mib,
        packed: experiment.packed,
        random_addresses: RANDOM_ADDRESSES.contains(&name),
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
    if setup.profile {
        leave_symbols(name, setup)?;
    }
    println!("written {}", path.display());
    Ok(())
}

/// Leaves the addresses of the kernel's functions beside the result: they differ in each boot.
fn leave_symbols(name: &str, setup: &Setup) -> Result<()> {
    let symbols = "/proc/kallsyms";
    let all = std::fs::read_to_string(symbols).with_context(|| format!("cannot read {symbols}"))?;
    let path = setup.output.join(format!("{name}.symbols"));
    std::fs::write(&path, functions_of(&all)).with_context(|| path.display().to_string())
}

/// The lines of functions: kinds t and w, in either case.
fn functions_of(symbols: &str) -> String {
    let is_function = |line: &&str| {
        let kind = line.split_ascii_whitespace().nth(1).unwrap_or_default();
        matches!(kind, "t" | "T" | "w" | "W")
    };
    symbols
        .lines()
        .filter(is_function)
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_profiled_is_refused_before_a_guest_is_booted() {
        for name in PROFILED {
            is_profiled(name).unwrap();
        }
        let error = is_profiled("idle").unwrap_err().to_string();
        assert!(
            error.contains("idle cannot") && error.contains("scatter"),
            "{error}"
        );
        assert!(is_profiled("nothing").is_err());
    }

    #[test]
    fn of_the_kernels_symbols_only_functions_are_left() {
        let all = "f000 T a\nf010 d b\nf020 t c\t[m]\nf030 W d\nf040 B e\n";
        assert_eq!(functions_of(all), "f000 T a\nf020 t c\t[m]\nf030 W d\n");
    }
}

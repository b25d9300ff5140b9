//! Experiments: each a small file with its workload, its variants and its question.
//!
//! They run inside a guest, as root, with the module loaded, and write one result each. All
//! variants of one experiment run in the same boot, interleaved, each on a fresh process tree.

mod clone;
mod containers;
mod cow_broken;
mod criu;
mod crowd;
mod fragmentation;
pub(crate) mod groups;
mod hints;
mod idle;
mod installed;
mod jvm;
mod ksm_settings;
mod machines;
mod newcomers;
mod penalty;
mod replay;
mod respond;
mod scatter;
mod sharers;
mod short_lived;
mod similar;
mod sparse_majority;
mod static_mixed;

use anyhow::{Context, Result, ensure};
use uksm_results::report::Report;

use crate::microbenchmarks::{calibrate, fold_cost, primitives, sample_cost};
use crate::setup::Setup;

/// An experiment.
pub(crate) struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its question.
    pub question: &'static str,
    needs: Needs,
    /// Whether its runs have a stretch to profile.
    is_profiled: bool,
    run: fn(&Setup) -> Result<Report>,
}

/// The needs of some work for a guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Memory at the default sizes, MiB.
    pub memory_mib: u32,
    /// Options of the harness for packages beside the workspace's programs.
    pub packed: &'static [&'static str],
    /// Whether each program is at random addresses, as on any machine, each time it is started.
    pub random_addresses: bool,
}

impl Needs {
    /// This many MiB.
    const fn memory(memory_mib: u32) -> Needs {
        Needs {
            memory_mib,
            packed: &[],
            random_addresses: false,
        }
    }

    /// Packages as well.
    const fn packed(self, packed: &'static [&'static str]) -> Needs {
        Needs { packed, ..self }
    }

    /// Programs at random addresses.
    const fn random_addresses(self) -> Needs {
        Needs {
            random_addresses: true,
            ..self
        }
    }
}

/// All experiments.
pub(crate) const EXPERIMENTS: [Experiment; 31] = [
    Experiment {
        name: "static-mixed",
        question: "identical and random pages, 1:1 (UKSM §8.1.1)",
        needs: Needs::memory(1792),
        is_profiled: true,
        run: static_mixed::run,
    },
    Experiment {
        name: "sparse-majority",
        question: "one part identical, six parts random",
        needs: Needs::memory(1536),
        is_profiled: true,
        run: sparse_majority::run,
    },
    Experiment {
        name: "clone",
        question: "two processes with the same distinct pages",
        needs: Needs::memory(2432),
        is_profiled: true,
        run: clone::run,
    },
    Experiment {
        name: "sample-cost",
        question: "SAMPLE against ksmd, a page without a partner",
        needs: Needs::memory(768),
        is_profiled: true,
        run: sample_cost::run,
    },
    Experiment {
        name: "fold-cost",
        question: "FOLD alone, partners known",
        needs: Needs::memory(768),
        is_profiled: false,
        run: fold_cost::run,
    },
    Experiment {
        name: "calibrate",
        question: "what each cost of the simulator is here",
        needs: Needs::memory(640),
        is_profiled: false,
        run: calibrate::run,
    },
    Experiment {
        name: "idle",
        question: "CPU and memory with nothing left to merge",
        needs: Needs::memory(640),
        is_profiled: false,
        run: idle::run,
    },
    Experiment {
        name: "respond",
        question: "100 MiB of copied pages appear in a settled system",
        needs: Needs::memory(768),
        is_profiled: true,
        run: respond::run,
    },
    Experiment {
        name: "scatter",
        question: "equal pages few or many, anywhere, singly or in runs",
        needs: Needs::memory(2944),
        is_profiled: true,
        run: scatter::run,
    },
    Experiment {
        name: "crowd",
        question: "newcomers among thousands of idle processes, and in a storm",
        needs: Needs::memory(2432),
        is_profiled: true,
        run: crowd::run,
    },
    Experiment {
        name: "hints-build",
        question: "two machines build the same: hints of I/O (XLH §5.2)",
        needs: Needs::memory(1536),
        is_profiled: false,
        run: hints::build,
    },
    Experiment {
        name: "hints-web",
        question: "two machines serve the same files in other orders (XLH §5.2)",
        needs: Needs::memory(1536),
        is_profiled: false,
        run: hints::web,
    },
    Experiment {
        name: "hints-mixed",
        question: "one machine builds, one serves files: hints that do not pay",
        needs: Needs::memory(1536),
        is_profiled: false,
        run: hints::mixed,
    },
    Experiment {
        name: "hints-guests",
        question: "two QEMU guests read the files of equal disks: hints of I/O",
        needs: Needs::memory(1280).packed(&["--nested"]),
        is_profiled: false,
        run: hints::guests,
    },
    Experiment {
        name: "similar",
        question: "pages alike in all lines but one (UKSM §8.3.1)",
        needs: Needs::memory(768),
        is_profiled: true,
        run: similar::run,
    },
    Experiment {
        name: "sharers",
        question: "contents with 2 to 1000 copies, by a Zipf law",
        needs: Needs::memory(768),
        is_profiled: true,
        run: sharers::run,
    },
    Experiment {
        name: "ksm-settings",
        question: "what KSM's settings change",
        needs: Needs::memory(1024),
        is_profiled: false,
        run: ksm_settings::run,
    },
    Experiment {
        name: "machines",
        question: "QEMU guests with the same system, idle, booting, over-committed (UKSM §8.2.1)",
        needs: Needs::memory(1280)
            .packed(&[
                "--nested",
                "--kernel-module",
                "zram",
                "--kernel-module",
                "virtio_blk",
                "--disk",
                "1024",
            ])
            .random_addresses(),
        is_profiled: false,
        run: machines::run,
    },
    Experiment {
        name: "containers",
        question: "small systems with a service and a store each (UKSM §8.2.2)",
        needs: Needs::memory(1536)
            .packed(&["--redis", "--python"])
            .random_addresses(),
        is_profiled: true,
        run: containers::run,
    },
    Experiment {
        name: "hints-programs",
        question: "four servers load one file, four Pythons the same modules: hints of I/O",
        needs: Needs::memory(1024).packed(&["--redis", "--python"]),
        is_profiled: false,
        run: hints::programs,
    },
    Experiment {
        name: "hints-cost",
        question: "what the programs that tell of I/O cost a build, and a program that reads",
        needs: Needs::memory(640).packed(&["--python"]),
        is_profiled: false,
        run: hints::cost,
    },
    Experiment {
        name: "cow-broken",
        question: "pages rewritten as they are merged (UKSM §8.1.2)",
        needs: Needs::memory(2816),
        is_profiled: true,
        run: cow_broken::run,
    },
    Experiment {
        name: "criu",
        question: "a family that is merged, written to files, restored and merged again",
        needs: Needs::memory(1024).packed(&["--python", "--criu"]),
        is_profiled: false,
        run: criu::run,
    },
    Experiment {
        name: "jvm",
        question: "Java virtual machines with the same service, idle after a collection",
        needs: Needs::memory(1536).packed(&["--java"]).random_addresses(),
        is_profiled: false,
        run: jvm::run,
    },
    Experiment {
        name: "installed",
        question: "what a user gets with the defaults, beside KSM as hosts set it",
        needs: Needs::memory(2432),
        is_profiled: false,
        run: installed::run,
    },
    Experiment {
        name: "fragmentation",
        question: "huge pages, compaction and frames after rounds of starts, ends and writes",
        needs: Needs::memory(1024),
        is_profiled: false,
        run: fragmentation::run,
    },
    Experiment {
        name: "groups",
        question: "two groups, one short of memory: policies and rates (Euro-Par'11 §4)",
        needs: Needs::memory(512).packed(&["--kernel-module", "zram"]),
        is_profiled: false,
        run: groups::run,
    },
    Experiment {
        name: "penalty",
        question: "what merging costs the applications on the host (UKSM §8.4)",
        needs: Needs::memory(1280).packed(&["--redis", "--python", "--postgres"]),
        is_profiled: false,
        run: penalty::run,
    },
    Experiment {
        name: "primitives",
        question: "what is done to pages, each alone, in caches and in memory",
        needs: Needs::memory(640),
        is_profiled: true,
        run: primitives::run,
    },
    Experiment {
        name: "replay",
        question: "memory as real processes had it, at its true layout",
        needs: Needs::memory(2432),
        is_profiled: true,
        run: replay::run,
    },
    Experiment {
        name: "short-lived",
        question: "mappings that live for T (UKSM §8.1.3)",
        needs: Needs::memory(640),
        is_profiled: true,
        run: short_lived::run,
    },
];

/// Whether an experiment can be profiled.
///
/// # Errors
/// It cannot, or there is no such experiment.
pub(crate) fn is_profiled(name: &str) -> Result<()> {
    ensure!(
        find(name)?.is_profiled,
        "experiment {name} cannot be profiled; these can: {}",
        names(|experiment| experiment.is_profiled)
    );
    Ok(())
}

fn find(name: &str) -> Result<&'static Experiment> {
    let found = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name);
    found.with_context(|| format!("no experiment '{name}'; there are {}", names(|_| true)))
}

/// The names of these experiments.
fn names(of: fn(&&Experiment) -> bool) -> String {
    let names: Vec<&str> = EXPERIMENTS
        .iter()
        .filter(of)
        .map(|experiment| experiment.name)
        .collect();
    names.join(", ")
}

/// The needs of an experiment's guest.
pub(crate) fn needs(name: &str) -> Result<Needs> {
    Ok(find(name)?.needs)
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
        is_profiled("scatter").unwrap();
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

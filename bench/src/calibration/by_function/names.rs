//! Names in a boot: functions by their addresses, owners by the code of their tasks.
//!
//! Approach: a task is known by the program that it runs. The daemon is one of them; ksmd and the
//! idle task are tasks that were only in the kernel, known by a function that no other task
//! executes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use uksm_results::report::{Report, Window};

use super::counts::{Block, CodeLocation, Counts, WindowCounts};
use super::hierarchy::Accesses;
use super::profile::{Function, Owner, Profile, ProfiledRun};
use super::symbols::Symbols;
use crate::units::MIB_PAGES;

/// The daemon's program.
const DAEMON: &str = "uksm";
/// Functions that only ksmd executes; their names depend on the kernel.
const KSMD: [&str; 4] = [
    "ksm_scan_thread",
    "ksm_do_scan",
    "scan_get_next_rmap_item",
    "cmp_and_merge_page",
];
/// Functions that only the idle task executes.
const IDLE: [&str; 3] = ["do_idle", "cpu_startup_entry", "default_idle_call"];
/// The name of code that no symbol covers.
const NAMELESS: &str = "(no symbol)";

/// Instructions by the offset and the length of a block.
type Blocks = BTreeMap<(u64, u64), u64>;

/// The names of a boot.
pub(super) struct Names {
    kernel: Symbols,
    programs: Vec<(String, Symbols)>,
}

impl Names {
    /// Reads the symbols of these programs, and of the kernel from its list.
    pub(super) fn read(counts: &Counts, kernel: &Path) -> Result<Names> {
        let list = fs::read_to_string(kernel)
            .with_context(|| format!("the guest left no {}", kernel.display()))?;
        let programs = counts.programs.iter().map(|path| {
            let shown = || path.display().to_string();
            let file = fs::read(path).with_context(shown)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let symbols = Symbols::of_program(&file).with_context(shown)?;
            Ok((name.into_owned(), symbols))
        });
        Ok(Names {
            kernel: Symbols::of_kernel(&list).with_context(|| kernel.display().to_string())?,
            programs: programs.collect::<Result<_>>()?,
        })
    }

    /// The place and name of a block's function, and the offset of the block in it.
    fn function(&self, block: &Block) -> (&str, &str, u64) {
        let (found, place) = match block.place {
            CodeLocation::Kernel => (self.kernel.find(block.address), "kernel"),
            CodeLocation::User => (None, "user"),
            CodeLocation::Program(number) => match self.programs.get(number) {
                Some((name, symbols)) => (symbols.find(block.address), &name[..]),
                None => (None, "user"),
            },
        };
        match found {
            Some(found) => (found.module.unwrap_or(place), found.name, found.offset),
            None => (place, NAMELESS, block.address),
        }
    }

    fn is_daemon(&self, place: CodeLocation) -> bool {
        let CodeLocation::Program(number) = place else {
            return false;
        };
        let program = self.programs.get(number);
        program.is_some_and(|(name, _)| name == DAEMON)
    }

    /// The owners of those tasks of a window that were only in the kernel.
    fn kernel_tasks(&self, window: &WindowCounts) -> BTreeMap<usize, Owner> {
        let mut known = BTreeMap::new();
        for block in &window.blocks {
            if window.owners.get(&block.owner) == Some(&CodeLocation::Kernel) {
                let (_, name, _) = self.function(block);
                let owner = match name {
                    name if KSMD.contains(&name) => Owner::Ksmd,
                    name if IDLE.contains(&name) => Owner::Idle,
                    _ => continue,
                };
                known.insert(block.owner, owner);
            }
        }
        known
    }

    /// The owner of work in this code that an owner of the window did.
    fn owner(
        &self,
        window: &WindowCounts,
        kernel_tasks: &BTreeMap<usize, Owner>,
        (number, place): (usize, CodeLocation),
    ) -> Owner {
        let task = window.owners.get(&number).copied();
        match (
            task.unwrap_or(CodeLocation::User),
            place == CodeLocation::Kernel,
        ) {
            (CodeLocation::Kernel, _) => {
                *kernel_tasks.get(&number).unwrap_or(&Owner::KernelThreads)
            }
            (task, false) if self.is_daemon(task) => Owner::DaemonUser,
            (task, true) if self.is_daemon(task) => Owner::DaemonKernel,
            (_, false) => Owner::OtherUser,
            (_, true) => Owner::OtherKernel,
        }
    }

    /// Levels of accesses to data in a window, by owner.
    fn accesses(&self, window: &WindowCounts) -> BTreeMap<Owner, Accesses> {
        let kernel_tasks = self.kernel_tasks(window);
        let mut sums: BTreeMap<Owner, Accesses> = BTreeMap::new();
        for (&whose, &accesses) in &window.memory {
            let owner = self.owner(window, &kernel_tasks, whose);
            sums.entry(owner).or_default().add(accesses);
        }
        sums
    }

    /// The functions of a window, most instructions first.
    fn functions(&self, window: &WindowCounts) -> Vec<Function> {
        let kernel_tasks = self.kernel_tasks(window);
        let mut sums: BTreeMap<(Owner, &str, &str), Blocks> = BTreeMap::new();
        for block in &window.blocks {
            let (place, name, offset) = self.function(block);
            let owner = self.owner(window, &kernel_tasks, (block.owner, block.place));
            let blocks = sums.entry((owner, place, name)).or_default();
            *blocks.entry((offset, block.length)).or_default() += block.instructions;
        }
        let mut functions = Vec::new();
        for ((owner, place, name), blocks) in sums {
            functions.push(Function {
                owner,
                place: place.to_owned(),
                name: name.to_owned(),
                instructions: blocks.values().sum(),
                blocks: blocks
                    .into_iter()
                    .map(|((offset, length), sum)| (offset, length, sum))
                    .collect(),
            });
        }
        functions.sort_by_key(|function| std::cmp::Reverse(function.instructions));
        functions
    }

    /// Combines the reports of guest and emulator on the same runs.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn profile(&self, report: &Report, counts: &Counts) -> Result<Profile> {
        let mut runs = Vec::new();
        for variant in &report.variants {
            for window in &variant.windows {
                let window_counts = counts.windows.get(&window.number);
                let window_counts = window_counts.with_context(|| {
                    format!(
                        "the emulator saw no window {} ({} {})",
                        window.number, variant.name, variant.case
                    )
                })?;
                runs.push(run(
                    &variant.name,
                    &variant.case,
                    window,
                    (self.functions(window_counts), self.accesses(window_counts)),
                ));
            }
        }
        ensure!(!runs.is_empty(), "{}: no window", report.experiment);
        // The measuring and the measured program are at least two.
        let of = |block: &Block| block.owner;
        let is_told_apart = |window: &WindowCounts| {
            let first = window.blocks.first().map(of);
            window.blocks.iter().any(|block| Some(of(block)) != first)
        };
        ensure!(
            counts.windows.values().all(is_told_apart),
            "the emulator did not see how this kernel changes tasks: see vm/plugin/profile.c"
        );
        Ok(Profile {
            experiment: report.experiment.clone(),
            kernel: report.kernel.clone(),
            runs,
        })
    }
}

fn run(
    variant: &str,
    case: &str,
    window: &Window,
    (functions, accesses): (Vec<Function>, BTreeMap<Owner, Accesses>),
) -> ProfiledRun {
    ProfiledRun {
        variant: variant.to_owned(),
        case: case.to_owned(),
        reached: window.reached,
        saved_pages: window.saved_mib * MIB_PAGES as f64,
        clock: window.cpu_seconds * 1e9,
        functions,
        accesses,
    }
}

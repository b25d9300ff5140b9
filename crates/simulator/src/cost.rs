//! The costs of commands.
//!
//! # Problem
//! Budgets and efficiency are only meaningful at realistic costs, which differ between an emulated
//! guest and a processor.
//!
//! # Approach
//! Costs are read from a file that gives the source of each. Three files are built in: `emulated`,
//! which is the default, `native`, and `counted`, which `uksm-bench calibrate` writes.
//!
//! # Units
//! Nanoseconds; instructions in `counted`, whose guest counted one as a nanosecond.

use std::path::Path;

use serde::Deserialize;
use uksm_policy::command::Nanos;

/// The built-in files by name.
const BUILT_IN: [(&str, &str); 3] = [
    ("emulated", include_str!("../costs/emulated.toml")),
    ("native", include_str!("../costs/native.toml")),
    ("counted", include_str!("../costs/counted.toml")),
];

/// Limit of the cost of one part of a command.
const DEAREST: Nanos = 1_000_000_000;

/// Costs of the parts of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Starting the daemon, until its first command.
    pub start: Nanos,
    /// A call into the module.
    pub call: Nanos,
    /// A FOLD.
    pub fold: Nanos,
    /// A process list of a machine that searches for processes.
    pub list_processes: Nanos,
    /// A process list of a machine that receives process events.
    pub events: Nanos,
    /// Each process in it.
    pub process: Nanos,
    /// The size of a space.
    pub size: Nanos,
    /// A mapping list.
    pub list_mappings: Nanos,
    /// Each mapping in it.
    pub mapping: Nanos,
    /// A page sampled next to another.
    pub page: Nanos,
    /// The same for a page that is already merged.
    pub page_merged: Nanos,
    /// A run of samples: a page table to be found.
    pub run: Nanos,
    /// A line hashed.
    pub line: Nanos,
    /// A page merged with a frame.
    pub merge: Nanos,
    /// Two pages made a frame.
    pub pair: Nanos,
    /// A change of page table among pages to be merged.
    pub table: Nanos,
    /// A page checked and not merged.
    pub check: Nanos,
    /// A page whose contents differed: a false match.
    pub compare: Nanos,
    /// A frame listed.
    pub frame: Nanos,
    /// Waking from sleep.
    pub wake: Nanos,
    /// Delay of waking after the requested time. It costs no CPU.
    pub late: Nanos,
    /// A page written by a workload whose rate depends on this cost.
    pub write: Nanos,
    /// The additional cost of the first write to a merged page.
    pub unshare: Nanos,
    /// Emptying the per-CPU batches.
    pub drain: Nanos,
    /// The policy, a step.
    pub step: Nanos,
    /// The policy's part for each page sampled that is not merged.
    pub step_page: Nanos,
    /// The same for a page that is already merged.
    pub step_merged: Nanos,
    /// Its part for each run of pages sampled.
    pub step_run: Nanos,
    /// Its additional part for a page that is to make a frame with another: an outcome of FOLD.
    pub step_pair: Nanos,
    /// The same for a page that is to join a frame.
    pub step_join: Nanos,
    /// In-kernel KSM.
    pub ksm: KsmCosts,
}

/// Costs of in-kernel KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KsmCosts {
    /// Waking ksmd.
    pub wake: Nanos,
    /// Delay of waking after the requested time.
    pub late: Nanos,
    /// A page that is examined for the first time, beside its checksum.
    pub first: Nanos,
    /// A checksum of a page.
    pub checksum: Nanos,
    /// A comparison on the way down the unstable tree.
    pub tree_step: Nanos,
    /// A comparison on the way down the stable tree.
    pub stable_step: Nanos,
    /// A page merged with a frame.
    pub merge: Nanos,
    /// Two pages made a frame.
    pub pair: Nanos,
    /// A page passed: already merged, or left out of a scan.
    pub revisit: Nanos,
}

impl Costs {
    /// The names of the built-in files.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|&(name, _)| name)
    }

    /// The costs of a built-in file.
    #[must_use]
    pub fn named(name: &str) -> Option<Costs> {
        let (_, text) = BUILT_IN.iter().find(|&&(of, _)| of == name)?;
        Some(Costs::read(text).expect("the built-in files are right"))
    }

    /// The costs of a built-in file or of one at a path, and their name.
    ///
    /// # Errors
    /// There is no such file; it does not hold costs.
    pub fn named_or_in_file(name: &str) -> Result<(Costs, String), String> {
        if let Some(costs) = Costs::named(name) {
            return Ok((costs, name.to_owned()));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|error| {
            let built_in = Costs::built_in().collect::<Vec<_>>().join(", ");
            format!("{name}: neither a file nor one of {built_in}: {error}")
        })?;
        let costs = Costs::read(&text).map_err(|error| format!("{name}: {error}"))?;
        let stem = path.file_stem().unwrap_or_default();
        Ok((costs, stem.to_string_lossy().into_owned()))
    }

    /// Reads costs.
    ///
    /// # Errors
    /// The text is not TOML, or a cost is missing, unknown, or impossible.
    pub fn read(text: &str) -> Result<Costs, String> {
        let costs: Costs = toml::from_str(text).map_err(|error| error.to_string())?;
        // Time would stand still, or pass in one step.
        let parts = [
            ("start", costs.start, 0),
            ("call", costs.call, 1),
            ("fold", costs.fold, 1),
            ("list_processes", costs.list_processes, 1),
            ("events", costs.events, 1),
            ("process", costs.process, 0),
            ("size", costs.size, 0),
            ("list_mappings", costs.list_mappings, 1),
            ("mapping", costs.mapping, 0),
            ("page", costs.page, 0),
            ("page_merged", costs.page_merged, 0),
            ("run", costs.run, 0),
            ("line", costs.line, 0),
            ("merge", costs.merge, 0),
            ("pair", costs.pair, 0),
            ("table", costs.table, 0),
            ("check", costs.check, 0),
            ("compare", costs.compare, 0),
            ("frame", costs.frame, 0),
            ("wake", costs.wake, 1),
            ("late", costs.late, 0),
            ("write", costs.write, 0),
            ("unshare", costs.unshare, 0),
            ("drain", costs.drain, 0),
            ("step", costs.step, 1),
            ("step_page", costs.step_page, 0),
            ("step_merged", costs.step_merged, 0),
            ("step_run", costs.step_run, 0),
            ("step_pair", costs.step_pair, 0),
            ("step_join", costs.step_join, 0),
            ("ksm.wake", costs.ksm.wake, 1),
            ("ksm.late", costs.ksm.late, 0),
            ("ksm.first", costs.ksm.first, 0),
            ("ksm.checksum", costs.ksm.checksum, 1),
            ("ksm.tree_step", costs.ksm.tree_step, 0),
            ("ksm.stable_step", costs.ksm.stable_step, 0),
            ("ksm.merge", costs.ksm.merge, 0),
            ("ksm.pair", costs.ksm.pair, 0),
            ("ksm.revisit", costs.ksm.revisit, 1),
        ];
        for (name, cost, least) in parts {
            if cost < least || cost > DEAREST {
                return Err(format!(
                    "{name} = {cost}: must be {least} to {DEAREST} nanoseconds"
                ));
            }
        }
        Ok(costs)
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs::named("emulated").expect("it is built in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_built_in_file_can_be_read() {
        for name in Costs::built_in() {
            assert!(Costs::named(name).is_some());
        }
        assert_eq!(Costs::default().merge, 4600);
        assert_eq!(Costs::named("vax"), None);
    }

    #[test]
    fn broken_files_are_refused_and_the_error_names_the_fault() {
        let good = BUILT_IN[0].1;
        let broken = [
            ("call = 50000", "call = 0", "call = 0"),
            ("call = 50000", "call = -5", "call"),
            ("call = 50000", "call = 'much'", "call"),
            ("call = 50000", "", "missing field `call`"),
            ("call = 50000", "call = 50000\ncal = 1", "cal"),
            ("call = 50000", "call = 2000000000", "call = 2000000000"),
            ("[ksm]", "[kms]", "kms"),
            ("call = 50000", "call = ", "TOML parse error at line"),
        ];
        for (from, to, names) in broken {
            let error = Costs::read(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(names), "{to}: {error}");
        }
    }
}

//! What commands cost.
//!
//! Budgets and efficiency only mean something at realistic costs: these are of the size measured in
//! an emulated guest, one for each part of a call.

use uksm_policy::command::Nanos;

/// Costs of the parts of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A call into the module.
    pub call: Nanos,
    /// A process list.
    pub list_processes: Nanos,
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
    /// A run of samples: a page table to be found.
    pub run: Nanos,
    /// A line hashed.
    pub line: Nanos,
    /// A page merged.
    pub merge: Nanos,
    /// A change of page table among pages to be merged.
    pub table: Nanos,
    /// A page checked and not merged.
    pub check: Nanos,
    /// A page whose contents differed after all: a false match.
    pub compare: Nanos,
    /// A frame listed.
    pub frame: Nanos,
    /// Waking from sleep.
    pub wake: Nanos,
    /// Emptying the per-CPU batches.
    pub drain: Nanos,
    /// The policy, a step and a page.
    pub step: Nanos,
    /// The policy's part for each page of an answer.
    pub step_page: Nanos,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            call: 50_000,
            list_processes: 100_000,
            process: 2_000,
            size: 150,
            list_mappings: 80_000,
            mapping: 700,
            page: 200,
            run: 700,
            line: 20,
            merge: 4_600,
            table: 3_000,
            check: 300,
            compare: 1_000,
            frame: 350,
            wake: 60_000,
            drain: 200_000,
            step: 3_000,
            step_page: 150,
        }
    }
}

//! Instructions of each run by owner and function, as `results/NAME.profile.json` has them.

use super::hierarchy::{Accesses, Instructions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The profile of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// Its name.
    pub experiment: String,
    /// Kernel release of the guest.
    pub kernel: String,
    /// One for each run of each variant and case.
    pub runs: Vec<Run>,
}

/// One run, from its start to 95 % of what can be merged, or to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// The variant.
    pub variant: String,
    /// Its case.
    pub case: String,
    /// Whether 95 % were reached.
    pub reached: bool,
    /// Pages saved when it ended.
    pub saved_pages: f64,
    /// What the scheduler's clock charged the system under test with: instructions, too.
    pub clock: f64,
    /// By owner and function, most instructions first.
    pub functions: Vec<Function>,
    /// Where accesses to data ended, by owner, if caches were modelled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accesses: BTreeMap<Owner, Accesses>,
}

/// Who executed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Owner {
    /// The daemon's own code.
    DaemonUser,
    /// The kernel and the module for the daemon.
    DaemonKernel,
    /// In-kernel KSM's thread.
    Ksmd,
    /// Other programs, such as the workload, and whoever measures.
    OtherUser,
    /// The kernel for them.
    OtherKernel,
    /// Other threads of the kernel.
    KernelThreads,
    /// The idle task.
    Idle,
}

/// A function, as far as one owner executed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Function {
    /// For whom.
    pub owner: Owner,
    /// `kernel`, a module's name in brackets, a program's name, or `user` for code of no known
    /// program.
    pub place: String,
    /// Its name.
    pub name: String,
    /// Executed in it, without what it calls.
    pub instructions: u64,
    /// Its blocks: where each begins, in bytes from the function's start, how many instructions it
    /// has, and how many were executed in it in all.
    pub blocks: Vec<(u64, u64, u64)>,
}

impl Owner {
    /// All, as they are shown.
    pub(super) const ALL: [Owner; 7] = [
        Owner::DaemonUser,
        Owner::DaemonKernel,
        Owner::Ksmd,
        Owner::OtherUser,
        Owner::OtherKernel,
        Owner::KernelThreads,
        Owner::Idle,
    ];

    /// What it is called in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Owner::DaemonUser => "daemon, its own code",
            Owner::DaemonKernel => "daemon, in the kernel",
            Owner::Ksmd => "ksmd",
            Owner::OtherUser => "other programs, their code",
            Owner::OtherKernel => "other programs, in the kernel",
            Owner::KernelThreads => "other kernel threads",
            Owner::Idle => "idle",
        }
    }

    /// Whether it belongs to the system under test.
    pub(super) fn is_measured(self) -> bool {
        matches!(self, Owner::DaemonUser | Owner::DaemonKernel | Owner::Ksmd)
    }
}

impl Run {
    /// Instructions of the functions that are wanted.
    pub(super) fn sum(&self, wanted: impl Fn(&Function) -> bool) -> u64 {
        let wanted = self.functions.iter().filter(|function| wanted(function));
        wanted.map(|function| function.instructions).sum()
    }

    /// Instructions of these owners, as a processor sees them.
    pub(super) fn instructions(&self, wanted: impl Fn(Owner) -> bool) -> Instructions {
        let mut sum = Instructions::default();
        for function in self.functions.iter().filter(|f| wanted(f.owner)) {
            sum.add(Instructions::of(&function.name, function.instructions));
        }
        sum
    }

    /// What the system under test would take of a processor, where memory has this latency, in
    /// nanoseconds; none if caches were not modelled.
    pub(super) fn modelled_time(&self, latency: f64) -> Option<f64> {
        let mut accesses = Accesses::default();
        let own = self
            .accesses
            .iter()
            .filter(|(owner, _)| owner.is_measured());
        own.for_each(|(_, more)| accesses.add(*more));
        let instructions = self.instructions(Owner::is_measured);
        (!self.accesses.is_empty()).then(|| accesses.time(instructions, latency))
    }
}

impl Profile {
    /// The median run by the scheduler's clock of each variant and case, in their order.
    pub(super) fn medians(&self) -> Vec<&Run> {
        let mut groups: Vec<Vec<&Run>> = Vec::new();
        for run in &self.runs {
            let same = |group: &&mut Vec<&Run>| {
                group[0].variant == run.variant && group[0].case == run.case
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(run),
                None => groups.push(vec![run]),
            }
        }
        for group in &mut groups {
            group.sort_by(|a, b| a.clock.total_cmp(&b.clock));
        }
        let middle = |group: &Vec<_>| (group.len() - 1) / 2;
        groups.iter().map(|group| group[middle(group)]).collect()
    }
}

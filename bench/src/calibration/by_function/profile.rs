//! Instructions of each run by owner and function, as `results/NAME.profile.json` has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::hierarchy::{Accesses, Instructions};

/// The profile of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// Its name.
    pub experiment: String,
    /// Kernel release of the guest.
    pub kernel: String,
    /// One for each run of each variant and case.
    pub runs: Vec<ProfiledRun>,
}

/// One run, from its start to 95 % of what can be merged, or to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ProfiledRun {
    /// The variant.
    pub variant: String,
    /// Its case.
    pub case: String,
    /// Whether 95 % were reached.
    pub reached: bool,
    /// Pages saved when it ended.
    pub saved_pages: f64,
    /// The scheduler's charge of the system under test: instructions, too.
    pub clock: f64,
    /// Functions by owner, most instructions first.
    pub functions: Vec<Function>,
    /// Levels of accesses to data, by owner, if caches were modelled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accesses: BTreeMap<Owner, Accesses>,
}

/// The owner of executed code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Owner {
    /// The daemon's own code.
    DaemonUser,
    /// The kernel and the module for the daemon.
    DaemonKernel,
    /// In-kernel KSM's thread.
    Ksmd,
    /// Other programs, such as the workload, and the measuring one.
    OtherUser,
    /// The kernel for other programs.
    OtherKernel,
    /// Other threads of the kernel.
    KernelThreads,
    /// The idle task.
    Idle,
}

/// A function, as executed by one owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Function {
    /// The owner.
    pub owner: Owner,
    /// `kernel`, a module's name in brackets, a program's name, or `user` for code of no known
    /// program.
    pub place: String,
    /// Its name.
    pub name: String,
    /// Instructions executed in it, without its callees.
    pub instructions: u64,
    /// Its blocks: the offset of each in bytes from the function's start, its length in
    /// instructions, and all instructions executed in it.
    pub blocks: Vec<(u64, u64, u64)>,
}

impl Owner {
    /// All, in the order of tables.
    pub(super) const ALL: [Owner; 7] = [
        Owner::DaemonUser,
        Owner::DaemonKernel,
        Owner::Ksmd,
        Owner::OtherUser,
        Owner::OtherKernel,
        Owner::KernelThreads,
        Owner::Idle,
    ];

    /// Its name in tables.
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

impl ProfiledRun {
    /// Instructions of the functions that `wanted` selects.
    pub(super) fn sum(&self, wanted: impl Fn(&Function) -> bool) -> u64 {
        let wanted = self.functions.iter().filter(|function| wanted(function));
        wanted.map(|function| function.instructions).sum()
    }

    /// Instructions of these owners, by their speed on a processor.
    pub(super) fn instructions(&self, wanted: impl Fn(Owner) -> bool) -> Instructions {
        let mut sum = Instructions::default();
        for function in self.functions.iter().filter(|f| wanted(f.owner)) {
            sum.add(Instructions::of(&function.name, function.instructions));
        }
        sum
    }

    /// Modelled processor time of the system under test at this latency of memory, in nanoseconds;
    /// none if caches were not modelled.
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
    pub(super) fn medians(&self) -> Vec<&ProfiledRun> {
        let mut groups: Vec<Vec<&ProfiledRun>> = Vec::new();
        for run in &self.runs {
            let same = |group: &&mut Vec<&ProfiledRun>| {
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

//! The cases of experiments: a workload, its goal, and the variants that are compared.

use uksm_policy::command::Nanos;
use uksm_policy::params::Governor;

use crate::Workload;
use crate::peer::{Advisor, KsmSettings, XlhSettings};

/// Pages in a MiB.
pub(super) const MIB: u64 = 256;

/// One workload and its goal.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) workloads: Box<dyn Fn() -> Vec<Box<dyn Workload>> + Send + Sync>,
    pub(super) variants: Vec<Variant>,
    /// Arrival of the processes of the goal, if not at the start.
    pub(super) arrival: Option<Nanos>,
    /// Time at which all pages of the goal are there; measured from then on.
    pub(super) begin: Nanos,
    /// Longest time to the goal after that.
    pub(super) limit: Nanos,
    /// The goal: the share of the mergeable pages that must be merged, in percent; if none, the
    /// whole time is measured.
    pub(super) percent: Option<u64>,
    /// Longest time for the remaining pages after the goal.
    pub(super) after: Nanos,
    /// Where a mean over time counts: its beginning.
    pub(super) warm_up: Option<Nanos>,
    /// Whether chances to share are counted.
    pub(super) chances: bool,
    /// Share of the pages of an index that change before it is searched, in percent.
    pub(super) changed_percent: u64,
}

impl Case {
    /// A workload without anything to wait for.
    pub(super) fn new(
        name: String,
        workloads: impl Fn() -> Vec<Box<dyn Workload>> + Send + Sync + 'static,
    ) -> Case {
        Case {
            name,
            workloads: Box::new(workloads),
            variants: vec![],
            arrival: None,
            begin: 0,
            limit: 0,
            percent: None,
            after: 0,
            warm_up: None,
            chances: false,
            changed_percent: 0,
        }
    }
}

/// A deduplicator with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Uksm(Governor),
    /// The full governor with parameters of its own.
    Set(&'static str, &'static [(&'static str, &'static str)]),
    Ksm(&'static str, KsmSettings),
    /// KSM whose unstable tree is a real one.
    KsmTree(&'static str, KsmSettings),
    /// KSM advised by I/O, as published.
    Xlh(&'static str, XlhSettings),
    /// All that can be merged, at each moment.
    Oracle,
    /// An index of pages, without a host.
    Indexed(Indexed),
}

/// KSM without sleep.
pub(super) const KSM_UNLIMITED: Variant = Variant::Ksm(
    "ksm-unlimited",
    KsmSettings {
        pages_to_scan: 1000,
        sleep: 0,
        smart_scan: true,
        advisor: false,
        cap_percent: None,
    },
);
/// KSM with the kernel's defaults.
pub(super) const KSM_SHIPPED: Variant = Variant::Ksm(
    "ksm-shipped",
    KsmSettings {
        pages_to_scan: 100,
        sleep: 20_000_000,
        smart_scan: true,
        advisor: false,
        cap_percent: None,
    },
);
/// KSM, ten times the kernel's defaults.
pub(super) const KSM_1000: Variant = Variant::Ksm(
    "ksm-1000",
    KsmSettings {
        pages_to_scan: 1000,
        sleep: 20_000_000,
        smart_scan: true,
        advisor: false,
        cap_percent: None,
    },
);
/// KSM with the scan-time advisor.
pub(super) const KSM_ADVISOR: Variant = Variant::Ksm(
    "ksm-advisor",
    KsmSettings {
        pages_to_scan: Advisor::FIRST_PAGES,
        sleep: 20_000_000,
        smart_scan: true,
        advisor: true,
        cap_percent: None,
    },
);

impl Variant {
    pub(super) fn name(self) -> String {
        match self {
            Variant::Uksm(governor) => format!("uksm-{}", governor.name()),
            Variant::Set(name, _)
            | Variant::Ksm(name, _)
            | Variant::KsmTree(name, _)
            | Variant::Xlh(name, _) => name.to_owned(),
            Variant::Oracle => "oracle".to_owned(),
            Variant::Indexed(what) => what.name().to_owned(),
        }
    }
}

/// The indexes of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexed {
    /// KSM's unstable tree.
    Tree,
    /// The same with XLH's remedy: a written page is removed.
    ReadOnlyTree,
    /// uksm's index of unmerged pages.
    Index,
}

impl Indexed {
    /// All of them.
    pub(super) const ALL: [Indexed; 3] = [Indexed::Tree, Indexed::ReadOnlyTree, Indexed::Index];

    /// The name of the variant.
    pub(super) fn name(self) -> &'static str {
        match self {
            Indexed::Tree => "unstable-tree",
            Indexed::ReadOnlyTree => "read-only-tree",
            Indexed::Index => "uksm-index",
        }
    }
}

//! The compared settings of KSM and uksm, and the memory that appears.

use std::fmt;

use uksm_linux::ksm::sysfs::ScanRate;

use crate::units::MIB_PAGES;
use crate::variants::ksm::Settings;
use crate::workload::{Behaviour, Contents, Part, Spec};

/// Family of the contents of clones.
const CLONED: u64 = 3;

/// A way to drive ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KsmdDriver {
    Shipped,
    Thousand,
    Advisor,
    Unlimited,
    Uksm,
}

pub(super) const VARIANTS: [KsmdDriver; 5] = [
    KsmdDriver::Uksm,
    KsmdDriver::Unlimited,
    KsmdDriver::Thousand,
    KsmdDriver::Shipped,
    KsmdDriver::Advisor,
];

/// The memory that appears.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) layout: MemoryLayout,
}

/// The positions of the memory, in MiB. ksmd walks addresses upwards.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemoryLayout {
    Mixed {
        identical: usize,
        random: usize,
        random_first: bool,
    },
    /// The same distinct pages twice: no page can be left out.
    Clones { each: usize },
}

const fn mixed(
    name: &'static str,
    identical: usize,
    random: usize,
    random_first: bool,
) -> Workload {
    let layout = MemoryLayout::Mixed {
        identical,
        random,
        random_first,
    };
    Workload { name, layout }
}

pub(super) const WORKLOADS: [Workload; 5] = [
    mixed("static-mixed", 128, 128, true),
    mixed("static-mixed-identical-first", 128, 128, false),
    mixed("sparse-majority", 64, 448, true),
    mixed("sparse-majority-identical-first", 64, 448, false),
    Workload {
        name: "clone",
        layout: MemoryLayout::Clones { each: 64 },
    },
];

impl Workload {
    pub(super) fn spec(self, seed: u64) -> Spec {
        let mut spec = match self.layout {
            MemoryLayout::Mixed {
                identical,
                random,
                random_first,
            } => Spec::mixed(seed, identical, random, random_first),
            MemoryLayout::Clones { each } => Spec {
                seed,
                parts: vec![Part::still(Contents::Distinct, CLONED, each); 2],
                huge: false,
                mergeable: false,
            },
        };
        for part in &mut spec.parts {
            *part = part.with(Behaviour::Appears);
        }
        spec
    }

    /// Pages that can be saved.
    pub(super) fn possible(self) -> usize {
        match self.layout {
            MemoryLayout::Mixed { identical, .. } => identical * MIB_PAGES - 1,
            MemoryLayout::Clones { each } => each * MIB_PAGES,
        }
    }
}

impl fmt::Display for MemoryLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MemoryLayout::Mixed {
                identical,
                random,
                random_first: true,
            } => write!(f, "{random} MiB random, then {identical} MiB identical"),
            MemoryLayout::Mixed {
                identical, random, ..
            } => write!(f, "{identical} MiB identical, then {random} MiB random"),
            MemoryLayout::Clones { each } => write!(f, "{each} MiB of distinct pages twice"),
        }
    }
}

impl KsmdDriver {
    pub(super) fn name(self) -> &'static str {
        match self {
            KsmdDriver::Shipped => "ksm-shipped",
            KsmdDriver::Thousand => "ksm-1000",
            KsmdDriver::Advisor => "ksm-advisor",
            KsmdDriver::Unlimited => "ksm-unlimited",
            KsmdDriver::Uksm => "uksm",
        }
    }

    /// KSM's settings; none if uksm makes them.
    pub(super) fn settings(self) -> Option<Settings> {
        Some(match self {
            KsmdDriver::Shipped => Settings::at(ScanRate::SHIPPED),
            KsmdDriver::Thousand => Settings::at(ScanRate::THOUSAND),
            KsmdDriver::Advisor => Settings::advisor(),
            KsmdDriver::Unlimited => Settings::at(ScanRate::UNLIMITED),
            KsmdDriver::Uksm => return None,
        })
    }
}

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
pub(super) enum Variant {
    Shipped,
    Thousand,
    Advisor,
    Unlimited,
    Uksm,
}

pub(super) const VARIANTS: [Variant; 5] = [
    Variant::Uksm,
    Variant::Unlimited,
    Variant::Thousand,
    Variant::Shipped,
    Variant::Advisor,
];

/// The memory that appears.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) layout: Layout,
}

/// The positions of the memory, in MiB. ksmd walks addresses upwards.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
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
    let layout = Layout::Mixed {
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
        layout: Layout::Clones { each: 64 },
    },
];

impl Workload {
    pub(super) fn spec(self, seed: u64) -> Spec {
        let mut spec = match self.layout {
            Layout::Mixed {
                identical,
                random,
                random_first,
            } => Spec::mixed(seed, identical, random, random_first),
            Layout::Clones { each } => Spec {
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
            Layout::Mixed { identical, .. } => identical * MIB_PAGES - 1,
            Layout::Clones { each } => each * MIB_PAGES,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Layout::Mixed {
                identical,
                random,
                random_first: true,
            } => write!(f, "{random} MiB random, then {identical} MiB identical"),
            Layout::Mixed {
                identical, random, ..
            } => write!(f, "{identical} MiB identical, then {random} MiB random"),
            Layout::Clones { each } => write!(f, "{each} MiB of distinct pages twice"),
        }
    }
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Shipped => "ksm-shipped",
            Variant::Thousand => "ksm-1000",
            Variant::Advisor => "ksm-advisor",
            Variant::Unlimited => "ksm-unlimited",
            Variant::Uksm => "uksm",
        }
    }

    /// KSM's settings; none if uksm makes them.
    pub(super) fn settings(self) -> Option<Settings> {
        Some(match self {
            Variant::Shipped => Settings::at(ScanRate::SHIPPED),
            Variant::Thousand => Settings::at(ScanRate::THOUSAND),
            Variant::Advisor => Settings::advisor(),
            Variant::Unlimited => Settings::at(ScanRate::UNLIMITED),
            Variant::Uksm => return None,
        })
    }
}

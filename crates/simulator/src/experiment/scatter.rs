//! Two and eight processes of which a share of the pages is equal, in each layout.

use std::str::FromStr;

use uksm_policy::params::Governor;

use super::case::{Case, KSM_UNLIMITED, MIB, Variant};
use crate::layout::{Arrangement, Layout};
use crate::workload::{SECOND, Scatter};

/// Pages of each process.
const PAGES: u64 = 256 * MIB;

/// The deduplicators.
const VARIANTS: [Variant; 2] = [Variant::Uksm(Governor::Full), KSM_UNLIMITED];

pub(super) fn cases(seed: u64) -> Vec<Case> {
    let mut cases = vec![];
    for (place, name) in [
        (Arrangement::Same, "same"),
        (Arrangement::Singly, "singly"),
        (Arrangement::GuestRuns, "guest runs"),
    ] {
        for percent in [40, 20, 10, 5, 2, 100] {
            cases.push(case(2, percent, place, name, 0, seed));
        }
    }
    cases.push(case(2, 45, Arrangement::Runs(64), "runs of 64", 0, seed));
    for (percent, place, name) in [
        (5, Arrangement::Same, "same"),
        (20, Arrangement::Singly, "singly"),
        (45, Arrangement::GuestRuns, "guest runs"),
    ] {
        cases.push(case(8, percent, place, name, 0, seed));
        cases.push(case(2, percent, place, name, 60, seed));
    }
    cases
}

/// Limit of the memory of a workload, in MiB: 1 TiB.
const MAX_MIB: u64 = 1 << 20;

/// A layout from the command line: `PROCESSES,MIB,PERCENT,PLACE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Custom {
    processes: u64,
    mib: u64,
    percent: u64,
    place: Arrangement,
}

impl FromStr for Custom {
    type Err = String;

    fn from_str(text: &str) -> Result<Custom, String> {
        let [processes, mib, percent, place] = text.split(',').collect::<Vec<_>>()[..] else {
            return Err(format!("'{text}' is not PROCESSES,MIB,PERCENT,PLACE"));
        };
        let number = |text: &str, what: &str, most: u64| {
            let value = text.parse().ok().filter(|value| (1..=most).contains(value));
            value.ok_or_else(|| format!("{what} '{text}': must be a number from 1 to {most}"))
        };
        let custom = Custom {
            processes: number(processes, "processes", 100_000)?,
            mib: number(mib, "MiB of a process", MAX_MIB)?,
            percent: number(percent, "percent of equal pages", 100)?,
            place: place.parse()?,
        };
        let all = custom.processes * custom.mib;
        if all > MAX_MIB {
            return Err(format!(
                "{all} MiB in all: at most {MAX_MIB} can be simulated"
            ));
        }
        Ok(custom)
    }
}

/// The one case of such a layout.
pub(super) fn custom(custom: Custom, seed: u64) -> Case {
    let scatter = Scatter {
        processes: custom.processes,
        layout: Layout {
            pages: custom.mib * MIB,
            percent: custom.percent,
            place: custom.place,
            pool: 1,
            seed,
        },
        begin: 0,
    };
    let name = format!(
        "{} x {} MiB, {} % {:?}",
        custom.processes, custom.mib, custom.percent, custom.place
    );
    Case {
        variants: VARIANTS.into(),
        limit: 60 * SECOND + custom.processes * custom.mib * SECOND / 64,
        percent: Some(95),
        ..Case::new(name, move || vec![Box::new(scatter.clone())])
    }
}

fn case(
    processes: u64,
    percent: u64,
    place: Arrangement,
    name: &str,
    calm: u64,
    seed: u64,
) -> Case {
    let scatter = Scatter {
        processes,
        layout: Layout {
            pages: PAGES,
            percent,
            place,
            pool: 1,
            seed,
        },
        begin: calm * SECOND,
    };
    let mut name = format!("{percent} % {name}");
    if processes != 2 {
        name += &format!(", {processes} processes");
    }
    if calm > 0 {
        name += ", after calm";
    }
    Case {
        variants: VARIANTS.into(),
        begin: calm * SECOND,
        limit: 60 * SECOND,
        percent: Some(95),
        ..Case::new(name, move || vec![Box::new(scatter.clone())])
    }
}

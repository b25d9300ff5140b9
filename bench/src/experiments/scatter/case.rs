//! A case of scatter, by its name.
//!
//! `SHARE-PLACE[-xPROCESSES][-calm|-filled]`, as in `5-same`, `45-runs64`, `20-runs-x8-calm`:
//!
//! | part | means |
//! |---|---|
//! | `SHARE` | equal pages, in percent of all |
//! | `same` | scattered singly, at the same offsets in all processes |
//! | `shuffled` | scattered singly, at other offsets in each |
//! | `runs` | in runs as long as those of guests, at other offsets in each |
//! | `runsN` | in runs of N pages, at other offsets in each |
//! | `xPROCESSES` | this many processes instead of two |
//! | `calm` | the processes start after the system has had nothing to do |
//! | `filled` | the processes fill after it what they mapped before it |

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

use crate::experiments::newcomers::Newcomers;
use crate::workload::{Arrangement, Contents, Layout, Part, Spec};

/// The family of all pages.
const FAMILY: u64 = 9;

/// Limit of the processes.
const MAX_PROCESSES: u64 = 64;

/// The parts of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScatterCase {
    /// Equal pages in percent of all, 1 to 100.
    pub share: usize,
    /// Their positions.
    pub place: Arrangement,
    /// The number of processes that have them, two or more.
    pub processes: u64,
    /// Whether they come after a time of calm, and in which way.
    pub newcomers: Option<Newcomers>,
}

impl ScatterCase {
    /// Its processes, each of this size.
    pub(super) fn specs(&self, seed: u64, mib: usize) -> Vec<Spec> {
        (0..self.processes)
            .map(|process| {
                let layout = Layout {
                    process,
                    equal_percent: self.share,
                    place: self.place,
                };
                Spec {
                    seed,
                    parts: vec![Part::still(Contents::Scattered(layout), FAMILY, mib)],
                    huge: false,
                    mergeable: false,
                }
            })
            .collect()
    }
}

impl fmt::Display for ScatterCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.share)?;
        match self.place {
            Arrangement::Same => write!(f, "same"),
            Arrangement::Shuffled => write!(f, "shuffled"),
            Arrangement::Runs(length) => write!(f, "runs{length}"),
            Arrangement::GuestRuns => write!(f, "runs"),
        }?;
        if self.processes != 2 {
            write!(f, "-x{}", self.processes)?;
        }
        match self.newcomers {
            None => Ok(()),
            Some(Newcomers::Started) => write!(f, "-calm"),
            Some(Newcomers::Filled) => write!(f, "-filled"),
        }
    }
}

impl FromStr for ScatterCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<ScatterCase> {
        parse(name).with_context(|| {
            format!(
                "case '{name}': not of the form SHARE-PLACE[-xPROCESSES][-calm|-filled], as in \
                 5-same, 20-shuffled-x8, 10-runs-calm, 45-runs64-filled"
            )
        })
    }
}

fn parse(name: &str) -> Result<ScatterCase> {
    let mut words = name.split('-');
    let share = words.next().unwrap_or_default();
    let share = share.parse().ok().filter(|share| (1..=100).contains(share));
    let place = match words.next().context("no place")? {
        "same" => Arrangement::Same,
        "shuffled" => Arrangement::Shuffled,
        "runs" => Arrangement::GuestRuns,
        other => {
            let length = other.strip_prefix("runs").and_then(|n| n.parse().ok());
            let length = length.filter(|&length| length > 0);
            Arrangement::Runs(length.with_context(|| format!("no place '{other}'"))?)
        }
    };
    let mut case = ScatterCase {
        share: share.context("the share is not 1 to 100")?,
        place,
        processes: 2,
        newcomers: None,
    };
    let mut words = words.peekable();
    if let Some(count) = words.peek().and_then(|word| word.strip_prefix('x')) {
        let count = count
            .parse()
            .ok()
            .filter(|n| (2..=MAX_PROCESSES).contains(n));
        case.processes =
            count.with_context(|| format!("the processes are not 2 to {MAX_PROCESSES}"))?;
        words.next();
    }
    case.newcomers = match words.next() {
        None => None,
        Some("calm") => Some(Newcomers::Started),
        Some("filled") => Some(Newcomers::Filled),
        Some(other) => bail!("'{other}' means nothing here"),
    };
    match words.next() {
        None => Ok(case),
        Some(other) => bail!("'{other}' means nothing here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::mergeable_mib;

    #[test]
    fn a_case_is_named_as_it_is_read() {
        for name in [
            "5-same",
            "100-shuffled",
            "45-runs64",
            "20-runs-x8",
            "2-runs-calm",
            "10-runs1-x3-filled",
        ] {
            assert_eq!(name.parse::<ScatterCase>().unwrap().to_string(), name);
        }
        let case: ScatterCase = "45-runs64-x8-filled".parse().unwrap();
        assert_eq!((case.share, case.processes), (45, 8));
        assert_eq!(case.place, Arrangement::Runs(64));
        assert_eq!(case.newcomers, Some(Newcomers::Filled));
    }

    #[test]
    fn what_is_no_case_is_named_in_the_error() {
        for (name, why) in [
            ("", "no place"),
            ("5", "no place"),
            ("0-same", "not 1 to 100"),
            ("101-same", "not 1 to 100"),
            ("5-near", "no place 'near'"),
            ("5-runs0", "no place 'runs0'"),
            ("5-same-x1", "not 2 to 64"),
            ("5-same-x65", "not 2 to 64"),
            ("5-same-soon", "'soon'"),
            ("5-same-calm-x8", "'x8'"),
        ] {
            let error = format!("{:#}", name.parse::<ScatterCase>().unwrap_err());
            assert!(error.contains(&format!("'{name}'")), "{error}");
            assert!(error.contains(why), "{error}");
            assert!(error.contains("SHARE-PLACE"), "{error}");
        }
    }

    #[test]
    fn what_can_be_saved_is_the_share_in_all_processes_but_one() {
        for (name, saved) in [("25-same", 1.0), ("50-runs", 2.0), ("50-shuffled-x4", 6.0)] {
            let case: ScatterCase = name.parse().unwrap();
            assert_eq!(mergeable_mib(&case.specs(3, 4)).unwrap(), saved, "{name}");
        }
    }
}

//! Workloads: processes with planned contents, to be merged and to check themselves afterwards.
//!
//! # Problem
//! Variants are compared on equal memory, so each needs a fresh process with the same contents, and
//! every one must prove that no byte of it changed.
//!
//! # Approach
//! A workload is a [`Spec`]; `uksm-bench workload SPEC` is a child that maps it and then obeys
//! one-line commands on its standard input (see [`child`]). [`Process`] is its parent side.
//!
//! # Source
//! UKSM §8.1.1–8.1.3.

pub(crate) mod busy;
pub(crate) mod child;
mod crowd;
mod idle_program;
mod layout;
pub(crate) mod mapping;
mod process;
pub(crate) mod protocol;
mod sharers;

pub(crate) use crowd::{Crowd, Storm, Wind};
pub(crate) use layout::{Arrangement, Layout};
pub(crate) use process::Process;
pub(crate) use sharers::Sharers;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::contents::{self, PAGE};
use crate::trace::{PageContent, TRACES};
use crate::units::{MIB_PAGES, mib};

/// The contents of the pages of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// All the same page.
    Identical,
    /// Every page different, and equal to the page of the same number in any other part with the
    /// same family.
    Distinct,
    /// As [`Contents::Distinct`], but all pages of all families are alike in all lines but one.
    Similar(OwnLine),
    /// Some pages equal to pages of the other processes with the same family, scattered.
    Scattered(Layout),
    /// Contents with few copies and many, in all processes.
    Sharers(Sharers),
    /// All zero bytes.
    Zero,
    /// Contents of a mapping of a trace.
    Captured(Moment),
}

/// The line in which a page differs from all similar ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnLine {
    /// The last one.
    Last,
    /// A line drawn for each page.
    Any,
}

/// The common contents of all similar pages: a family that no part has.
const SIMILAR: u64 = 1 << 43;

impl OwnLine {
    /// The own line of the page with this key.
    fn of(self, key: u64) -> usize {
        let lines = PAGE / 64;
        match self {
            OwnLine::Last => lines - 1,
            OwnLine::Any => usize::try_from(key % lines as u64).unwrap_or_default(),
        }
    }
}

/// A mapping of a trace at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Index of the trace.
    pub trace: usize,
    /// Index of the mapping, counted through all processes.
    pub mapping: usize,
    /// Index of the moment.
    pub at: usize,
    /// Index of the last moment.
    pub last: usize,
    /// Pages from a multiple of 2 MiB to the first one of the mapping.
    pub phase: usize,
}

/// The numbers of a part's pages: pages are equal if family and number are.
#[derive(Debug)]
pub(crate) enum PageNumbers {
    /// All the same.
    One(PageContent),
    /// In the order of the pages.
    Ascending,
    /// By plan.
    Planned(Vec<u64>),
    /// As captured.
    Captured(Vec<Option<PageContent>>),
}

impl PageNumbers {
    /// The content of a page; none if there is to be no page.
    pub(crate) fn of(&self, index: usize) -> Option<PageContent> {
        let full = |number| PageContent {
            number,
            zero_lines: 0,
        };
        match self {
            PageNumbers::One(held) => Some(*held),
            PageNumbers::Ascending => Some(full(index as u64)),
            PageNumbers::Planned(numbers) => Some(full(numbers[index])),
            PageNumbers::Captured(pages) => pages[index],
        }
    }
}

/// The order of rewriting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The page behind the last one, from the start to the end and again.
    InTurn,
    /// A page drawn from all.
    Random,
}

/// The behaviour of a part after it was filled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Behaviour {
    /// Nothing.
    Still,
    /// Waits for the command `appear` before it is filled.
    Appears,
    /// The paper's loop (UKSM §8.1.2): writes `pages_per_step` pages without changing them, a step
    /// every `step_ms` milliseconds.
    Rewritten {
        /// The order of pages; the paper's loop writes them in turn.
        order: Order,
        /// Pages written a step; the paper's value is 1.
        pages_per_step: usize,
        /// Length of a step; the paper's value is 10.
        step_ms: u64,
    },
    /// Maps, fills, waits, unmaps, waits, and again (UKSM §8.1.3).
    ShortLived {
        /// T: length of each of the two waits.
        wait_ms: u64,
    },
    /// Takes the contents of the next captured moment, `every_ms` after the last one, until there
    /// is none.
    Replayed {
        /// Time between two moments.
        every_ms: u64,
    },
}

/// One part of a workload: a mapping of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Its contents.
    pub contents: Contents,
    /// Family of the contents: parts of different families share no page.
    pub family: u64,
    /// Number of pages.
    pub pages: usize,
    /// Its behaviour.
    pub behaviour: Behaviour,
}

impl Part {
    /// A part that never changes.
    pub(crate) fn still(contents: Contents, family: u64, mib: usize) -> Part {
        Part {
            contents,
            family,
            pages: mib * MIB_PAGES,
            behaviour: Behaviour::Still,
        }
    }

    /// The same part with a behaviour.
    pub(crate) fn with(self, behaviour: Behaviour) -> Part {
        Part { behaviour, ..self }
    }

    /// The numbers of its pages.
    ///
    /// # Errors
    /// They cannot be laid out as configured.
    pub(crate) fn numbers(&self, seed: u64) -> Result<PageNumbers> {
        Ok(match &self.contents {
            Contents::Identical => PageNumbers::One(PageContent {
                number: 0,
                zero_lines: 0,
            }),
            Contents::Zero => PageNumbers::One(PageContent::ZEROS),
            Contents::Distinct | Contents::Similar(_) => PageNumbers::Ascending,
            Contents::Sharers(sharers) => PageNumbers::Planned(sharers.numbers(seed, self.pages)),
            Contents::Scattered(layout) => PageNumbers::Planned(layout.numbers(seed, self.pages)?),
            Contents::Captured(moment) => {
                let trace = TRACES.get(moment.trace).context("no such trace")?;
                PageNumbers::Captured(trace.pages(moment.mapping, self.pages, moment.at)?)
            }
        })
    }
}

impl Part {
    /// Writes the content of a page.
    pub(crate) fn write(&self, seed: u64, page: &mut [u64], held: PageContent) {
        let key = contents::key(seed, self.family, held.number);
        match self.contents {
            Contents::Similar(own) => {
                let common = contents::key(seed, SIMILAR, 0);
                contents::fill_similar(page, common, key, own.of(key));
            }
            _ => contents::fill_but(page, key, held.zero_lines),
        }
    }

    /// Whether a page holds the written content.
    pub(crate) fn holds(&self, seed: u64, page: &[u64], held: PageContent) -> bool {
        let key = contents::key(seed, self.family, held.number);
        match self.contents {
            Contents::Similar(own) => {
                let common = contents::key(seed, SIMILAR, 0);
                contents::holds_similar(page, common, key, own.of(key))
            }
            _ => contents::holds_but(page, key, held.zero_lines),
        }
    }
}

/// The orders of [`Spec::mixed`]: the name in results, and whether random pages are first.
pub(crate) const MIXED_ORDERS: [(&str, bool); 2] =
    [("random first", true), ("identical first", false)];

/// The families of [`Spec::mixed`].
const IDENTICAL: u64 = 1;
const RANDOM: u64 = 2;

/// One process of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Seed of all contents.
    pub seed: u64,
    /// The parts, lowest address first.
    pub parts: Vec<Part>,
    /// Offer huge pages.
    pub huge: bool,
    /// Offer the parts to in-kernel KSM.
    pub mergeable: bool,
}

impl Spec {
    /// Whether it holds the contents of a trace.
    pub(crate) fn is_captured(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part.contents, Contents::Captured(_)))
    }

    /// A process with identical and random pages (UKSM §8.1.1); `random_first` puts the random ones
    /// at the lower addresses.
    pub(crate) fn mixed(
        seed: u64,
        identical_mib: usize,
        random_mib: usize,
        random_first: bool,
    ) -> Spec {
        let identical = Part::still(Contents::Identical, IDENTICAL, identical_mib);
        let random = Part::still(Contents::Distinct, RANDOM, random_mib);
        let parts = if random_first {
            vec![random, identical]
        } else {
            vec![identical, random]
        };
        Spec {
            seed,
            parts,
            huge: false,
            mergeable: false,
        }
    }
}

/// The parts of these processes that have pages equal to others, by plan: a list for each process.
pub(crate) fn parts_with_partners(specs: &[Spec]) -> Vec<Vec<bool>> {
    let all = || specs.iter().flat_map(|spec| &spec.parts);
    let has_partners = |part: &Part| match part.contents {
        // Each page is equal to that of the same number in another part of its family, and to no
        // other.
        Contents::Distinct | Contents::Similar(_) => {
            all().filter(|other| other.family == part.family).count() > 1
        }
        _ => true,
    };
    let of = |spec: &Spec| spec.parts.iter().map(has_partners).collect();
    specs.iter().map(of).collect()
}

/// MiB of memory that merging everything mergeable in these processes saves.
///
/// # Errors
/// Their pages cannot be laid out as configured.
pub(crate) fn mergeable_mib(specs: &[Spec]) -> Result<f64> {
    use std::collections::HashSet;
    let mut total = 0_usize;
    let mut kept = HashSet::new();
    for spec in specs {
        for part in &spec.parts {
            let numbers = part.numbers(spec.seed)?;
            let held = (0..part.pages).filter_map(|index| numbers.of(index));
            for held in held {
                total += 1;
                if held != PageContent::ZEROS {
                    kept.insert((spec.seed, part.family, held.number));
                }
            }
        }
    }
    Ok(mib(total - kept.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(parts: Vec<Part>) -> Spec {
        Spec {
            seed: 1,
            parts,
            huge: false,
            mergeable: false,
        }
    }

    #[test]
    fn contents_of_two_seeds_are_not_equal() {
        let clone = spec(vec![Part::still(Contents::Distinct, 7, 1)]);
        let other = Spec {
            seed: 2,
            ..clone.clone()
        };
        for (specs, equal) in [([&clone, &clone], 1.0), ([&clone, &other], 0.0)] {
            assert!((mergeable_mib(&specs.map(Spec::clone)).unwrap() - equal).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_equal_to_nothing_has_no_partners() {
        let clone = Part::still(Contents::Distinct, 7, 1);
        let specs = [
            Spec::mixed(1, 1, 2, true),
            spec(vec![clone]),
            spec(vec![clone]),
        ];
        let found = parts_with_partners(&specs);
        assert_eq!(found, [vec![false, true], vec![true], vec![true]]);
    }

    #[test]
    fn identical_pages_save_all_but_one() {
        let specs = [spec(vec![Part::still(Contents::Identical, 1, 1)])];
        assert_eq!(mergeable_mib(&specs).unwrap(), 255.0 / 256.0);
    }

    #[test]
    fn random_pages_save_nothing_and_zero_pages_everything() {
        let specs = [spec(vec![
            Part::still(Contents::Distinct, 1, 4),
            Part::still(Contents::Zero, 2, 3),
        ])];
        assert_eq!(mergeable_mib(&specs).unwrap(), 3.0);
    }

    #[test]
    fn clones_save_one_of_two_copies() {
        let clone = || spec(vec![Part::still(Contents::Distinct, 7, 5)]);
        assert_eq!(mergeable_mib(&[clone(), clone()]).unwrap(), 5.0);
    }

    #[test]
    fn scattered_pages_save_what_is_equal_in_every_process_but_the_first() {
        for place in [
            Arrangement::Same,
            Arrangement::Shuffled,
            Arrangement::GuestRuns,
        ] {
            let specs = [0, 1, 2].map(|process| {
                let layout = Layout {
                    process,
                    equal_percent: 25,
                    place,
                };
                spec(vec![Part::still(Contents::Scattered(layout), 8, 4)])
            });
            assert_eq!(mergeable_mib(&specs).unwrap(), 2.0, "{place:?}");
        }
    }
}

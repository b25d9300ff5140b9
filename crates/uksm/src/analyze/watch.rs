//! A sample of the pages that were read, to be read again later.
//!
//! # Problem
//! The choice of pages to read again must not depend on their contents or owners; the number of
//! pages is not known before they are read; and millions of addresses are too many to keep.
//!
//! # Approach
//! Each page that is read has a number, drawn by hashing its place with the run's salt. The pages
//! with the lowest numbers are kept, with the time: a uniform sample of all pages read, as large as
//! the budget allows, at most [`MAX_PAGES`]. The choice of pages to read the first time is
//! independent of this, and the same without it.
//!
//! They are read again after all other work, so that as much time as possible passes in between:
//! processes in a drawn order, so that a short budget does not always miss the same ones. Nothing
//! waits. Only pages still in memory are read.
//!
//! # Units
//! Nanoseconds; addresses in bytes.
//!
//! # Source
//! Samples of the lowest numbers: E. Cohen and H. Kaplan, "Summarizing data using bottom-k
//! sketches", PODC'07.

use std::collections::{BTreeMap, BinaryHeap};

use uksm_linux::clock;
use uksm_linux::contents::{PresentState, SampledPage, Sampler};
use uksm_linux::proc::{Proc, Stat};
use uksm_policy::command::Nanos;
use uksm_sketch::content::{Content, Salt};
use uksm_sketch::redundancy::Page;

use super::plan::AnalysisPlan;

/// Maximum number of pages that are read again: it estimates a share to two percent of all, and
/// takes some 20 ms.
pub(super) const MAX_PAGES: usize = 2000;

/// Pages of a process that are read again between two checks of the budget.
const AT_A_TIME: usize = 64;

/// Separates these draws from others of the same salt, which are by process alone.
const DRAWN: u64 = 1 << 40;

/// A page that may be read again. Ordered by the number that was drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WatchedPage {
    drawn: u64,
    process: u32,
    address: u64,
    at: Nanos,
    /// Its hash; none for a page of zeros.
    hash: Option<u64>,
}

/// The state of a page at the second reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageFate {
    /// It has the same contents.
    Unchanged,
    /// It has other contents.
    Changed,
    /// It is no longer there.
    Gone,
    /// It is swapped out.
    SwappedOut,
    /// The budget ended before it.
    NotReached,
    /// There is no longer a right to read it.
    Refused,
}

/// A page that was to be read twice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RereadPage {
    /// Its state at the second reading.
    pub(super) fate: PageFate,
    /// Whether it was of zeros, or a page with the same contents was read as well: it could save
    /// memory.
    pub(super) can_be_saved: bool,
    /// Time between the two readings.
    pub(super) seconds: f64,
}

/// The sample of pages.
#[derive(Debug)]
pub(super) struct Watch {
    salt: Salt,
    most: usize,
    /// The highest number on top.
    pages: BinaryHeap<WatchedPage>,
    /// Processes that were read whole.
    processes: BTreeMap<u32, (u32, Stat)>,
}

impl Watch {
    /// An empty sample.
    pub(super) fn new(salt: Salt) -> Watch {
        Watch {
            salt,
            most: 0,
            pages: BinaryHeap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// Sets the size of the sample.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Takes a page of a process that was read.
    pub(super) fn see(&mut self, process: u32, pid: u32, page: SampledPage) {
        let drawn = self.salt.mix([DRAWN | u64::from(pid), page.address]);
        let is_full = self.pages.len() >= self.most;
        let is_lower = self.pages.peek().is_some_and(|top| drawn < top.drawn);
        if is_full && !is_lower {
            return;
        }
        self.pages.push(WatchedPage {
            drawn,
            process,
            address: page.address,
            at: clock::now(),
            hash: match page.content {
                Content::Zero => None,
                Content::Hashed(hash) => Some(hash),
            },
        });
        if is_full {
            self.pages.pop();
        }
    }

    /// Notes that all of a process was read.
    pub(super) fn keep(&mut self, process: u32, pid: u32, stat: &Stat) {
        self.processes.insert(process, (pid, stat.clone()));
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, process: u32) {
        self.pages.retain(|page| page.process != process);
    }

    /// Finds the watched pages that have copies among `pages`, all that were read.
    pub(super) fn with_copies(self, pages: &[Page]) -> SecondReading {
        let mut met: BTreeMap<u64, u32> = BTreeMap::new();
        met.extend(self.pages.iter().filter_map(|page| Some((page.hash?, 0))));
        for page in pages {
            if let Some(times) = met.get_mut(&page.hash) {
                *times = times.saturating_add(1);
            }
        }
        let mut by_process: BTreeMap<u32, Vec<(WatchedPage, bool)>> = BTreeMap::new();
        for page in self.pages {
            let can_be_saved = page.hash.is_none_or(|hash| met[&hash] > 1);
            let of = by_process.entry(page.process).or_default();
            of.push((page, can_be_saved));
        }
        let mut turns: Vec<ProcessPages> = by_process
            .into_iter()
            .filter_map(|(process, mut pages)| {
                let (pid, stat) = self.processes.get(&process)?.clone();
                pages.sort_unstable_by_key(|(page, _)| page.address);
                Some(ProcessPages { pid, stat, pages })
            })
            .collect();
        turns.sort_by_key(|turn| self.salt.mix([DRAWN | u64::from(turn.pid), u64::MAX]));
        SecondReading { turns }
    }
}

/// Pages of one process that are to be read again.
#[derive(Debug)]
struct ProcessPages {
    pid: u32,
    stat: Stat,
    pages: Vec<(WatchedPage, bool)>,
}

/// Pages that are to be read again.
#[derive(Debug)]
pub(super) struct SecondReading {
    turns: Vec<ProcessPages>,
}

impl SecondReading {
    /// Reads them, with the part of the budget that was kept for it, unless more than the budget
    /// was spent before.
    pub(super) fn read(
        self,
        plan: AnalysisPlan,
        sampler: &mut Sampler,
        proc: &Proc,
    ) -> Vec<RereadPage> {
        let before = clock::process_cpu();
        let in_budget = || !plan.is_over() && clock::process_cpu() - before < plan.kept();
        let mut found = Vec::new();
        for ProcessPages { pid, stat, pages } in &self.turns {
            for some in pages.chunks(AT_A_TIME) {
                let mut fates = Vec::new();
                let is_reached = in_budget();
                if is_reached {
                    let addresses: Vec<u64> = some.iter().map(|(page, _)| page.address).collect();
                    let see = &mut |now| fates.push((now, clock::now()));
                    // Pages that can no longer be read are those without a result.
                    let _unreadable = sampler.again(proc, *pid, stat, &addresses, see);
                }
                let missing = match is_reached {
                    true => PageFate::Refused,
                    false => PageFate::NotReached,
                };
                let fates = fates.into_iter().map(Some).chain(std::iter::repeat(None));
                found.extend(some.iter().zip(fates).map(|(&(page, can_be_saved), fate)| {
                    let (fate, now) =
                        fate.map_or((missing, page.at), |(now, at)| (of(now, page.hash), at));
                    RereadPage {
                        fate,
                        can_be_saved,
                        seconds: now.saturating_sub(page.at) as f64 / 1e9,
                    }
                }));
            }
        }
        found
    }
}

/// The state of a page that had this hash, or was of zeros.
fn of(now: PresentState, before: Option<u64>) -> PageFate {
    let is_equal = |content| match content {
        Content::Zero => before.is_none(),
        Content::Hashed(hash) => before == Some(hash),
    };
    match now {
        PresentState::Holds(content) if is_equal(content) => PageFate::Unchanged,
        PresentState::Holds(_) => PageFate::Changed,
        PresentState::SwappedOut => PageFate::SwappedOut,
        PresentState::Gone => PageFate::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(address: u64, hash: u64) -> SampledPage {
        SampledPage {
            address,
            content: match hash {
                0 => Content::Zero,
                hash => Content::Hashed(hash),
            },
            is_offered: false,
        }
    }

    fn stat() -> Stat {
        Stat {
            comm: String::new(),
            state: 'S',
            parent: 1,
            flags: 0,
            start_ticks: 0,
        }
    }

    fn kept(salt: u64, most: usize) -> Watch {
        let mut watch = Watch::new(Salt::new(salt));
        watch.set_most(most);
        for process in 0..4u32 {
            for page in 0..2500u64 {
                watch.see(process, 100 + process, met(page << 12, page % 7));
            }
            watch.keep(process, 100 + process, &stat());
        }
        watch
    }

    #[test]
    fn a_bounded_number_is_kept_and_each_page_as_likely_as_any_other() {
        let mut times = [0u32; 20];
        for salt in 0..100 {
            let watch = kept(salt, 200);
            assert_eq!(watch.pages.len(), 200);
            for page in watch.pages {
                let twentieth = (u64::from(page.process) * 2500 + (page.address >> 12)) / 500;
                times[usize::try_from(twentieth).unwrap()] += 1;
            }
        }
        // 1000 expected of each twentieth of the pages read, and a deviation of some 31.
        assert!(times.iter().all(|n| (870..1130).contains(n)), "{times:?}");
        assert_eq!(kept(1, 0).pages.len(), 0);
        assert_eq!(kept(1, 20_000).pages.len(), 10_000);
    }

    #[test]
    fn a_process_that_is_left_out_has_no_pages_that_are_read_again() {
        let mut watch = kept(5, 400);
        watch.forget(2);
        assert!((200..400).contains(&watch.pages.len()));
        assert!(watch.pages.iter().all(|page| page.process != 2));
        assert_eq!(watch.with_copies(&[]).turns.len(), 3);
    }

    #[test]
    fn zeros_and_pages_with_copies_can_be_saved() {
        let mut watch = Watch::new(Salt::new(1));
        watch.set_most(9);
        for (address, hash) in [(0, 0), (1, 5), (2, 6), (3, 7)] {
            watch.see(0, 1, met(address << 12, hash));
        }
        watch.keep(0, 1, &stat());
        let page = |hash| Page {
            hash,
            process: 0,
            is_offered: false,
        };
        // The copy of 6 was read, and is not watched.
        let again = watch.with_copies(&[5, 6, 6, 7].map(page));
        let found: Vec<(u64, bool)> = again.turns[0]
            .pages
            .iter()
            .map(|&(page, can_be_saved)| (page.address >> 12, can_be_saved))
            .collect();
        assert_eq!(found, [(0, true), (1, false), (2, true), (3, false)]);
    }

    #[test]
    fn a_page_is_changed_if_it_holds_anything_else() {
        let holds = |hash| PresentState::Holds(met(0, hash).content);
        assert_eq!(of(holds(0), None), PageFate::Unchanged);
        assert_eq!(of(holds(3), Some(3)), PageFate::Unchanged);
        assert_eq!(of(holds(3), None), PageFate::Changed);
        assert_eq!(of(holds(0), Some(3)), PageFate::Changed);
        assert_eq!(of(PresentState::SwappedOut, Some(3)), PageFate::SwappedOut);
        assert_eq!(of(PresentState::Gone, None), PageFate::Gone);
    }
}

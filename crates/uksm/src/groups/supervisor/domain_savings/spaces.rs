//! Merged pages of each process of a domain, counted a piece at a time.
//!
//! # Problem
//! The contribution of a process, and pages of zeros, are visible in page tables only, which grow
//! with the processes.
//!
//! # Approach
//! Spaces are counted one after the other, in ascending order and repeatedly, for a bounded time;
//! the next turn continues in the middle of a space. A space that was not counted yet is assumed to
//! have the same part of its memory merged as the counted ones, or all of it, if none was counted.
//! A space whose process holds its own locks keeps its last count, and waits ([`LockWaits`]); a
//! turn ends with the first of those, so that all turns together wait little for them.
//!
//! The contribution of a process is the savings of its mappings of frames, which is its part of all
//! mappings times the savings of all frames, and its pages of zeros.
//!
//! # Units
//! Pages.

use std::collections::BTreeMap;

use rustix::io::Errno;
use uksm_linux::clock;
use uksm_linux::lock_waits::LockWaits;
use uksm_linux::module::{CountAnswer, Result, raw};
use uksm_policy::command::{PageState, SpaceId};

/// The end of user space, except for processes that ask for more: their pages above are not
/// counted.
const USER_END: u64 = (1 << 47) - raw::UKSM_PAGE_SIZE;

/// Merged pages of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct MergedCount {
    with_frames: u64,
    with_zeros: u64,
}

/// A process of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DomainProcess {
    pub(crate) space: SpaceId,
    pub(crate) pid: u32,
    /// Its anonymous pages, merged or not, by the last measurement.
    pub(crate) anon_pages: u64,
}

/// Counts of the spaces of a domain.
#[derive(Debug, Default)]
pub(in crate::groups::supervisor) struct SpaceCounts {
    known: BTreeMap<SpaceId, MergedCount>,
    /// The space being counted: the next address, and its count so far.
    under_way: Option<(SpaceId, u64, MergedCount)>,
    /// The last space that was counted.
    last: Option<SpaceId>,
    /// Spaces whose processes hold their own locks.
    locked: LockWaits<SpaceId>,
}

impl SpaceCounts {
    /// Continues to count by `count` while `is_time` holds, each of the spaces in `here` at most
    /// once. They are in ascending order. Answers whether a call has waited for a process that
    /// holds its own locks.
    ///
    /// # Errors
    /// As the module's; a missing space is no error.
    pub(in crate::groups::supervisor) fn count(
        &mut self,
        here: &[SpaceId],
        is_time: impl Fn() -> bool,
        mut count: impl FnMut(SpaceId, u64, u64) -> Result<CountAnswer>,
    ) -> Result<bool> {
        self.locked
            .retain(|space| here.binary_search(&space).is_ok());
        self.known
            .retain(|space, _| here.binary_search(space).is_ok());
        self.under_way = self
            .under_way
            .filter(|(space, ..)| here.binary_search(space).is_ok());
        let mut done = 0;
        while done < here.len() && is_time() {
            let Some((space, from, mut merged)) = self.under_way.or_else(|| self.next(here)) else {
                return Ok(false);
            };
            if !self.locked.is_due(space, clock::now()) {
                (self.under_way, self.last) = (None, Some(space));
                done += 1;
                continue;
            }
            let counted = match count(space, from, USER_END) {
                // Its worker has detached it.
                Err(error) if error.errno() == Some(Errno::NOENT) => {
                    self.known.remove(&space);
                    (self.under_way, self.last) = (None, Some(space));
                    done += 1;
                    continue;
                }
                Err(error) if error.is_locked() => {
                    self.locked.gave_up(space, clock::now());
                    (self.under_way, self.last) = (None, Some(space));
                    return Ok(true);
                }
                answer => answer?,
            };
            merged.with_frames += counted.pages[PageState::Frame as usize];
            merged.with_zeros += counted.pages[PageState::Zero as usize];
            if counted.next >= USER_END {
                self.known.insert(space, merged);
                self.locked.clear(space);
                (self.under_way, self.last) = (None, Some(space));
                done += 1;
            } else if counted.next <= from {
                // A signal: continued the next time.
                return Ok(false);
            } else {
                self.under_way = Some((space, counted.next, merged));
            }
        }
        Ok(false)
    }

    /// The beginning of the next space, or of the first after the last.
    fn next(&self, here: &[SpaceId]) -> Option<(SpaceId, u64, MergedCount)> {
        let at = here.partition_point(|space| Some(*space) <= self.last);
        let space = here.get(at).or(here.first())?;
        Some((*space, 0, MergedCount::default()))
    }

    /// Pages of zeros in all spaces.
    pub(super) fn zeros(&self) -> u64 {
        self.known.values().map(|merged| merged.with_zeros).sum()
    }

    /// The contribution of each process to the savings of frames and zeros.
    pub(super) fn by_process(
        &self,
        processes: &[DomainProcess],
        by_frames: u64,
        zeros: u64,
    ) -> BTreeMap<u32, u64> {
        let counted = |process: &DomainProcess| self.known.get(&process.space).copied();
        let (mut mappings, mut of_anon) = (0, 0);
        for process in processes {
            if let Some(merged) = counted(process) {
                mappings += merged.with_frames;
                of_anon += process.anon_pages.max(merged.with_frames);
            }
        }
        if of_anon == 0 {
            (mappings, of_anon) = (1, 1);
        }
        let estimate = |process: &DomainProcess| MergedCount {
            with_frames: part(process.anon_pages, mappings, of_anon),
            with_zeros: 0,
        };
        let merged: Vec<(u32, MergedCount)> = processes
            .iter()
            .map(|process| {
                (
                    process.pid,
                    counted(process).unwrap_or_else(|| estimate(process)),
                )
            })
            .collect();
        let mappings = merged.iter().map(|(_, merged)| merged.with_frames).sum();
        let all_zeros = self.zeros();
        let contributed = |merged: MergedCount| {
            part(by_frames, merged.with_frames, mappings)
                + part(zeros, merged.with_zeros, all_zeros)
        };
        let mut by_process = BTreeMap::new();
        for (pid, merged) in merged {
            *by_process.entry(pid).or_default() += contributed(merged);
        }
        by_process
    }
}

/// `of` times `part / whole`; 0 if `whole` is 0.
fn part(of: u64, part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    u64::try_from(u128::from(of) * u128::from(part) / whole).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use uksm_linux::module::{Error, Verb};

    use super::*;

    /// Counts as the module would where each space has its id of frames and ten times that of zeros
    /// in each half.
    fn half(space: SpaceId, from: u64) -> CountAnswer {
        let mut pages = [0; 16];
        pages[PageState::Frame as usize] = u64::from(space.0);
        pages[PageState::Zero as usize] = u64::from(10 * space.0);
        pages[PageState::Anon as usize] = 1000;
        CountAnswer {
            next: if from == 0 { USER_END / 2 } else { USER_END },
            pages,
            huge: 0,
        }
    }

    fn process(space: u32, pid: u32, anon_pages: u64) -> DomainProcess {
        DomainProcess {
            space: SpaceId(space),
            pid,
            anon_pages,
        }
    }

    fn here(ids: &[u32]) -> Vec<SpaceId> {
        ids.iter().map(|&id| SpaceId(id)).collect()
    }

    #[test]
    fn spaces_are_counted_in_turns_and_work_goes_on_where_it_stopped() {
        let mut spaces = SpaceCounts::default();
        let calls = Cell::new(0);
        let counted = |spaces: &mut SpaceCounts, ids: &[u32], most: usize| {
            calls.set(0);
            let is_time = || calls.get() < most;
            let count = |space, from, _| {
                calls.set(calls.get() + 1);
                Ok(half(space, from))
            };
            spaces.count(&here(ids), is_time, count).unwrap();
            (calls.get(), spaces.zeros())
        };
        assert_eq!(counted(&mut spaces, &[1, 2, 4], 3), (3, 20));
        assert_eq!(counted(&mut spaces, &[1, 2, 4], 3), (3, 140));
        assert_eq!(counted(&mut spaces, &[1, 2, 4], 99), (6, 140), "each once");
        assert_eq!(counted(&mut spaces, &[4], 99), (2, 80), "two are gone");
        assert_eq!(counted(&mut spaces, &[], 99), (0, 0));
    }

    #[test]
    fn a_space_that_was_detached_is_left_out_and_an_interrupted_call_changes_nothing() {
        let mut spaces = SpaceCounts::default();
        let ids = here(&[1, 2]);
        let gone = |space: SpaceId, from, _| match space.0 {
            1 => Err(Error::Call {
                verb: Verb::Count,
                errno: Errno::NOENT,
            }),
            _ => Ok(half(space, from)),
        };
        spaces.count(&ids, || true, gone).unwrap();
        assert_eq!(spaces.zeros(), 40);
        let interrupted = |_, from, _| {
            Ok(CountAnswer {
                next: from,
                pages: [0; 16],
                huge: 0,
            })
        };
        spaces.count(&ids, || true, interrupted).unwrap();
        assert_eq!(spaces.zeros(), 40);
    }

    #[test]
    fn a_process_that_holds_its_locks_keeps_what_it_had_and_the_others_are_counted() {
        let mut spaces = SpaceCounts::default();
        let ids = here(&[1, 2, 3]);
        spaces
            .count(&ids, || true, |space, from, _| Ok(half(space, from)))
            .unwrap();
        assert_eq!(spaces.zeros(), 120);
        let asked = Cell::new(0);
        let mut turn = || {
            let locked = |space: SpaceId, from, _| match space.0 {
                2 => {
                    asked.set(asked.get() + 1);
                    let (verb, errno) = (Verb::Count, Errno::AGAIN);
                    Err(Error::Call { verb, errno })
                }
                _ => Ok(CountAnswer {
                    pages: [1; 16],
                    ..half(space, from)
                }),
            };
            spaces.count(&ids, || true, locked).unwrap()
        };
        assert!(turn(), "the first turn ends there");
        assert!(!turn() && !turn(), "and the next do not wait for it");
        assert_eq!(asked.get(), 1);
        assert_eq!(
            spaces.zeros(),
            2 + 40 + 2,
            "a second half each, and what it had"
        );
    }

    #[test]
    fn a_process_contributed_by_its_mappings_and_its_zeros() {
        let mut spaces = SpaceCounts::default();
        let count = |space, from, _| Ok(half(space, from));
        spaces.count(&here(&[1, 3]), || true, count).unwrap();
        let processes = vec![process(1, 10, 5000), process(3, 11, 5000)];
        // Of 8 mappings all but 4 pages are saved, and 40 of 80 pages of zeros are believed.
        let by_process = spaces.by_process(&processes, 4, 40);
        assert_eq!(by_process, BTreeMap::from([(10, 11), (11, 33)]));
        // A space that is not counted yet: 8 of 10,000 pages of the others are merged.
        let mut more = processes;
        more.push(process(9, 12, 10_000));
        let by_process = spaces.by_process(&more, 16, 0);
        assert_eq!(by_process, BTreeMap::from([(10, 2), (11, 6), (12, 8)]));
    }

    #[test]
    fn before_anything_was_counted_memory_decides() {
        let spaces = SpaceCounts::default();
        let processes = [process(1, 10, 100), process(2, 11, 300), process(3, 11, 0)];
        let by_process = spaces.by_process(&processes, 80, 0);
        assert_eq!(by_process, BTreeMap::from([(10, 20), (11, 60)]));
        assert!(spaces.by_process(&[], 80, 0).is_empty());
    }
}

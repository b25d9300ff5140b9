//! Hints of I/O for all groups: programs are loaded once, and each worker gets the hints of its own
//! spaces.
//!
//! # Problem
//! If each worker loaded programs of its own, every read on the host would run those of all groups,
//! and each worker would need the right to load them.
//!
//! # Approach
//! If any group has hints on, the supervisor loads the programs, follows the processes of those
//! groups, and takes their hints. Two domains may give two spaces the same number, so each followed
//! space has another number here; by that number a hint goes to its worker (`HintSender`). A
//! worker that does not read for long loses its oldest hints, which are counted for its group
//! alone.
//!
//! A pause after each round bounds the cost of taking and sending hints. Hints that come meanwhile
//! wait in the ring of the programs, of which each process has a part.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use uksm_linux::clock;
use uksm_linux::hints::{HintBatch, Hints, Loading};
use uksm_linux::processes::GroupSpace;
use uksm_linux::selection::GroupId;
use uksm_policy::command::{Nanos, SpaceId};

use crate::groups::supervisor::worker_process::WorkerProcess;

/// Time from the start until the programs are loaded: memory that exists before is read in full
/// anyway.
const PROGRAMS_AFTER: Duration = Duration::from_secs(5);
/// Interval of checks whether the programs are loaded.
const LOADING_CHECK_INTERVAL_NS: Nanos = 2_000_000_000;
/// Minimum pause after hints are passed on; the pause is also at least `PAUSE_FACTOR` times the
/// time that passing them on took.
const MIN_PAUSE_NS: Nanos = 10_000_000;
const PAUSE_FACTOR: Nanos = 4;
/// Pause before a worker that does not read is tried again.
const RETRY_INTERVAL_NS: Nanos = 100_000_000;

/// A followed space.
#[derive(Debug)]
struct FollowedSpace {
    number: u32,
    pid: u32,
}

/// The programs, and the followed spaces by number.
#[derive(Debug, Default)]
pub(in crate::groups::supervisor) struct HintDispatch {
    loading: Option<Loading>,
    programs: Option<Hints>,
    /// Why there are none, if a group wants them.
    fault: Option<String>,
    followed: BTreeMap<GroupSpace, FollowedSpace>,
    places: BTreeMap<u32, GroupSpace>,
    last: u32,
    /// Time of the next round.
    due: Nanos,
    /// Some worker has not read all its hints.
    is_behind: bool,
}

impl HintDispatch {
    /// The source of hints, for `uksm status`.
    pub(in crate::groups::supervisor) fn source(&self) -> String {
        match (&self.programs, &self.fault) {
            (Some(_), _) => "programs".to_owned(),
            (None, Some(fault)) => format!("nobody: {fault}"),
            (None, None) => "nobody yet: the programs are not loaded".to_owned(),
        }
    }

    /// The programs, once they are loaded.
    pub(in crate::groups::supervisor) fn programs(&self) -> Option<&Hints> {
        self.programs.as_ref()
    }

    /// A process of a group that has hints on was attached.
    pub(in crate::groups::supervisor) fn follow(&mut self, pid: u32, place: GroupSpace) {
        self.forget(place);
        // A number is free again long before all have been used.
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.followed.insert(place, FollowedSpace { number, pid });
        self.places.insert(number, place);
        if let Some(programs) = &mut self.programs {
            programs.follow(pid, SpaceId(number));
        }
    }

    /// Stops following this space.
    pub(in crate::groups::supervisor) fn forget(&mut self, place: GroupSpace) {
        let Some(FollowedSpace { number, pid }) = self.followed.remove(&place) else {
            return;
        };
        self.places.remove(&number);
        let is_shared = self.followed.values().any(|other| other.pid == pid);
        if let Some(programs) = &mut self.programs
            && !is_shared
        {
            programs.forget(pid);
        }
    }

    /// Loads the programs, if a group has hints on and loading was not tried before.
    pub(in crate::groups::supervisor) fn load(&mut self, workers: &[WorkerProcess]) {
        let is_tried = self.programs.is_some() || self.loading.is_some() || self.fault.is_some();
        if !is_tried && workers.iter().any(WorkerProcess::has_hints) {
            self.loading = Some(Loading::after(PROGRAMS_AFTER));
        }
    }

    /// Groups have changed: follows exactly the spaces of those that have hints on.
    pub(in crate::groups::supervisor) fn regroup(&mut self, workers: &[WorkerProcess]) {
        let with_hints = workers.iter().filter(|worker| worker.has_hints());
        let wanted: BTreeMap<GroupSpace, u32> = with_hints
            .flat_map(|worker| {
                let id = worker.id;
                let spaces = worker.handover.processes();
                spaces.map(move |process| ((id, process.space), process.pid))
            })
            .collect();
        let gone: Vec<GroupSpace> = self
            .followed
            .keys()
            .filter(|place| !wanted.contains_key(place))
            .copied()
            .collect();
        for place in gone {
            self.forget(place);
        }
        for (place, pid) in wanted {
            if !self.followed.contains_key(&place) {
                self.follow(pid, place);
            }
        }
    }

    /// Takes hints, if it is time, and passes them on.
    pub(in crate::groups::supervisor) fn turn(&mut self, workers: &mut [WorkerProcess]) {
        self.take_programs();
        let now = clock::now();
        let Some(programs) = self.programs.as_mut().filter(|_| self.due <= now) else {
            return;
        };
        let begun = clock::thread_cpu();
        if self.is_behind {
            self.is_behind = false;
            for worker in workers.iter_mut() {
                self.is_behind |= worker.flush_hints();
            }
        }
        let taken = programs.take();
        let count = taken.hints.len() + taken.grown.len() + taken.lost_of.len();
        for (group, taken) in by_group(taken, &self.places) {
            if let Some(worker) = workers.iter_mut().find(|worker| worker.id == group) {
                worker.hint(&taken);
                self.is_behind |= worker.flush_hints();
            }
        }
        if count > 0 {
            let cost = clock::thread_cpu().saturating_sub(begun);
            self.due = clock::now() + MIN_PAUSE_NS.max(cost.saturating_mul(PAUSE_FACTOR));
        }
    }

    /// The time of the next work, even without a readable descriptor, and the descriptor that is
    /// readable when hints have come.
    pub(in crate::groups::supervisor) fn next(
        &self,
        now: Nanos,
    ) -> (Option<Nanos>, Option<BorrowedFd<'_>>) {
        if self.loading.is_some() {
            return (Some(now + LOADING_CHECK_INTERVAL_NS), None);
        }
        let is_due = self.due <= now;
        let behind = self.is_behind.then_some(now + RETRY_INTERVAL_NS);
        match &self.programs {
            None => (None, None),
            Some(programs) if is_due => (behind, Some(programs.as_fd())),
            Some(_) => (Some(self.due), None),
        }
    }

    /// Starts to use the programs, once they are loaded. The supervisor also runs without them.
    fn take_programs(&mut self) {
        let Some(loaded) = self.loading.as_mut().and_then(Loading::take) else {
            return;
        };
        self.loading = None;
        match loaded {
            Ok(mut programs) => {
                for function in programs.missing() {
                    tracing::info!("hints: not watched: {function}");
                }
                for followed in self.followed.values() {
                    programs.follow(followed.pid, SpaceId(followed.number));
                }
                self.programs = Some(programs);
            }
            Err(error) => {
                tracing::warn!("no hints of I/O: {error}");
                self.fault = Some(error.to_string());
            }
        }
    }
}

/// Sorts taken hints by group, and names spaces as in the group's domain. Lost hints are known by
/// number for all groups together: they are counted for the groups of whose spaces some were lost.
fn by_group(taken: HintBatch, places: &BTreeMap<u32, GroupSpace>) -> BTreeMap<GroupId, HintBatch> {
    let mut of: BTreeMap<GroupId, HintBatch> = BTreeMap::new();
    let place = |number: SpaceId| places.get(&number.0).copied();
    for mut hint in taken.hints {
        // Its space may have been forgotten meanwhile.
        if let Some((group, space)) = place(hint.space) {
            hint.space = space;
            of.entry(group).or_default().hints.push(hint);
        }
    }
    for number in taken.grown {
        if let Some((group, space)) = place(number) {
            of.entry(group).or_default().grown.push(space);
        }
    }
    for number in taken.lost_of {
        if let Some((group, space)) = place(number) {
            let taken = of.entry(group).or_default();
            taken.lost_of.push(space);
            // The number is known for all together; each space in the list lost at least one.
            taken.lost += 1;
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::command::{Hint, HintSource};

    fn hint(space: u32) -> Hint {
        Hint {
            start: 4096,
            length: 4096,
            space: SpaceId(space),
            source: HintSource::Read,
            place: None,
        }
    }

    #[test]
    fn a_hint_goes_to_the_group_of_its_space_and_to_nobody_else() {
        let mut dispatch = HintDispatch::default();
        let (a, b) = (GroupId(1), GroupId(2));
        // Both domains name their space 5.
        dispatch.follow(100, (a, SpaceId(5)));
        dispatch.follow(200, (b, SpaceId(5)));
        dispatch.follow(300, (b, SpaceId(6)));
        let taken = |numbers: &[u32]| HintBatch {
            hints: numbers.iter().map(|&number| hint(number)).collect(),
            grown: vec![SpaceId(2)],
            lost_of: vec![SpaceId(1)],
            lost: 9,
            more: false,
        };
        let of = by_group(taken(&[1, 2, 3, 4]), &dispatch.places);
        let spaces = |group: GroupId| -> Vec<u32> {
            of[&group].hints.iter().map(|hint| hint.space.0).collect()
        };
        assert_eq!((spaces(a), spaces(b)), (vec![5], vec![5, 6]));
        assert_eq!(of[&b].grown, [SpaceId(5)]);
        assert_eq!((of[&a].lost, &of[&a].lost_of[..]), (1, &[SpaceId(5)][..]));
        assert_eq!((of[&b].lost, of[&a].grown.len()), (0, 0));

        dispatch.forget((a, SpaceId(5)));
        let of = by_group(taken(&[1]), &dispatch.places);
        assert!(!of.contains_key(&a), "nobody is told of what is forgotten");
    }
}

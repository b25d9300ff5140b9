//! The followed processes: starts, exits, execs and renames.
//!
//! # Problem
//! Processes start, fork, exec, change their name and exit at any time, and the kernel reuses
//! process ids. On a large host, checking every process each time would cost more than the budget
//! of the bottom level.
//!
//! # Approach
//! - A chosen process is held by a pidfd. The pidfd is opened before the name is read, and the
//!   process must be alive after that, so that what was read belongs to the process that is held.
//! - One epoll over all pidfds reports exits.
//! - Events of the kernel report new processes, execs and new names ([`Connector`]). Without them,
//!   a new process shows as an id in `/proc` that was not there before.
//! - A process is checked when it is old enough, the newest first; a list takes some milliseconds
//!   at most, and returns whether more wait.
//! - Moves between control groups come as events
//!   ([`cgroup_move_events`](crate::cgroup_move_events)), where BPF allows.
//! - Known processes are checked again in turns, for changes without an event. An exec gives a
//!   process another address space, so that attaching it again returns another space id. A new
//!   name or another control group can change whether the process is chosen.
//! - A space that is dead while its process lives: the process has called exec, and is checked at
//!   once.
//! - Each process is in a group, in whose domain it is attached ([`Attach`]). With one group and
//!   one domain, this is a machine's [`Discovery`](crate::discovery::Discovery)
//!   ([`Processes::list`]); a supervisor sends its findings to workers ([`Processes::discover`]).
//! - A process that changes its group must share nothing with the old group before it is attached
//!   in the new one ([`Processes::note_detached`]).
//!
//! This process, the children of a supervisor, kernel threads and zombies are never followed. A
//! failure of one process never stops the list. If a process cannot be read, its state is kept; if
//! only the input of its group cannot be read, it is in no group. If it cannot be attached, that is
//! tried again in turn: another daemon may release its memory, or memory may be short. A process
//! whose locks are held, because its exec waits for I/O of its own, is tried again more and more
//! rarely ([`LockWaits`]), and its state is kept meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use uksm_policy::command::{Nanos, SpaceId};

use crate::cgroup_move_events::CgroupMoveEvents;
use crate::clock;
use crate::connector::Connector;
use crate::domain::Domain;
use crate::lock_waits::LockWaits;
use crate::module::{self, AttachAnswer, Verb};
use crate::pidfd::{self, Exits};
use crate::proc::{self, Proc, Stat};
use crate::selection::{GroupId, Grouping, RuleWithGroups, Selection, Selectors};

mod attach_waits;
mod cgroup_moves;
mod check_queue;
mod failures;
mod list;
mod named_processes;
mod process_events;
mod process_state;
mod recheck;
mod single_domain;
mod spaces;
mod targets;

use attach_waits::AttachWaits;
pub use named_processes::ATTACH_WAIT;
use process_events::ProcessEvents;

pub use process_state::ProcessState;
pub use recheck::CHECKS_PER_LIST;
use recheck::Recheck;
use spaces::Spaces;
pub use spaces::{ArrivedSpace, GroupSpace, LeftSpace, SpaceChanges};
pub use targets::Target;

/// A process that is followed.
#[derive(Debug)]
struct FollowedProcess {
    group: GroupId,
    comm: String,
    start_ticks: u64,
    space: SpaceId,
    pidfd: OwnedFd,
    /// It has called exec since its group was determined.
    has_execed: bool,
}

/// Attaches processes to the domains of their groups.
pub trait Attach {
    /// Attaches the process to the group's domain.
    ///
    /// # Errors
    /// As [`Domain::attach`]; `ENXIO` if the group has no domain yet.
    fn attach(&mut self, group: GroupId, process: BorrowedFd<'_>) -> module::Result<AttachAnswer>;
}

/// One domain for all groups.
impl<D: Domain> Attach for D {
    fn attach(&mut self, _: GroupId, process: BorrowedFd<'_>) -> module::Result<AttachAnswer> {
        Domain::attach(self, process)
    }
}

/// The reason why a process is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnfollowedReason {
    NotChosen,
    /// It never gets memory of its own.
    KernelThread,
    /// It shares pages with its former group.
    Leaving(GroupSpace),
    Failed(GroupId, Errno),
}

/// Facts about a process from `/proc`; without stat for this process itself.
struct ProcessFacts {
    stat: Option<Stat>,
    group: Option<GroupId>,
}

/// The processes of this host, followed or not.
#[derive(Debug)]
pub struct Processes {
    proc: Proc,
    grouping: Grouping,
    exits: Exits,
    followed: BTreeMap<u32, FollowedProcess>,
    unfollowed: BTreeMap<u32, UnfollowedReason>,
    spaces: Spaces,
    process_events: ProcessEvents,
    moves: CgroupMoveEvents,
    /// Number of losses of moves.
    moves_lost: u64,
    recheck: Recheck,
    /// This process is a supervisor: its children are not followed, and a process must be unmerged
    /// from its old group before it can join another.
    is_supervisor: bool,
    pids: Vec<u32>,
    /// Failures are logged from then on. During the start they end the program.
    started: bool,
    /// Processes that could not be read.
    unread: u64,
    /// Processes that could not be attached for lack of memory.
    shortages: u64,
    /// Processes that could not be attached because they hold their own locks.
    locked: LockWaits<u32>,
    /// The time that ATTACH may wait for such processes.
    attach_waits: AttachWaits,
}

impl Processes {
    /// Follows no process yet. `selection` should be pinned; its processes are one group.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new(proc: Proc, selection: Selection) -> std::io::Result<Processes> {
        let grouping = Grouping::of(vec![(GroupId::default(), selection)]);
        Processes::of_groups(proc, grouping)
    }

    /// Follows no process yet. Selections should be pinned.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn of_groups(proc: Proc, grouping: Grouping) -> std::io::Result<Processes> {
        Ok(Processes {
            proc,
            grouping,
            exits: Exits::new()?,
            followed: BTreeMap::new(),
            unfollowed: BTreeMap::new(),
            spaces: Spaces::default(),
            process_events: ProcessEvents::default(),
            moves: CgroupMoveEvents::default(),
            moves_lost: 0,
            recheck: Recheck::default(),
            is_supervisor: false,
            pids: Vec::new(),
            started: false,
            unread: 0,
            shortages: 0,
            locked: LockWaits::default(),
            attach_waits: AttachWaits::default(),
        })
    }

    /// Uses the events of this connector from now on.
    #[must_use]
    pub fn with_connector(mut self, connector: Connector) -> Processes {
        self.process_events.set_connector(connector);
        self
    }

    /// The caller is a supervisor: its children merge the spaces found here, and break sharing that
    /// is not permitted ([`Processes::note_detached`]).
    #[must_use]
    pub fn for_supervisor(mut self) -> Processes {
        self.is_supervisor = true;
        self
    }

    /// Notes that the module calls a space of a group's domain dead.
    pub fn note_dead_in(&mut self, place: GroupSpace) {
        self.spaces.note_dead(place);
    }

    /// These spaces left their groups, share nothing with them any more, and are detached: their
    /// processes can join other groups. One walk over all processes that are not followed.
    pub fn note_detached(&mut self, places: &BTreeSet<GroupSpace>) {
        self.look_again_at(
            |why| matches!(why, UnfollowedReason::Leaving(place) if places.contains(place)),
        );
    }

    /// The domain of a group is gone, and its processes are attached nowhere; the group may get
    /// another domain.
    pub fn has_no_domain(&mut self, group: GroupId) {
        for pid in self.spaces.forget(group) {
            if let Some(followed) = self.followed.remove(&pid) {
                self.exits.forget(&followed.pidfd);
            }
            self.process_events.put(pid);
        }
        self.look_again_at(|why| matches!(why, UnfollowedReason::Leaving((of, _)) if *of == group));
    }

    /// The group has a domain now: processes that could not be attached are checked again.
    pub fn has_domain(&mut self, group: GroupId) {
        self.look_again_at(|why| matches!(why, UnfollowedReason::Failed(of, _) if *of == group));
    }

    /// Checks those unfollowed processes again for which `is_so` is true, as if they were new.
    fn look_again_at(&mut self, is_so: impl Fn(&UnfollowedReason) -> bool) {
        self.unfollowed.retain(|&pid, why| {
            let again = is_so(why);
            if again {
                self.process_events.put(pid);
            }
            !again
        });
    }

    /// Excludes the selected processes from now on.
    ///
    /// # Errors
    /// The module fails altogether.
    pub fn exclude(
        &mut self,
        selectors: Selectors,
        domain: &mut impl Attach,
    ) -> module::Result<()> {
        self.grouping.exclude(selectors, &self.proc);
        for pid in self.followed.keys().copied().collect::<Vec<_>>() {
            self.check(pid, domain)?;
        }
        Ok(())
    }

    /// Replaces groups and rules, but keeps the processes that were excluded since the start. All
    /// known processes are checked again in the next lists.
    pub fn regroup(&mut self, groups: Vec<(GroupId, Selection)>, rules: Vec<RuleWithGroups>) {
        self.grouping.regroup(groups, rules);
        for &pid in self.followed.keys().chain(self.unfollowed.keys()) {
            self.process_events.put(pid);
        }
        // Perhaps no selection needed a search until now.
        self.process_events.search_now();
    }

    /// The groups, including those that rules have formed.
    pub fn grouping(&mut self) -> &mut Grouping {
        &mut self.grouping
    }

    /// A group that a rule formed is gone and has no processes: processes that come later, or could
    /// not be attached, form another one.
    pub fn dissolve(&mut self, group: GroupId) {
        self.grouping.dissolve(group);
        self.look_again_at(|why| matches!(why, UnfollowedReason::Failed(of, _) if *of == group));
    }

    /// Whether events report processes. Otherwise only searches find them.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.process_events.has_events()
    }

    /// Readable when events have come, if there are any; the next list reads them.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.process_events.events()
    }

    /// Time at which a waiting process is old enough to be checked, if there are events.
    #[must_use]
    pub fn ready_at(&self) -> Option<Nanos> {
        self.process_events
            .events()
            .and(self.process_events.ready_at())
    }

    /// Number of losses of events; after each, all processes were searched.
    #[must_use]
    pub fn events_lost(&self) -> u64 {
        self.process_events.lost()
    }

    /// The reader of `/proc` it uses.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// Checks one process: it is followed from now on, or no longer, or as before.
    fn check(&mut self, pid: u32, to: &mut impl Attach) -> module::Result<()> {
        if self.is_leaving(pid) {
            return Ok(());
        }
        // Opened before the process is read: if it is alive afterwards, the facts read are those of
        // the process that is held.
        let opened = match self.followed.contains_key(&pid) {
            true => None,
            false => Some(pidfd::open(pid)),
        };
        match self.read(pid) {
            Ok(ProcessFacts {
                stat: Some(stat),
                group: Some(group),
            }) => self.follow(pid, group, (stat, opened), to),
            Ok(ProcessFacts { stat, .. }) => {
                // No event will report an exec of a young process.
                if let Some(stat) = stat.as_ref().filter(|_| !self.has_events()) {
                    self.recheck.note_unchosen(pid, stat);
                }
                let is_kernel_s = stat.as_ref().is_some_and(Stat::is_kernel_thread);
                let why = match is_kernel_s {
                    true => UnfollowedReason::KernelThread,
                    false => UnfollowedReason::NotChosen,
                };
                self.unfollowed.insert(pid, why);
                // A supervisor first waits until it is unmerged from its old group.
                self.unfollow(pid, true);
                Ok(())
            }
            Err(proc::Error::Gone { .. }) => {
                self.unfollowed.remove(&pid);
                self.unfollow(pid, false);
                self.locked.clear(pid);
                self.proc.forget(pid);
                Ok(())
            }
            Err(error) => {
                self.unread += 1;
                tracing::debug!("{error}: left as it is");
                if let (proc::Error::Locked { .. }, Some(due)) = (&error, self.proc.due(pid)) {
                    self.process_events.put_at(pid, due);
                }
                if !self.followed.contains_key(&pid) {
                    self.unfollowed
                        .entry(pid)
                        .or_insert(UnfollowedReason::NotChosen);
                }
                Ok(())
            }
        }
    }

    /// Whether a process still waits to be unmerged from its old group.
    fn is_leaving(&self, pid: u32) -> bool {
        matches!(
            self.unfollowed.get(&pid),
            Some(UnfollowedReason::Leaving(_))
        )
    }

    /// Reads a process, unless it is this one.
    fn read(&mut self, pid: u32) -> proc::Result<ProcessFacts> {
        let own = std::process::id();
        if pid == own {
            return Ok(ProcessFacts {
                stat: None,
                group: None,
            });
        }
        let stat = self.proc.stat(pid)?;
        let is_ours = self.is_supervisor && stat.parent == own;
        let held = self.followed.get(&pid);
        let same = |f: &&FollowedProcess| f.start_ticks == stat.start_ticks && !f.has_execed;
        let current = held.filter(same).map(|f| f.group);
        let group = match stat.has_memory() && !is_ours {
            true => {
                let group = self.grouping.group_of(&self.proc, (pid, &stat), current);
                self.readable(pid, group)?
            }
            false => None,
        };
        if let Some(held) = self.followed.get_mut(&pid) {
            held.has_execed = false;
        }
        Ok(ProcessFacts {
            stat: Some(stat),
            group,
        })
    }

    /// Holds and attaches a chosen process that was opened before it was read. A followed process
    /// was not opened again, and may have another space now.
    fn follow(
        &mut self,
        pid: u32,
        group: GroupId,
        (stat, opened): (Stat, Option<Result<Option<OwnedFd>, Errno>>),
        to: &mut impl Attach,
    ) -> module::Result<()> {
        let same = |f: &&FollowedProcess| f.start_ticks == stat.start_ticks;
        let held = self.followed.get(&pid).filter(same);
        if held.is_some_and(|f| f.group != group) {
            self.unfollow(pid, true);
            if self.is_leaving(pid) {
                return Ok(());
            }
        }
        let held = self.followed.get(&pid).filter(same);
        let is_held = held.is_some();
        let pidfd = if let Some(f) = held {
            // The process is held, so it is the same one; the new stat may carry a new name.
            let Ok(pidfd) = f.pidfd.try_clone() else {
                return Ok(());
            };
            pidfd
        } else {
            self.unfollow(pid, false);
            let Some(opened) = opened else {
                // It is in another group, or its id belongs to another process: it is checked as a
                // new one.
                self.process_events.put(pid);
                return Ok(());
            };
            match opened.and_then(|pidfd| self.hold(pid, pidfd)) {
                Ok(Some(pidfd)) => pidfd,
                Ok(None) => return Ok(()),
                Err(errno) => {
                    self.note_failure(pid, &stat.comm, (group, errno));
                    return Ok(());
                }
            }
        };
        let begun = clock::now();
        let locked_due = self.locked.due(pid, begun);
        if let Some(due) = locked_due.or_else(|| self.attach_waits.due(group, begun)) {
            self.process_events.put_at(pid, due);
            if !is_held {
                let why = UnfollowedReason::Failed(group, Errno::AGAIN);
                self.unfollowed.insert(pid, why);
            }
            return Ok(());
        }
        let error = match to.attach(group, pidfd.as_fd()) {
            Ok(attached) => {
                self.locked.clear(pid);
                self.note_space(pid, &stat, pidfd, (group, attached.space));
                return Ok(());
            }
            Err(error) => error,
        };
        match error.errno() {
            Some(Errno::NOMEM) => {
                self.shortages += 1;
                if !is_held {
                    self.note_failure(pid, &stat.comm, (group, Errno::NOMEM));
                }
            }
            Some(Errno::AGAIN) => {
                let now = clock::now();
                self.attach_waits.waited(group, (begun, now));
                let due = self.locked.gave_up(pid, now);
                self.process_events.put_at(pid, due);
                if !is_held {
                    self.note_failure(pid, &stat.comm, (group, Errno::AGAIN));
                }
            }
            Some(
                errno @ (Errno::PERM | Errno::SRCH | Errno::BUSY | Errno::NOSPC | Errno::NXIO),
            ) => {
                self.unfollow(pid, false);
                self.note_failure(pid, &stat.comm, (group, errno));
            }
            _ => return Err(error),
        }
        Ok(())
    }

    /// Proves that the facts from `/proc` are of the process of this pidfd, opened before: it is
    /// alive, so its id was not reused. None if it is gone.
    fn hold(&self, pid: u32, pidfd: Option<OwnedFd>) -> Result<Option<OwnedFd>, Errno> {
        let Some(pidfd) = pidfd else {
            return Ok(None);
        };
        if pidfd::has_exited(&pidfd)? {
            return Ok(None);
        }
        self.exits.watch(pid, &pidfd)?;
        Ok(Some(pidfd))
    }

    /// Records the space of a process; after an exec it is another one than before.
    fn note_space(&mut self, pid: u32, stat: &Stat, pidfd: OwnedFd, place: GroupSpace) {
        self.unfollowed.remove(&pid);
        let comm = &stat.comm;
        let (group, space) = place;
        if let Some(followed) = self.followed.get_mut(&pid) {
            let old = std::mem::replace(&mut followed.space, space);
            followed.comm.clone_from(comm);
            if old != space {
                if self.grouping.depends_on_environments() {
                    // The environment is another one as well.
                    followed.has_execed = true;
                    self.process_events.put(pid);
                }
                self.spaces.remove(pid, (group, old), false);
                // Its memory is as old as its exec, not as the process.
                self.spaces.add(pid, place, comm, 0);
            }
            return;
        }
        let age = stat.age(clock::since_boot());
        self.spaces.add(pid, place, comm, age);
        let followed = FollowedProcess {
            group,
            comm: comm.clone(),
            start_ticks: stat.start_ticks,
            space,
            pidfd,
            has_execed: false,
        };
        self.followed.insert(pid, followed);
    }

    /// Stops following a process. If it lives and was the last of its space, a supervisor must have
    /// it unmerged from its group first.
    fn unfollow(&mut self, pid: u32, lives: bool) {
        let Some(followed) = self.followed.remove(&pid) else {
            return;
        };
        self.exits.forget(&followed.pidfd);
        let place = (followed.group, followed.space);
        let is_last = self.spaces.remove(pid, place, lives);
        if is_last && lives && self.is_supervisor {
            self.unfollowed
                .insert(pid, UnfollowedReason::Leaving(place));
        }
    }

    /// A chosen process could not be attached: that is logged once.
    fn note_failure(&mut self, pid: u32, comm: &str, (group, errno): (GroupId, Errno)) {
        let why = UnfollowedReason::Failed(group, errno);
        let before = self.unfollowed.insert(pid, why);
        let is_news = before != Some(why) && !matches!(errno, Errno::SRCH | Errno::NXIO);
        if self.started && is_news {
            let error = module::Error::Call {
                verb: Verb::Attach,
                errno,
            };
            tracing::info!("process {pid} ({comm}) is left alone: {error}");
        }
    }
}

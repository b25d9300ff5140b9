//! Follows processes: who came, who went, who became somebody else.
//!
//! # Problem
//! Processes start, fork, exec, change their name and end at any time; ids are used again; on a
//! large host looking at every process each time would cost more than the bottom level's budget.
//!
//! # Approach
//! A process that is chosen is held by a pidfd, opened before its name is read and found alive
//! after, so that what was read belongs to what is held. Exits are reported by one epoll over all
//! pidfds. Newcomers show as ids in `/proc` that were not there before. Everybody else is looked
//! at again in turns, [`CHECKS_PER_LIST`] a process list: an exec changes the address space (attaching
//! again then gives another id), a rename or a move changes who is chosen. Whoever is younger than
//! [`YOUNG_AGE`] is looked at each time: most processes are forked before they become who they are. An
//! address space that the
//! module calls dead while its process lives means an exec and is not left to those turns.
//! Processes that share memory (vfork) share a space, which goes when the last of them does.
//! Forks are newcomers like any other.
//!
//! This process, kernel threads and zombies are never followed. What is wrong with one process
//! never stops the list. A read that fails says nothing: whoever is followed stays so. Who cannot
//! be attached is tried again in turn: its memory may be another daemon's that lets go of it, or
//! memory may be short.
//!
//! # Units
//! Times are nanoseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use uksm_policy::command::{Nanos, SpaceArrival, SpaceId};

use crate::clock;
use crate::domain::Domain;
use crate::module::{self, Verb};
use crate::pidfd::{self, Exits};
use crate::proc::{self, Proc, Stat};
use crate::selection::{Selection, Selectors};

/// Known processes looked at again for one process list: at some 10 µs each, well under a millisecond.
pub const CHECKS_PER_LIST: usize = 64;

/// Younger processes may not have become who they are.
pub const YOUNG_AGE: Nanos = 5_000_000_000;

/// How long a start waits for memory that another domain is letting go of, or that is short.
pub const ATTACH_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

/// Most young processes looked at again for one process list.
const MOST_YOUNG: usize = 256;

/// What changed since the process list before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Spaces that came.
    pub arrived: Vec<SpaceArrival>,
    /// Spaces that went.
    pub left: Vec<SpaceId>,
    /// Pages in memory, of spaces that were looked at and have other than before.
    pub resident: Vec<(SpaceId, u64)>,
}

/// A process that is followed.
#[derive(Debug)]
struct Followed {
    comm: String,
    start_ticks: u64,
    space: SpaceId,
    resident: u64,
    pidfd: OwnedFd,
}

/// A followed process, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its address space.
    pub space: SpaceId,
}

/// Why a chosen process is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unfollowed {
    NotChosen,
    Failed(Errno),
}

/// What a look at a process shows; no stat of this process itself.
struct Reading {
    stat: Option<Stat>,
    wanted: bool,
}

/// The processes of this host that are targets.
#[derive(Debug)]
pub struct Processes {
    proc: Proc,
    selection: Selection,
    exits: Exits,
    followed: BTreeMap<u32, Followed>,
    unfollowed: BTreeMap<u32, Unfollowed>,
    spaces: BTreeMap<SpaceId, Vec<u32>>,
    dead: BTreeSet<SpaceId>,
    young: BTreeSet<u32>,
    changes: Changes,
    checked_to: u32,
    pids: Vec<u32>,
    /// Whether failures are logged; at the start they are told otherwise.
    started: bool,
    /// Processes that could not be read.
    unread: u64,
    /// Processes that could not be attached for lack of memory.
    shortages: u64,
}

impl Processes {
    /// Nobody is followed yet. `selection` should be pinned.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new(proc: Proc, selection: Selection) -> std::io::Result<Processes> {
        Ok(Processes {
            proc,
            selection,
            exits: Exits::new()?,
            followed: BTreeMap::new(),
            unfollowed: BTreeMap::new(),
            spaces: BTreeMap::new(),
            dead: BTreeSet::new(),
            young: BTreeSet::new(),
            changes: Changes::default(),
            checked_to: 0,
            pids: Vec::new(),
            started: false,
            unread: 0,
            shortages: 0,
        })
    }

    /// Follows the processes named by id, before a run starts: unlike later, a failure is told,
    /// but for one that passes within [`ATTACH_WAIT`].
    ///
    /// # Errors
    /// The first that cannot be attached, with its id.
    pub fn follow_named(&mut self, domain: &mut impl Domain) -> Result<(), (u32, module::Error)> {
        const WAIT: std::time::Duration = std::time::Duration::from_millis(25);
        let mut waits = ATTACH_WAIT.as_millis() / WAIT.as_millis();
        for name in self.selection.chosen.pids.clone() {
            loop {
                if let Err(error) = self.check(name.pid, domain) {
                    return Err((name.pid, error));
                }
                let Some(&Unfollowed::Failed(errno)) = self.unfollowed.get(&name.pid) else {
                    break;
                };
                if waits == 0 || !matches!(errno, Errno::BUSY | Errno::NOMEM) {
                    let verb = Verb::Attach;
                    return Err((name.pid, module::Error::Call { verb, errno }));
                }
                waits -= 1;
                std::thread::sleep(WAIT);
            }
        }
        Ok(())
    }

    /// Looks for what changed since the last time.
    ///
    /// # Errors
    /// The module fails altogether, not for one process.
    pub fn list(&mut self, domain: &mut impl Domain) -> module::Result<Changes> {
        self.started = true;
        self.remove_dead(domain)?;
        let mut again = self.remove_dead_spaces(domain)?;
        let mut pids = std::mem::take(&mut self.pids);
        if self.selection.need_search() {
            match self.proc.list(&mut pids) {
                Ok(()) => self
                    .unfollowed
                    .retain(|pid, _| pids.binary_search(pid).is_ok()),
                Err(error) => {
                    tracing::warn!("cannot look for processes: {error}");
                    self.unread += 1;
                    // It may have ended anywhere.
                    pids.clear();
                }
            }
        } else {
            pids.clear();
            pids.extend(self.selection.chosen.pids.iter().map(|name| name.pid));
        }
        let known =
            |pid: &u32| self.followed.contains_key(pid) || self.unfollowed.contains_key(pid);
        again.extend(pids.iter().copied().filter(|pid| !known(pid)));
        again.extend(std::mem::take(&mut self.young));
        again.extend(self.next_to_check());
        again.sort_unstable();
        again.dedup();
        self.pids = pids;
        for pid in again {
            self.check(pid, domain)?;
        }
        Ok(std::mem::take(&mut self.changes))
    }

    /// Notes that the module calls a space dead.
    pub fn note_dead(&mut self, space: SpaceId) {
        if self.spaces.contains_key(&space) {
            self.dead.insert(space);
        }
    }

    /// Whether a space is followed.
    #[must_use]
    pub fn has(&self, space: SpaceId) -> bool {
        self.spaces.contains_key(&space)
    }

    /// A process whose address space this is.
    #[must_use]
    pub fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.spaces
            .get(&space)
            .and_then(|pids| pids.first())
            .copied()
    }

    /// Leaves the selected processes alone from now on; answers the spaces that were followed and
    /// are now detached.
    ///
    /// # Errors
    /// The module fails altogether.
    pub fn exclude(
        &mut self,
        selectors: Selectors,
        domain: &mut impl Domain,
    ) -> module::Result<Vec<SpaceId>> {
        let before = self.changes.left.len();
        self.selection.excluded.extend(selectors);
        for pid in self.followed.keys().copied().collect::<Vec<_>>() {
            self.check(pid, domain)?;
        }
        Ok(self.changes.left[before..].to_vec())
    }

    /// The followed processes, by id.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let target = |(&pid, f): (&u32, &Followed)| Target {
            pid,
            comm: f.comm.clone(),
            space: f.space,
        };
        self.followed.iter().map(target).collect()
    }

    /// Processes that were chosen and could not be attached, with the errno of each.
    pub fn failures(&self) -> impl Iterator<Item = (u32, Errno)> + '_ {
        self.unfollowed.iter().filter_map(|(&pid, why)| match why {
            Unfollowed::Failed(errno) => Some((pid, *errno)),
            Unfollowed::NotChosen => None,
        })
    }

    /// Reads of processes that failed and left everything as it was.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Processes that could not be attached for lack of memory, repetitions included.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        self.shortages
    }

    /// The reader of `/proc` it uses.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// Lets go of processes that ended.
    fn remove_dead(&mut self, domain: &mut impl Domain) -> module::Result<()> {
        for pid in self.exits.take() {
            self.unfollow(pid, domain)?;
        }
        Ok(())
    }

    /// Lets go of spaces that died under a living process; answers those processes.
    fn remove_dead_spaces(&mut self, domain: &mut impl Domain) -> module::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for space in std::mem::take(&mut self.dead) {
            pids.extend(self.spaces.get(&space).cloned().unwrap_or_default());
        }
        for &pid in &pids {
            self.unfollow(pid, domain)?;
        }
        Ok(pids)
    }

    /// The known processes to look at again this time, in turns by id.
    fn next_to_check(&mut self) -> Vec<u32> {
        let behind = (
            std::ops::Bound::Excluded(self.checked_to),
            std::ops::Bound::Unbounded,
        );
        let mut pids: Vec<u32> = self
            .followed
            .range(behind)
            .map(|(&pid, _)| pid)
            .take(CHECKS_PER_LIST)
            .collect();
        pids.extend(
            self.unfollowed
                .range(behind)
                .map(|(&pid, _)| pid)
                .take(CHECKS_PER_LIST),
        );
        pids.sort_unstable();
        pids.truncate(CHECKS_PER_LIST);
        self.checked_to = if pids.len() < CHECKS_PER_LIST {
            0
        } else {
            pids[CHECKS_PER_LIST - 1]
        };
        pids
    }

    /// Looks at one process: follow it, stop to, or go on.
    fn check(&mut self, pid: u32, domain: &mut impl Domain) -> module::Result<()> {
        match self.read(pid) {
            Ok(Reading {
                stat: Some(stat),
                wanted: true,
            }) => self.follow(pid, stat, domain),
            Ok(Reading { stat, .. }) => {
                let young = stat.is_some_and(|stat| stat.age(clock::since_boot()) < YOUNG_AGE);
                if young && self.young.len() < MOST_YOUNG {
                    self.young.insert(pid);
                }
                self.unfollow(pid, domain)?;
                self.unfollowed.insert(pid, Unfollowed::NotChosen);
                Ok(())
            }
            Err(proc::Error::Gone { .. }) => {
                self.unfollowed.remove(&pid);
                self.unfollow(pid, domain)
            }
            Err(error) => {
                self.unread += 1;
                tracing::debug!("{error}: left as it is");
                if !self.followed.contains_key(&pid) {
                    self.unfollowed.entry(pid).or_insert(Unfollowed::NotChosen);
                }
                Ok(())
            }
        }
    }

    /// Reads a process, unless it is this one.
    fn read(&self, pid: u32) -> proc::Result<Reading> {
        if pid == std::process::id() {
            return Ok(Reading {
                stat: None,
                wanted: false,
            });
        }
        let stat = self.proc.stat(pid)?;
        let wanted = stat.has_memory() && self.selection.include(&self.proc, pid, &stat)?;
        Ok(Reading {
            stat: Some(stat),
            wanted,
        })
    }

    fn follow(&mut self, pid: u32, stat: Stat, domain: &mut impl Domain) -> module::Result<()> {
        let followed = self.followed.get(&pid);
        let held = followed.filter(|f| f.start_ticks == stat.start_ticks);
        let is_held = held.is_some();
        let (pidfd, stat) = match held {
            // A held process is what it was; the new stat may carry a new name.
            Some(f) => match f.pidfd.try_clone() {
                Ok(pidfd) => (pidfd, stat),
                Err(_) => return Ok(()),
            },
            None => {
                self.unfollow(pid, domain)?;
                match self.hold(pid) {
                    Ok(Some(held)) => held,
                    Ok(None) => return Ok(()),
                    Err(errno) => return self.note_failure(pid, &stat.comm, errno),
                }
            }
        };
        match domain.attach(pidfd.as_fd()) {
            Ok(attached) => self.note_space(pid, stat, pidfd, attached.space, domain),
            Err(error) => match error.errno() {
                Some(Errno::NOMEM) => {
                    self.shortages += 1;
                    if is_held {
                        return Ok(());
                    }
                    self.note_failure(pid, &stat.comm, Errno::NOMEM)
                }
                Some(errno @ (Errno::PERM | Errno::SRCH | Errno::BUSY | Errno::NOSPC)) => {
                    self.unfollow(pid, domain)?;
                    self.note_failure(pid, &stat.comm, errno)
                }
                _ => Err(error),
            },
        }
    }

    /// Opens a pidfd and proves that what `/proc` says is said of the process it holds: it lives
    /// after that was read, so its id was not another's. None if it is gone or not wanted.
    fn hold(&mut self, pid: u32) -> Result<Option<(OwnedFd, Stat)>, Errno> {
        let Some(pidfd) = pidfd::open(pid)? else {
            return Ok(None);
        };
        let Ok(Reading {
            stat: Some(stat),
            wanted: true,
        }) = self.read(pid)
        else {
            return Ok(None);
        };
        if pidfd::has_exited(&pidfd)? {
            return Ok(None);
        }
        self.exits.watch(pid, &pidfd)?;
        Ok(Some((pidfd, stat)))
    }

    /// Notes which space a process is in; it may have been in another before (exec).
    fn note_space(
        &mut self,
        pid: u32,
        stat: Stat,
        pidfd: OwnedFd,
        space: SpaceId,
        domain: &mut impl Domain,
    ) -> module::Result<()> {
        self.unfollowed.remove(&pid);
        let Stat {
            comm,
            start_ticks,
            resident_pages,
            ..
        } = &stat;
        if let Some(followed) = self.followed.get_mut(&pid) {
            let old = std::mem::replace(&mut followed.space, space);
            followed.comm.clone_from(comm);
            let before = std::mem::replace(&mut followed.resident, *resident_pages);
            if before != *resident_pages {
                self.changes.resident.push((space, *resident_pages));
            }
            if old == space {
                return Ok(());
            }
            self.remove_from_space(pid, old, domain)?;
            // Its memory is as old as its exec, not as the process.
            self.add_to_space(pid, space, kind(comm), 0);
            return Ok(());
        }
        let age = stat.age(clock::since_boot());
        self.add_to_space(pid, space, kind(comm), age);
        let followed = Followed {
            comm: comm.clone(),
            start_ticks: *start_ticks,
            space,
            resident: 0,
            pidfd,
        };
        self.followed.insert(pid, followed);
        Ok(())
    }

    fn add_to_space(&mut self, pid: u32, space: SpaceId, kind: u64, age: u64) {
        let pids = self.spaces.entry(space).or_default();
        pids.push(pid);
        if pids.len() == 1 {
            self.changes.arrived.push(SpaceArrival { space, kind, age });
        }
    }

    fn remove_from_space(
        &mut self,
        pid: u32,
        space: SpaceId,
        domain: &mut impl Domain,
    ) -> module::Result<()> {
        let Some(pids) = self.spaces.get_mut(&space) else {
            return Ok(());
        };
        pids.retain(|&other| other != pid);
        if !pids.is_empty() {
            return Ok(());
        }
        self.spaces.remove(&space);
        self.dead.remove(&space);
        let arrived = self.changes.arrived.len();
        self.changes
            .arrived
            .retain(|arrival| arrival.space != space);
        if self.changes.arrived.len() == arrived {
            self.changes.left.push(space);
        }
        match domain.detach(space) {
            Err(error) if error.errno() != Some(Errno::NOENT) => Err(error),
            _ => Ok(()),
        }
    }

    fn unfollow(&mut self, pid: u32, domain: &mut impl Domain) -> module::Result<()> {
        match self.followed.remove(&pid) {
            Some(followed) => {
                self.exits.forget(&followed.pidfd);
                self.remove_from_space(pid, followed.space, domain)
            }
            None => Ok(()),
        }
    }

    fn note_failure(&mut self, pid: u32, comm: &str, errno: Errno) -> module::Result<()> {
        let before = self.unfollowed.insert(pid, Unfollowed::Failed(errno));
        let news = before != Some(Unfollowed::Failed(errno)) && errno != Errno::SRCH;
        if self.started && news {
            let error = module::Error::Call {
                verb: Verb::Attach,
                errno,
            };
            tracing::info!("process {pid} ({comm}) is left alone: {error}");
        }
        Ok(())
    }
}

/// Numbers the programs (FNV-1a of the name), so that lifetimes are learned by program.
fn kind(comm: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    comm.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

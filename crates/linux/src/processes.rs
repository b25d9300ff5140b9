//! Which processes are followed: who started, who exited, who became another program.
//!
//! # Problem
//! Processes start, fork, exec, change their name and exit at any time, and the kernel uses process
//! ids again. On a large host, a look at every process each time would cost more than the budget of
//! the bottom level.
//!
//! # Approach
//! - A chosen process is held by a pidfd. The pidfd is opened before the name is read, and the
//!   process must be alive after that, so that what was read belongs to the process that is held.
//! - One epoll over all pidfds reports exits.
//! - Events of the kernel tell of new processes, execs and new names ([`Connector`]). Without them,
//!   a new process shows as an id in `/proc` that was not there before.
//! - A process is looked at when it is old enough, the newest first; a list takes some milliseconds
//!   at most, and says whether more wait.
//! - Known processes are checked again in turns, for what no event told. An exec gives a process
//!   another address space, so that attaching it again answers another space id. A new name or
//!   another control group can change whether the process is chosen.
//! - If the module calls a space dead while its process lives, the process has called exec. Such a
//!   process is checked at once.
//!
//! This process, those beside it under one supervisor, kernel threads and zombies are never followed. A failure of one process never stops
//! the list. If a process cannot be read, it stays as it was. If it cannot be attached, that is tried
//! again in turn: another daemon may let go of its memory, or memory may be short.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use uksm_policy::command::{Nanos, SpaceId};

use crate::clock;
use crate::connector::Connector;
use crate::domain::Domain;
use crate::module::{self, Verb};
use crate::pidfd::{self, Exits};
use crate::proc::{self, Proc, Stat};
use crate::selection::{Selection, Selectors};

mod arrivals;
mod breaks;
mod list;
mod newcomers;
mod spaces;
mod turns;

use arrivals::Arrivals;
use breaks::Breaks;

pub use spaces::Changes;
use spaces::Spaces;
pub use turns::CHECKS_PER_LIST;
use turns::Turns;

/// How long the start waits for a process that another domain is letting go of, or for memory.
pub const ATTACH_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

/// A process that is followed.
#[derive(Debug)]
struct Followed {
    comm: String,
    start_ticks: u64,
    space: SpaceId,
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
    /// It never gets memory of its own.
    KernelThread,
    Failed(Errno),
}

/// What `/proc` says of a process; there is no stat of this process itself.
struct Reading {
    stat: Option<Stat>,
    wanted: bool,
}

/// The processes of this host, followed or not.
#[derive(Debug)]
pub struct Processes {
    proc: Proc,
    selection: Selection,
    /// Excluded since the start.
    excluded: Selectors,
    exits: Exits,
    followed: BTreeMap<u32, Followed>,
    unfollowed: BTreeMap<u32, Unfollowed>,
    spaces: Spaces,
    arrivals: Arrivals,
    turns: Turns,
    /// The parent of this process and of others like it, if they are one program.
    supervisor: Option<u32>,
    /// None if processes may go on sharing what they share when they leave.
    breaks: Option<Breaks>,
    pids: Vec<u32>,
    /// Whether failures are logged. At the start they end the program.
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
            excluded: Selectors::default(),
            exits: Exits::new()?,
            followed: BTreeMap::new(),
            unfollowed: BTreeMap::new(),
            spaces: Spaces::default(),
            arrivals: Arrivals::default(),
            turns: Turns::default(),
            supervisor: None,
            breaks: None,
            pids: Vec::new(),
            started: false,
            unread: 0,
            shortages: 0,
        })
    }

    /// Events tell of processes from now on.
    #[must_use]
    pub fn told_by(mut self, connector: Connector) -> Processes {
        self.arrivals.set_connector(connector);
        self
    }

    /// Processes share nothing with those that are not chosen, from now on: what one shares is broken before it leaves, and so is what
    /// it brings along of another domain.
    #[must_use]
    pub fn isolated(mut self) -> Processes {
        self.breaks = Some(Breaks::default());
        self.supervisor = rustix::process::getppid()
            .and_then(|parent| u32::try_from(parent.as_raw_nonzero().get()).ok());
        self
    }

    /// Follows the processes named by id, before a run starts. A failure is an error here, unlike
    /// later, unless it passes within [`ATTACH_WAIT`].
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

    /// Notes that the module calls a space dead.
    pub fn note_dead(&mut self, space: SpaceId) {
        self.spaces.note_dead(space);
    }

    /// Notes that SAMPLE found a frame of another domain in a space.
    pub fn note_foreign(&mut self, space: SpaceId) {
        let pid = self.spaces.process_of(space);
        if let (Some(breaks), Some(pid)) = (&mut self.breaks, pid) {
            breaks.has_foreign(space, pid);
        }
    }

    /// Pages that were broken because those who shared them may not.
    #[must_use]
    pub fn parted(&self) -> u64 {
        self.breaks.as_ref().map_or(0, Breaks::pages)
    }

    /// Whether a space is followed.
    #[must_use]
    pub fn has(&self, space: SpaceId) -> bool {
        self.spaces.has(space)
    }

    /// A process whose address space this is.
    #[must_use]
    pub fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.spaces.process_of(space)
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
        let before = self.spaces.left().len();
        self.selection.excluded.extend(selectors.clone());
        self.excluded.extend(selectors);
        for pid in self.followed.keys().copied().collect::<Vec<_>>() {
            self.check(pid, domain)?;
        }
        Ok(self.spaces.left()[before..].to_vec())
    }

    /// Follows these from now on, but for those that were excluded since the start. All known processes are looked at again in the
    /// next lists.
    pub fn select(&mut self, selection: Selection) {
        self.selection = selection;
        self.selection.excluded.extend(self.excluded.clone());
        for &pid in self.followed.keys().chain(self.unfollowed.keys()) {
            self.arrivals.put(pid);
        }
        // Until now perhaps nobody was looked for.
        self.arrivals.search_now();
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
            Unfollowed::NotChosen | Unfollowed::KernelThread => None,
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

    /// Whether events tell of processes. Else they are only looked for.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.arrivals.is_told()
    }

    /// What is readable when events have come, if there are any; the next list takes them in.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.events()
    }

    /// When a process that waits is old enough to be looked at, if events told of one.
    #[must_use]
    pub fn ready_at(&self) -> Option<Nanos> {
        self.arrivals.events().and(self.arrivals.ready_at())
    }

    /// How often events were lost; each time all processes were searched.
    #[must_use]
    pub fn events_lost(&self) -> u64 {
        self.arrivals.lost()
    }

    /// The reader of `/proc` it uses.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// Checks one process: it is followed from now on, or no longer, or as before.
    fn check(&mut self, pid: u32, domain: &mut impl Domain) -> module::Result<()> {
        match self.read(pid) {
            Ok(Reading {
                stat: Some(stat),
                wanted: true,
            }) => self.follow(pid, stat, domain),
            Ok(Reading { stat, .. }) => {
                // Nobody will tell when a young one calls exec.
                if let Some(stat) = stat.as_ref().filter(|_| !self.is_told()) {
                    self.turns.note_unchosen(pid, stat);
                }
                let is_kernel_s = stat.as_ref().is_some_and(Stat::is_kernel_thread);
                self.let_go(pid, domain)?;
                let why = match is_kernel_s {
                    true => Unfollowed::KernelThread,
                    false => Unfollowed::NotChosen,
                };
                self.unfollowed.insert(pid, why);
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
        let is_ours = self
            .supervisor
            .is_some_and(|supervisor| pid == supervisor || stat.parent == supervisor);
        let wanted =
            stat.has_memory() && !is_ours && self.selection.include(&self.proc, pid, &stat)?;
        Ok(Reading {
            stat: Some(stat),
            wanted,
        })
    }

    /// Holds and attaches a chosen process; one that is followed already may have another space now.
    fn follow(&mut self, pid: u32, stat: Stat, domain: &mut impl Domain) -> module::Result<()> {
        let followed = self.followed.get(&pid);
        let held = followed.filter(|f| f.start_ticks == stat.start_ticks);
        let is_held = held.is_some();
        let (pidfd, stat) = if let Some(f) = held {
            // A held process is what it was; the new stat may carry a new name.
            let Ok(pidfd) = f.pidfd.try_clone() else {
                return Ok(());
            };
            (pidfd, stat)
        } else {
            self.unfollow(pid, domain)?;
            match self.hold(pid) {
                Ok(Some(held)) => held,
                Ok(None) => return Ok(()),
                Err(errno) => {
                    self.note_failure(pid, &stat.comm, errno);
                    return Ok(());
                }
            }
        };
        let error = match domain.attach(pidfd.as_fd()) {
            Ok(attached) => return self.note_space(pid, &stat, pidfd, attached.space, domain),
            Err(error) => error,
        };
        match error.errno() {
            Some(Errno::NOMEM) => {
                self.shortages += 1;
                if !is_held {
                    self.note_failure(pid, &stat.comm, Errno::NOMEM);
                }
            }
            Some(errno @ (Errno::PERM | Errno::SRCH | Errno::BUSY | Errno::NOSPC)) => {
                self.unfollow(pid, domain)?;
                self.note_failure(pid, &stat.comm, errno);
            }
            _ => return Err(error),
        }
        Ok(())
    }

    /// Opens a pidfd and proves that `/proc` speaks of the process that it holds: that process is
    /// alive after `/proc` was read, so the id was no other's. None if it is gone or not wanted.
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
        stat: &Stat,
        pidfd: OwnedFd,
        space: SpaceId,
        domain: &mut impl Domain,
    ) -> module::Result<()> {
        self.unfollowed.remove(&pid);
        if let Some(breaks) = self.breaks.as_mut().filter(|_| !self.spaces.has(space)) {
            // It may have come back.
            breaks.forget(space);
        }
        let comm = &stat.comm;
        if let Some(followed) = self.followed.get_mut(&pid) {
            let old = std::mem::replace(&mut followed.space, space);
            followed.comm.clone_from(comm);
            if old == space {
                return Ok(());
            }
            self.remove_from_space(pid, old, domain)?;
            // Its memory is as old as its exec, not as the process.
            self.spaces.add(pid, space, comm, 0);
            return Ok(());
        }
        let age = stat.age(clock::since_boot());
        self.spaces.add(pid, space, comm, age);
        let followed = Followed {
            comm: comm.clone(),
            start_ticks: stat.start_ticks,
            space,
            pidfd,
        };
        self.followed.insert(pid, followed);
        Ok(())
    }

    /// Lets go of a process that lives and is not chosen any more.
    fn let_go(&mut self, pid: u32, domain: &mut impl Domain) -> module::Result<()> {
        let Some(breaks) = &mut self.breaks else {
            return self.unfollow(pid, domain);
        };
        if let Some(followed) = self.followed.remove(&pid) {
            self.exits.forget(&followed.pidfd);
            if self.spaces.remove(pid, followed.space) {
                breaks.leave(followed.space, pid);
            }
        }
        Ok(())
    }

    /// A process has this space no longer; the last one detaches it.
    fn remove_from_space(
        &mut self,
        pid: u32,
        space: SpaceId,
        domain: &mut impl Domain,
    ) -> module::Result<()> {
        if !self.spaces.remove(pid, space) {
            return Ok(());
        }
        if let Some(breaks) = &mut self.breaks {
            breaks.forget(space);
        }
        detach(space, domain)
    }

    /// Lets go of a process, if it is followed.
    fn unfollow(&mut self, pid: u32, domain: &mut impl Domain) -> module::Result<()> {
        match self.followed.remove(&pid) {
            Some(followed) => {
                self.exits.forget(&followed.pidfd);
                self.remove_from_space(pid, followed.space, domain)
            }
            None => Ok(()),
        }
    }

    /// A chosen process could not be attached: that is logged once.
    fn note_failure(&mut self, pid: u32, comm: &str, errno: Errno) {
        let before = self.unfollowed.insert(pid, Unfollowed::Failed(errno));
        let news = before != Some(Unfollowed::Failed(errno)) && errno != Errno::SRCH;
        if self.started && news {
            let error = module::Error::Call {
                verb: Verb::Attach,
                errno,
            };
            tracing::info!("process {pid} ({comm}) is left alone: {error}");
        }
    }
}

/// Detaches a space, if the module still knows it.
fn detach(space: SpaceId, domain: &mut impl Domain) -> module::Result<()> {
    match domain.detach(space) {
        Err(error) if error.errno() != Some(Errno::NOENT) => Err(error),
        _ => Ok(()),
    }
}

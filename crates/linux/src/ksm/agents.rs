//! Processes that take advice, each through its own connection.
//!
//! # Problem
//! Any process may connect, may send anything, may stop answering, and may become another program.
//! One process may connect thousands of times.
//!
//! # Approach
//! A connection *is* an address space: the agent's descriptor is closed by exec and by the end of
//! the process. `peer` identifies the process that made it. Nothing here waits: advice is queued,
//! answers are collected when they have arrived (`connection`), and an agent that does not answer
//! in time, or breaks the contract, is disconnected. An agent's messages are trusted only about its
//! own memory: the answers only report which advice was taken.
//!
//! Any process can connect to the socket: the daemon decides which processes it advises, and an
//! agent only receives ranges of its own process. A process has one connection: a newer one
//! replaces the older one. Connections of one user and of all are bounded, and so is the number
//! accepted at a time.
//!
//! # Source
//! `uksm_interface::advice`; unix(7).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::event::{Timespec, epoll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
pub use uksm_interface::advice::{Advice, DONE, Range, SOCKET_VARIABLE};
use uksm_policy::command::{Nanos, SpaceId};

use crate::clock;
use crate::proc::{self, Proc};
use crate::socket_file::{self, SocketFile};

mod connection;
mod peer;

pub use connection::AgentLost;
use connection::Connection;
use peer::Peer;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Maximum number that can wait: the kernel compares the length of the queue before it adds one.
const MAX_WAITING_CONNECTIONS: u32 = BACKLOG.unsigned_abs() + 1;

/// Maximum number of connections accepted at a time; others wait.
const MAX_ACCEPTED_AT_ONCE: usize = 128;

/// Maximum number of connections. Each takes two descriptors, and two more where the process is a
/// target.
pub const MAX_AGENTS: usize = 4096;

/// Maximum number of connections of one user.
pub const MAX_AGENTS_OF_USER: usize = 1024;

/// Spaces of agents are numbered from 1 to below this.
pub const END_OF_SPACES: u32 = 1 << 31;

/// Maximum number of answers and ends collected at a time.
const MAX_EVENTS: usize = 256;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Maximum numbers of connections.
#[derive(Debug, Clone, Copy)]
struct Limits {
    all: usize,
    of_user: usize,
}

/// The socket and all connected agents.
#[derive(Debug)]
pub struct Agents {
    limits: Limits,
    listener: OwnedFd,
    /// Readable when an agent has answered, or has gone.
    events: OwnedFd,
    _file: SocketFile,
    agents: BTreeMap<SpaceId, Connection>,
    /// The connection of each process.
    by_process: BTreeMap<u32, SpaceId>,
    next: u32,
    /// All connections that waited at this time, since boot, have been accepted.
    drained_at: Nanos,
    /// A later such time, and the number of connections to accept until it holds: all that could
    /// wait then.
    draining: (Nanos, u32),
    /// Disconnected and not yet reported.
    lost: Vec<SpaceId>,
}

/// Messages and losses of agents.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentEvents {
    /// Outcomes of the oldest unanswered ranges of a space, in order.
    pub answers: Vec<(SpaceId, Vec<u32>)>,
    /// Spaces without an agent from now on.
    pub lost: Vec<SpaceId>,
}

impl Agents {
    /// Listens at `path`, which no other process may be using. Its folder becomes passable for
    /// everybody, if it is this user's own.
    ///
    /// # Errors
    /// The path cannot be used.
    pub fn listen(path: &Path) -> std::io::Result<Agents> {
        if let Some(folder) = path.parent().filter(|folder| folder.is_dir()) {
            let found = folder.metadata()?;
            let is_own = found.uid() == rustix::process::geteuid().as_raw();
            let mode = found.permissions().mode();
            if is_own && mode & 0o111 != 0o111 {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o111))?;
            }
        }
        socket_file::remove_stale(path)?;
        // Nothing can connect before it is bound.
        let drained_at = clock::since_boot();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::of_bound(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        listen(&listener, BACKLOG)?;
        Ok(Agents {
            limits: Limits {
                all: MAX_AGENTS,
                of_user: MAX_AGENTS_OF_USER,
            },
            listener,
            events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            _file: file,
            agents: BTreeMap::new(),
            by_process: BTreeMap::new(),
            next: 1,
            drained_at,
            draining: (drained_at, MAX_WAITING_CONNECTIONS),
            lost: Vec::new(),
        })
    }

    /// Readable when an agent has connected.
    #[must_use]
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Readable when [`Agents::collect`] has something to collect.
    #[must_use]
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Accepts waiting connections, a bounded number: their spaces and processes.
    pub fn accept(&mut self, proc: &Proc) -> Vec<(SpaceId, u32)> {
        let mut came = Vec::new();
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        for agent in self.agents.values() {
            *of_users.entry(agent.peer.user).or_default() += 1;
        }
        for _ in 0..MAX_ACCEPTED_AT_ONCE {
            let asked_at = clock::since_boot();
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => {
                    self.drained_at = asked_at;
                    self.draining = (asked_at, MAX_WAITING_CONNECTIONS);
                    break;
                }
                // No descriptor, or the connection was closed before: continued next time.
                Err(_) => break,
            };
            // A refused connection is closed, so that the socket does not stay readable; the agent
            // tries again later.
            let peer = Peer::of(&socket, proc, self.drained_at);
            self.note_taken(asked_at);
            let Some(peer) = peer else {
                continue;
            };
            if let Some(&older) = self.by_process.get(&peer.pid) {
                if let Some(agent) = self.agents.get(&older) {
                    let count = of_users.entry(agent.peer.user).or_default();
                    *count = count.saturating_sub(1);
                }
                self.let_go(older);
            }
            let count = of_users.entry(peer.user).or_default();
            if *count >= self.limits.of_user || self.agents.len() >= self.limits.all {
                continue;
            }
            let pid = peer.pid;
            let Some(space) = self.add(socket, peer) else {
                continue;
            };
            *count += 1;
            came.push((space, pid));
        }
        came
    }

    /// A waiting connection was accepted. Connections are accepted in the order in which they came,
    /// so that even a socket with connections waiting all the time counts as drained.
    fn note_taken(&mut self, now: Nanos) {
        let (since, left) = &mut self.draining;
        *left -= 1;
        if *left == 0 {
            self.drained_at = *since;
            self.draining = (now, MAX_WAITING_CONNECTIONS);
        }
    }

    fn add(&mut self, socket: OwnedFd, peer: Peer) -> Option<SpaceId> {
        let space = self.unused();
        let data = epoll::EventData::new_u64(u64::from(space.0));
        for fd in [&socket, &peer.pidfd] {
            epoll::add(&self.events, fd, data, epoll::EventFlags::IN).ok()?;
        }
        self.by_process.insert(peer.pid, space);
        self.agents.insert(space, Connection::new(socket, peer));
        Some(space)
    }

    /// The next number that no agent uses.
    fn unused(&mut self) -> SpaceId {
        loop {
            let space = SpaceId(self.next);
            self.next = match self.next + 1 {
                END_OF_SPACES => 1,
                next => next,
            };
            // There are far fewer agents than numbers.
            if !self.agents.contains_key(&space) && !self.lost.contains(&space) {
                return space;
            }
        }
    }

    /// Collects the answers that have arrived, and disconnects agents that have ended, sent
    /// something unasked, or are overdue. A bounded number at a time: [`Agents::events`] stays
    /// readable if there are more.
    pub fn collect(&mut self, now: Nanos) -> AgentEvents {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.events, buffer, Some(&NOW)).is_err() {
            // Interrupted: they are still there next time.
            events.clear();
        }
        let ready = events
            .iter()
            .filter_map(|event| u32::try_from(event.data.u64()).ok());
        // A socket and a pidfd of one agent can both be ready.
        let ready: BTreeSet<SpaceId> = ready.map(SpaceId).collect();
        let mut answers = Vec::new();
        for space in ready {
            let Some(agent) = self.agents.get_mut(&space) else {
                continue;
            };
            match agent.receive(now) {
                Ok(_) if !agent.peer.is_alive() => self.let_go(space),
                Ok(outcomes) if outcomes.is_empty() => {}
                Ok(outcomes) => answers.push((space, outcomes)),
                Err(AgentLost) => self.let_go(space),
            }
        }
        AgentEvents {
            answers,
            lost: std::mem::take(&mut self.lost),
        }
    }

    /// Disconnects agents whose answer is overdue; [`Agents::collect`] reports them.
    pub fn expire(&mut self, now: Nanos) {
        let overdue = self
            .agents
            .iter()
            .filter(|(_, agent)| agent.is_overdue(now));
        let overdue: Vec<SpaceId> = overdue.map(|(&space, _)| space).collect();
        for space in overdue {
            self.let_go(space);
        }
    }

    /// Closes a connection; [`Agents::collect`] reports it.
    pub fn let_go(&mut self, space: SpaceId) {
        if let Some(agent) = self.agents.remove(&space) {
            self.by_process.remove(&agent.peer.pid);
            self.lost.push(space);
        }
    }

    /// The spaces of all connected agents, ascending.
    #[must_use]
    pub fn spaces(&self) -> Vec<SpaceId> {
        self.agents.keys().copied().collect()
    }

    /// The process of a space, if it has an agent.
    #[must_use]
    pub fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.agents.get(&space).map(|agent| agent.peer.pid)
    }

    /// Whether the process of a space runs, and still as the user that connected or with that
    /// user's rights. If so, anything read or opened by its id before this call is its own, and not
    /// of a program that exec gave the rights of another user.
    ///
    /// # Errors
    /// Its user cannot be read.
    pub fn is_still_itself(&self, space: SpaceId, proc: &Proc) -> proc::Result<bool> {
        let Some(agent) = self.agents.get(&space) else {
            return Ok(false);
        };
        let user = proc.user(agent.peer.pid)?;
        let may_know = agent.peer.user == 0 || agent.peer.user == user;
        Ok(may_know && agent.peer.is_alive())
    }

    /// Whether all advice for a space was answered, or it has no agent.
    #[must_use]
    pub fn is_idle(&self, space: SpaceId) -> bool {
        self.agents.get(&space).is_none_or(Connection::is_idle)
    }

    /// Number of connected agents.
    #[must_use]
    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// Sends this advice for ranges of a process's memory; [`Agents::collect`] returns an outcome
    /// for each.
    ///
    /// # Errors
    /// It has no agent, or too many ranges wait for its answers: it is disconnected.
    pub fn advise(
        &mut self,
        space: SpaceId,
        advice: Advice,
        ranges: &[Range],
        now: Nanos,
    ) -> Result<(), AgentLost> {
        let agent = self.agents.get_mut(&space).ok_or(AgentLost)?;
        let added = agent.add(advice, ranges, now);
        if added.is_err() {
            self.let_go(space);
        }
        added
    }
}

#[cfg(test)]
mod tests;

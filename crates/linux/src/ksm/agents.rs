//! Processes that take advice, each by a connection of its own.
//!
//! # Problem
//! Any process may connect, may say anything, may stop answering, and may become another program.
//!
//! # Approach
//! A connection *is* an address space: the agent's descriptor is closed by exec and by the end of
//! the process. The kernel says which process made it. Advice is sent as one message and answered before the next; who
//! does not answer in time, or not as the contract says, is let go. Nothing that an agent says is believed
//! beyond its own memory: the answers only tell which advice was taken.
//!
//! The socket can be connected to by everybody: the daemon decides whom it advises, and an agent is only ever told
//! of ranges of its own process.
//!
//! # Source
//! `uksm_interface::advice`; unix(7).

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with,
};
pub use uksm_interface::advice::{Advice, DONE, Range, SOCKET_VARIABLE};
use uksm_interface::advice::{LONGEST, MOST_RANGES, Message, Outcomes};
use uksm_policy::command::SpaceId;

/// Who has not answered after so long is let go: unmerging 64 MiB takes a tenth of it.
const PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Most connections.
pub const MOST: usize = 16_384;

#[derive(Debug)]
struct Agent {
    socket: OwnedFd,
    pid: u32,
}

/// The socket, and who has connected.
#[derive(Debug)]
pub struct Agents {
    listener: OwnedFd,
    path: PathBuf,
    agents: BTreeMap<SpaceId, Agent>,
    next: u32,
}

/// It is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl Agents {
    /// Listens at `path`, which nobody else may be using. The folder of it becomes one that everybody may pass, if
    /// it is this user's own.
    ///
    /// # Errors
    /// The place cannot be had.
    pub fn listen(path: &Path) -> std::io::Result<Agents> {
        if let Some(folder) = path.parent().filter(|folder| folder.is_dir()) {
            let found = folder.metadata()?;
            let is_own = found.uid() == rustix::process::geteuid().as_raw();
            let mode = found.permissions().mode();
            if is_own && mode & 0o111 != 0o111 {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o111))?;
            }
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        listen(&listener, BACKLOG)?;
        Ok(Agents {
            listener,
            path: path.to_owned(),
            agents: BTreeMap::new(),
            next: 1,
        })
    }

    /// Readable when an agent has come.
    #[must_use]
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes those that have come: their spaces, and their processes.
    pub fn accept(&mut self) -> Vec<(SpaceId, u32)> {
        let mut came = Vec::new();
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            // Let go, lest the socket stays readable; the agent tries again later.
            if self.agents.len() >= MOST {
                continue;
            }
            let Ok(peer) = getsockopt(&socket, PeerCredentials) else {
                continue;
            };
            // Zero is one outside this daemon's PID namespace: nothing can be known of it.
            let Some(pid) = u32::try_from(peer.pid()).ok().filter(|&pid| pid > 0) else {
                continue;
            };
            let space = SpaceId(self.next);
            self.next = self.next.wrapping_add(1).max(1);
            self.agents.insert(space, Agent { socket, pid });
            came.push((space, pid));
        }
        came
    }

    /// Lets those go that have ended, or say what nobody asked: their spaces.
    pub fn gone(&mut self) -> Vec<SpaceId> {
        let now = Timespec::default();
        let is_gone = |agent: &Agent| {
            let mut watched = [PollFd::new(&agent.socket, PollFlags::IN)];
            poll(&mut watched, Some(&now)).map_or(true, |count| count > 0)
        };
        let gone = self.agents.iter().filter(|(_, agent)| is_gone(agent));
        let gone: Vec<SpaceId> = gone.map(|(&space, _)| space).collect();
        for space in &gone {
            self.agents.remove(space);
        }
        gone
    }

    /// The spaces of all that have connected, ascending.
    #[must_use]
    pub fn spaces(&self) -> Vec<SpaceId> {
        self.agents.keys().copied().collect()
    }

    /// The process of a space, if it has an agent.
    #[must_use]
    pub fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.agents.get(&space).map(|agent| agent.pid)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// Has a process do this with ranges of its memory; answers an outcome for each.
    ///
    /// # Errors
    /// It has no agent, or that did not answer as it should: it is let go.
    pub fn advise(
        &mut self,
        space: SpaceId,
        advice: Advice,
        ranges: &[Range],
    ) -> Result<Vec<u32>, Lost> {
        let agent = self.agents.get(&space).ok_or(Lost)?;
        let mut outcomes = Vec::new();
        for ranges in ranges.chunks(MOST_RANGES) {
            match agent.ask(&Message::new(advice, ranges)) {
                Some(answer) if answer.len() == ranges.len() => outcomes.extend(answer),
                _ => {
                    self.agents.remove(&space);
                    return Err(Lost);
                }
            }
        }
        Ok(outcomes)
    }
}

impl Agent {
    fn ask(&self, message: &Message) -> Option<Vec<u32>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.socket, message.bytes().as_slice(), flags).ok()?;
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        loop {
            match poll(&mut watched, Some(&PATIENCE)) {
                Ok(0) => return None,
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        let mut bytes = [0; LONGEST + 1];
        let (length, _) = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT).ok()?;
        let outcomes = Outcomes::parse(bytes.get(..length)?).ok()?;
        Some(outcomes.as_slice().to_vec())
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::connect;
    use uksm_interface::advice::NOT_ANONYMOUS;

    fn agents() -> (tempfile::TempDir, Agents) {
        let folder = tempfile::tempdir().unwrap();
        let agents = Agents::listen(&folder.path().join("agents")).unwrap();
        (folder, agents)
    }

    fn connected(folder: &tempfile::TempDir) -> OwnedFd {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let path = folder.path().join("agents");
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        socket
    }

    /// Answers so many messages as told.
    fn answering(socket: OwnedFd, answers: Vec<Vec<u8>>) -> std::thread::JoinHandle<Vec<Message>> {
        std::thread::spawn(move || {
            let answered = answers.into_iter().map(|answer| {
                let mut bytes = [0; 1024];
                let (length, _) = recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
                send(&socket, &answer, SendFlags::NOSIGNAL).unwrap();
                Message::parse(&bytes[..length]).unwrap()
            });
            answered.collect()
        })
    }

    fn ranges(count: u64) -> Vec<Range> {
        let range = |at| Range {
            start: at * 8192,
            end: at * 8192 + 4096,
        };
        (1..=count).map(range).collect()
    }

    #[test]
    fn advice_is_passed_on_in_parts_and_outcomes_come_back_in_order() {
        let (folder, mut agents) = agents();
        let socket = connected(&folder);
        let came = agents.accept();
        assert_eq!((came.len(), came[0].1), (1, std::process::id()));
        let space = came[0].0;
        let mut first = [DONE; 32];
        first[7] = NOT_ANONYMOUS;
        let answers =
            [&first[..], &[12, DONE]].map(|all| Outcomes::new(all).bytes().as_slice().to_vec());
        let thread = answering(socket, answers.to_vec());
        let outcomes = agents.advise(space, Advice::Merge, &ranges(34)).unwrap();
        assert_eq!(outcomes.len(), 34);
        assert_eq!(
            (outcomes[6], outcomes[7], outcomes[32]),
            (DONE, NOT_ANONYMOUS, 12)
        );
        let messages = thread.join().unwrap();
        let sent: Vec<Range> = messages.iter().flat_map(|m| m.ranges().to_vec()).collect();
        assert_eq!(sent, ranges(34));
        assert_eq!(agents.gone(), [space], "the thread closed it");
        assert_eq!(agents.count(), 0);
    }

    #[test]
    fn who_answers_wrongly_or_not_at_all_is_let_go() {
        let short = Outcomes::new(&[DONE]).bytes().as_slice().to_vec();
        for answer in [b"nonsense".to_vec(), short, vec![0; 2000]] {
            let (folder, mut agents) = agents();
            let socket = connected(&folder);
            let space = agents.accept()[0].0;
            let thread = answering(socket, vec![answer]);
            assert_eq!(agents.advise(space, Advice::Merge, &ranges(2)), Err(Lost));
            thread.join().unwrap();
            assert_eq!(agents.process_of(space), None);
        }
        let (folder, mut agents) = agents();
        let silent = connected(&folder);
        let space = agents.accept()[0].0;
        let begun = std::time::Instant::now();
        assert_eq!(agents.advise(space, Advice::Merge, &ranges(1)), Err(Lost));
        assert!(begun.elapsed().as_millis() >= 1000, "it was waited for");
        drop(silent);
    }

    #[test]
    fn who_speaks_unasked_is_let_go() {
        let (folder, mut agents) = agents();
        let socket = connected(&folder);
        let space = agents.accept()[0].0;
        assert_eq!(agents.gone(), []);
        send(&socket, b"hello", SendFlags::NOSIGNAL).unwrap();
        assert_eq!(agents.gone(), [space]);
    }

    #[test]
    fn everybody_may_connect_and_the_socket_goes_with_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let only_own = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), only_own).unwrap();
        let path = folder.path().join("agents");
        let agents = Agents::listen(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(folder.path())), (0o666, 0o711));
        drop(agents);
        assert!(!path.exists());
    }
}

//! The connection to the daemon.
//!
//! # Problem
//! Whoever listens at the path could be anybody. The program may close every descriptor that it does not know,
//! and another file can come to have the number.
//!
//! # Approach
//! The socket's file must be root's or the process's own user's, and so must be who listens. The descriptor is moved
//! to a high number, which programs seldom get; before each read it must still be the socket that it was.
//! One message is answered after another. A malformed one ends the agent.
//!
//! # Source
//! unix(7) (`SO_PEERCRED`, `SOCK_SEQPACKET`).

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, stat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::{Resource, geteuid, getrlimit};
use uksm_interface::advice::{LONGEST, Message};

use crate::own_memory;

/// The number of the descriptor is at least this, or half of what is allowed.
const HIGH: u64 = 1000;

/// Without a message, it looks so often whether it is still needed.
const LOOK_SECONDS: i64 = 10;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The daemon went; another may come.
    Closed,
    /// Nothing more is to be done in this process.
    ForGood,
}

/// One connection.
pub(crate) struct Connection {
    socket: ManuallyDrop<OwnedFd>,
    /// What the descriptor is: device and inode.
    identity: (u64, u64),
}

impl Connection {
    /// Connects, if somebody listens who may.
    pub(crate) fn to(path: &CStr) -> Option<Connection> {
        let me = geteuid();
        let may = |uid: u32| uid == 0 || uid == me.as_raw();
        let file = stat(path).ok()?;
        let is_socket = FileType::from_raw_mode(file.st_mode) == FileType::Socket;
        if !is_socket || !may(file.st_uid) {
            return None;
        }
        let flags = SocketFlags::CLOEXEC;
        let low = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
        connect(&low, &SocketAddrUnix::new(path).ok()?).ok()?;
        if !may(getsockopt(&low, PeerCredentials).ok()?.uid()) {
            return None;
        }
        let socket = ManuallyDrop::new(moved(low));
        let identity = identity(socket.as_fd())?;
        Some(Connection { socket, identity })
    }

    /// Does what is asked until the end.
    pub(crate) fn serve(&self) -> Ended {
        let look = Timespec {
            tv_sec: LOOK_SECONDS,
            tv_nsec: 0,
        };
        let mut bytes = [0u8; LONGEST + 1];
        loop {
            let mut watched = [PollFd::new(&*self.socket, PollFlags::IN)];
            let ready = poll(&mut watched, Some(&look));
            if crate::is_filtered() || own_memory::is_alone() {
                return Ended::ForGood;
            }
            match ready {
                Ok(0) => continue,
                Ok(_) => {}
                Err(_) => return Ended::ForGood,
            }
            // The program has closed it, or given the number to something else.
            if identity(self.socket.as_fd()) != Some(self.identity) {
                return Ended::ForGood;
            }
            let Ok((length, _)) = recv(&*self.socket, &mut bytes, RecvFlags::DONTWAIT) else {
                return Ended::Closed;
            };
            if length == 0 {
                return Ended::Closed;
            }
            let received = bytes.get(..length).unwrap_or_default();
            let Ok(message) = Message::parse(received) else {
                return Ended::ForGood;
            };
            let answer = own_memory::advise(&message).bytes();
            let flags = SendFlags::NOSIGNAL;
            if send(&*self.socket, answer.as_slice(), flags).is_err() {
                return Ended::Closed;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A number that is something else's by now is not this library's to close.
        if identity(self.socket.as_fd()) == Some(self.identity) {
            // SAFETY: it is dropped here only, and not used after that.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

/// Under a high number, if there is one.
fn moved(low: OwnedFd) -> OwnedFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(HIGH * 2);
    let least = i32::try_from(HIGH.min(limit / 2)).unwrap_or(0);
    fcntl_dupfd_cloexec(&low, least).unwrap_or(low)
}

fn identity(descriptor: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let file = fstat(descriptor).ok()?;
    let is_socket = FileType::from_raw_mode(file.st_mode) == FileType::Socket;
    is_socket.then_some((file.st_dev, file.st_ino))
}

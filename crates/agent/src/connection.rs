//! The connection to the daemon.
//!
//! # Problem
//! Any process could listen at the path. A child that the program forks must not share the
//! connection: it may have fewer rights than its parent, and could answer in its place.
//!
//! # Approach
//! The socket's file and its listener must belong to root or to the process's own user. The agent's
//! thread has a descriptor table of its own ([`own_table`]), so the socket is in no table that
//! another thread's fork copies, and the program can neither close it nor reuse its number for
//! another file. Messages are answered one after another. A malformed one ends the agent.
//!
//! # Source
//! unix(7) (`SO_PEERCRED`, `SOCK_SEQPACKET`), `close_range(2)`.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, stat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::geteuid;
use uksm_interface::advice::{LONGEST, Message};

use crate::own_memory;
use crate::system_call_filter::is_filtered;

/// Minimum number of the socket: the C library prints its last messages to 2, and the daemon must
/// not receive them.
const MIN_DESCRIPTOR: i32 = 3;

/// Without a message, the agent checks at this interval whether it is still needed.
const CHECK_INTERVAL_SECONDS: i64 = 10;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The daemon ended; another may start.
    Closed,
    /// The agent has no further work in this process.
    ForGood,
}

/// One connection.
pub(crate) struct Connection {
    socket: OwnedFd,
}

/// Gives the calling thread an empty descriptor table of its own. Returns whether it has one.
pub(crate) fn own_table() -> bool {
    let (first, last, flags) = (0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: the thread owns no descriptor yet, and the tables of other threads stay as they are.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
}

impl Connection {
    /// Connects, if a process listens that is permitted to.
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
        let socket = fcntl_dupfd_cloexec(&low, MIN_DESCRIPTOR).ok()?;
        Some(Connection { socket })
    }

    /// Performs requests until the end.
    pub(crate) fn serve(&self) -> ConnectionEnd {
        let look = Timespec {
            tv_sec: CHECK_INTERVAL_SECONDS,
            tv_nsec: 0,
        };
        let mut bytes = [0u8; LONGEST + 1];
        loop {
            let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
            let ready = poll(&mut watched, Some(&look));
            if is_filtered() || own_memory::is_alone() {
                return ConnectionEnd::ForGood;
            }
            match ready {
                Ok(0) => continue,
                Ok(_) => {}
                Err(_) => return ConnectionEnd::ForGood,
            }
            let Ok((length, _)) = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) else {
                return ConnectionEnd::Closed;
            };
            if length == 0 {
                return ConnectionEnd::Closed;
            }
            let received = bytes.get(..length).unwrap_or_default();
            let Ok(message) = Message::parse(received) else {
                return ConnectionEnd::ForGood;
            };
            let answer = own_memory::advise(&message).bytes();
            let flags = SendFlags::NOSIGNAL;
            if send(&self.socket, answer.as_slice(), flags).is_err() {
                return ConnectionEnd::Closed;
            }
        }
    }
}

//! The connection to the daemon.
//!
//! # Problem
//! Whoever listens at the path could be anybody. A child that the program forks must have no part
//! in the connection: it may have fewer rights than its parent, and could answer in its place.
//!
//! # Approach
//! The socket's file must be root's or the process's own user's, and so must be who listens. The
//! agent's thread has a descriptor table of its own ([`own_table`]), so the socket is in no table
//! that another thread's fork copies, and the program can neither close it nor give its number to
//! another file. One message is answered after another. A malformed one ends the agent.
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

/// The socket's number is at least this: the C library prints its last words to 2, and the daemon
/// is not to get them.
const MIN_DESCRIPTOR: i32 = 3;

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
    socket: OwnedFd,
}

/// Gives the calling thread a descriptor table of its own, with nothing in it. Answers whether it
/// has one.
pub(crate) fn own_table() -> bool {
    let (first, last, flags) = (0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: the thread owns no descriptor yet, and the tables of other threads stay as they are.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
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
        let socket = fcntl_dupfd_cloexec(&low, MIN_DESCRIPTOR).ok()?;
        Some(Connection { socket })
    }

    /// Does what is asked until the end.
    pub(crate) fn serve(&self) -> Ended {
        let look = Timespec {
            tv_sec: LOOK_SECONDS,
            tv_nsec: 0,
        };
        let mut bytes = [0u8; LONGEST + 1];
        loop {
            let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
            let ready = poll(&mut watched, Some(&look));
            if crate::is_filtered() || own_memory::is_alone() {
                return Ended::ForGood;
            }
            match ready {
                Ok(0) => continue,
                Ok(_) => {}
                Err(_) => return Ended::ForGood,
            }
            let Ok((length, _)) = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) else {
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
            if send(&self.socket, answer.as_slice(), flags).is_err() {
                return Ended::Closed;
            }
        }
    }
}

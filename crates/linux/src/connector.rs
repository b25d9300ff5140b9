//! Process events from the kernel (fork, exec, rename, exit): the proc connector.
//!
//! # Problem
//! Finding new processes by search costs in proportion to all processes, and misses short-lived
//! ones.
//!
//! # Approach
//! The kernel multicasts an event for each of these over netlink. A socket filter drops, in the
//! kernel, events of threads, users and sessions, so that only events of processes cost a wake-up
//! and a read. A sleeping machine can poll this socket; the next process list reads the events. If
//! there are more than the socket holds, the kernel reports that once and drops the rest:
//! [`Connector::take`] reports the loss, and the caller checks all processes.
//!
//! The connector works only in the first network, process and user namespaces, and requires
//! `CAP_NET_ADMIN`. The kernel confirms a subscription by an event, or does not answer at all; so
//! [`Connector::open`] waits for the confirmation. Sending to this socket requires the same right.
//! A forged message could only cause one more check of a process.
//!
//! # Units
//! Process ids; times of the monotonic clock, which the kernel writes into events.
//!
//! # Source
//! `linux/cn_proc.h`, `linux/connector.h`; netlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

mod filter;
mod message;

use message::Message;
pub use message::{Event, EventKind};

/// The multicast group of process events (`CN_IDX_PROC`), as a mask.
const GROUP: u32 = 1;

/// Room for events, in bytes of kernel memory: some ten thousand events.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Maximum number of events of one [`Connector::take`]: a few milliseconds.
const MAX_EVENTS_PER_READ: usize = 1024;

/// Maximum time until the confirmation. The kernel sends it within the call that requests it.
const CONFIRMATION_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The result of reading events that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadSummary {
    /// Events were lost before or between those that were read.
    pub lost: bool,
    /// More events wait.
    pub more: bool,
}

/// A subscription to the kernel's process events.
#[derive(Debug)]
pub struct Connector {
    socket: OwnedFd,
}

/// Readable when events have come, or were lost.
impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connector {
    /// Subscribes.
    ///
    /// # Errors
    /// No right, no support, or not in the first namespaces.
    pub fn open() -> io::Result<Connector> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, protocol) = (AddressFamily::NETLINK, Some(netlink::CONNECTOR));
        let socket = net::socket_with(family, SocketType::DGRAM, flags, protocol)?;
        filter::attach(&socket)?;
        // Without the right to exceed the system's limit, the socket holds fewer events.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        }
        net::bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        let token = std::process::id();
        net::send(&socket, &message::subscription(token), SendFlags::empty())?;
        let connector = Connector { socket };
        connector.confirm(token)?;
        Ok(connector)
    }

    /// Waits for the confirmation of the subscription with this token.
    fn confirm(&self, token: u32) -> io::Result<()> {
        loop {
            let mut coming = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut coming, Some(&CONFIRMATION_TIMEOUT))? == 0 {
                let what = "the kernel sends no confirmation: process events need CAP_NET_ADMIN \
                            and the host's namespaces";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            match self.receive() {
                Ok(Some(Message::Confirmed { token: of, error })) if of == token => {
                    return match i32::try_from(error) {
                        Ok(0) => Ok(()),
                        Ok(code) => Err(io::Error::from_raw_os_error(code)),
                        Err(_) => Err(io::ErrorKind::InvalidData.into()),
                    };
                }
                // Other events, and confirmations of other subscriptions.
                Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Calls `each` for the events that have come, in their order; a bounded number.
    pub fn take(&self, mut each: impl FnMut(Event)) -> ReadSummary {
        let mut taken = ReadSummary::default();
        for _ in 0..MAX_EVENTS_PER_READ {
            match self.receive() {
                Ok(Some(Message::Event(event))) => each(event),
                Ok(_) => {}
                Err(Errno::AGAIN) => return taken,
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => taken.lost = true,
                Err(errno) => {
                    tracing::warn!("events of processes: {errno}");
                    taken.lost = true;
                    return taken;
                }
            }
        }
        taken.more = true;
        taken
    }

    /// The next message, if it is of a known kind.
    fn receive(&self) -> Result<Option<Message>, Errno> {
        let mut bytes = [0; message::LENGTH];
        let (_, length) = net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(Message::read(&bytes[..length.min(message::LENGTH)]))
    }
}

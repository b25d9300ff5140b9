//! Is told by the kernel of forks, execs, changes of name and exits: the proc connector.
//!
//! # Problem
//! To find new processes by looking for them costs in proportion to all processes, and short-lived
//! ones are never seen.
//!
//! # Approach
//! The kernel multicasts an event for each of these over netlink. A socket filter drops, in the
//! kernel, what concerns threads, users and sessions, so that only events about processes wake
//! nothing and cost a read each. Who sleeps may wait at the socket, too; the next process list
//! reads what has come. If more comes than the socket holds, the kernel says so once and drops the
//! rest: [`Connector::take`] reports the loss, and the caller looks at all processes.
//!
//! The connector answers only in the first network, process and user namespaces, and to who has
//! `CAP_NET_ADMIN`. The kernel takes a subscription without a word and then confirms it by an
//! event, or does not answer at all; so [`Connector::open`] waits for the confirmation. A message
//! can be sent to this socket with the same right only. What a forged one could do is to have a
//! process looked at once more.
//!
//! # Units
//! Process ids; times of the monotonic clock, by which the kernel stamps events.
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
pub use message::{Event, What};

/// The multicast group of process events (`CN_IDX_PROC`), as a mask.
const GROUP: u32 = 1;

/// Room for events, in bytes of the kernel's: some ten thousand.
const BUFFER: usize = 4 << 20;

/// Events of one [`Connector::take`] at most: a few milliseconds.
const MAX_TAKEN: usize = 1024;

/// How long a confirmation may take. The kernel sends it within the call that asks for it.
const CONFIRMED_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What [`Connector::take`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Events were lost before, or between, those that were taken.
    pub lost: bool,
    /// More are there.
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
        // Without the right to more than the system allows, the socket holds fewer events.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
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
            if poll(&mut coming, Some(&CONFIRMED_WITHIN))? == 0 {
                let what = "no confirmation: it needs CAP_NET_ADMIN and the host's namespaces";
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
                // Other events, and confirmations of others.
                Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Gives `tell` the events that have come, in their order; a bounded number.
    pub fn take(&self, mut tell: impl FnMut(Event)) -> Taken {
        let mut taken = Taken::default();
        for _ in 0..MAX_TAKEN {
            match self.receive() {
                Ok(Some(Message::Event(event))) => tell(event),
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

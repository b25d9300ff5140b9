//! The messages of the proc connector: three structures one behind the other.
//!
//! # Approach
//! A message is the head of netlink (`struct nlmsghdr`, 16 bytes), that of the connector
//! (`struct cn_msg`, 20 bytes), and a `struct proc_event`. Offsets count from the message's start;
//! numbers are of the machine's byte order.
//!
//! # Source
//! `linux/netlink.h`, `linux/connector.h`, `linux/cn_proc.h`.

use uksm_policy::command::Nanos;

/// The longest message: an event with the largest of its bodies.
pub(super) const LENGTH: usize = 80;

/// Offset of `proc_event.what`.
pub(super) const WHAT: usize = 36;
/// Offset of an event's body. It begins with the thread, except for a fork.
pub(super) const THREAD: usize = 52;
/// The process of that thread.
pub(super) const PROCESS: usize = 56;
/// In a fork: the thread that was made, and its process.
pub(super) const CHILD_THREAD: usize = 60;
pub(super) const CHILD_PROCESS: usize = 64;

/// `cn_msg.ack`.
const ACK: usize = 28;
/// `proc_event.timestamp_ns`.
const TIME: usize = 44;

/// Kinds of events (`PROC_EVENT_*`).
pub(super) const CONFIRMATION: u32 = 0;
pub(super) const FORK: u32 = 1;
pub(super) const EXEC: u32 = 2;
pub(super) const COMM: u32 = 0x200;
pub(super) const EXIT: u32 = 0x8000_0000;

/// A change of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Forked,
    /// It runs another program, in another address space.
    Execed,
    /// It has another name. An exec changes the name as well.
    Renamed,
    /// Its first thread has ended, and in most cases the process.
    Exited,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The change.
    pub kind: EventKind,
    /// The process.
    pub pid: u32,
    /// The time.
    pub at: Nanos,
}

/// A message of a known kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// A change of a process.
    Event(Event),
    /// The kernel answers a subscription.
    Confirmed {
        /// The token of the subscription.
        token: u32,
        /// Its errno; 0 if it was accepted.
        error: u32,
    },
}

impl Message {
    /// The message in these bytes; none if it is of another kind, or cut off.
    pub(super) fn read(bytes: &[u8]) -> Option<Message> {
        let kind = match word(bytes, WHAT)? {
            CONFIRMATION => {
                return Some(Message::Confirmed {
                    token: word(bytes, ACK)?.wrapping_sub(1),
                    error: word(bytes, THREAD)?,
                });
            }
            FORK => EventKind::Forked,
            EXEC => EventKind::Execed,
            COMM => EventKind::Renamed,
            EXIT => EventKind::Exited,
            _ => return None,
        };
        let place = if kind == EventKind::Forked {
            CHILD_PROCESS
        } else {
            PROCESS
        };
        let time = bytes.get(TIME..TIME + 8)?.try_into().ok()?;
        Some(Message::Event(Event {
            kind,
            pid: word(bytes, place)?,
            at: u64::from_ne_bytes(time),
        }))
    }
}

/// The subscription to all events; its confirmation carries the token.
pub(super) fn subscription(token: u32) -> [u8; 40] {
    const LISTEN: u32 = 1;
    /// `CN_IDX_PROC` and `CN_VAL_PROC`.
    const PROCESSES: u32 = 1;
    let mut bytes = [0; 40];
    let mut put = |at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    };
    put(0, 40);
    put(16, PROCESSES);
    put(20, PROCESSES);
    put(ACK, token);
    put(36, LISTEN);
    // The length of the body, and NLMSG_DONE: numbers of 16 bits.
    bytes[32..34].copy_from_slice(&4_u16.to_ne_bytes());
    bytes[4..6].copy_from_slice(&3_u16.to_ne_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// An event as the kernel sends it, with `body` as its first words.
#[cfg(test)]
pub(super) fn sent(what: u32, at: Nanos, body: [u32; 4]) -> [u8; 76] {
    let mut bytes = [0; 76];
    bytes[WHAT..WHAT + 4].copy_from_slice(&what.to_ne_bytes());
    bytes[TIME..TIME + 8].copy_from_slice(&at.to_ne_bytes());
    for (place, word) in (THREAD..).step_by(4).zip(body) {
        bytes[place..place + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_process_and_not_its_parent() {
        for (number, kind, pid) in [
            (FORK, EventKind::Forked, 12),
            (EXEC, EventKind::Execed, 11),
            (COMM, EventKind::Renamed, 11),
            (EXIT, EventKind::Exited, 11),
        ] {
            let bytes = sent(number, 1 << 40, [11, 11, 12, 12]);
            let event = Event {
                kind,
                pid,
                at: 1 << 40,
            };
            assert_eq!(Message::read(&bytes), Some(Message::Event(event)));
        }
    }

    #[test]
    fn what_is_cut_off_or_of_another_kind_is_no_event() {
        let bytes = sent(FORK, 0, [1; 4]);
        assert_eq!(Message::read(&bytes[..CHILD_PROCESS + 3]), None);
        assert_eq!(Message::read(&[]), None);
        assert_eq!(Message::read(&sent(4, 0, [1; 4])), None);
    }

    #[test]
    fn a_confirmation_carries_the_token_and_an_errno() {
        let mut bytes = sent(CONFIRMATION, 0, [1, 0, 0, 0]);
        bytes[ACK..ACK + 4].copy_from_slice(&78_u32.to_ne_bytes());
        let confirmed = Message::Confirmed {
            token: 77,
            error: 1,
        };
        assert_eq!(Message::read(&bytes), Some(confirmed));
        assert_eq!(word(&subscription(77), ACK), Some(77));
    }
}

//! Hints that a supervisor hands over to the workers of groups.
//!
//! # Problem
//! The supervisor has the right to load the BPF programs, and loads them once for all groups. A
//! worker must receive the hints of its own spaces only.
//!
//! # Approach
//! Each worker has a pair of sockets. A message consists of records as the programs write them
//! ([`uksm_hint`]), with the space's id in the worker's domain. The supervisor never waits: hints
//! that a worker does not read in time are queued, up to a bound; beyond it the oldest are dropped
//! and counted, as are hints that were lost in the ring. Both losses are sent as records of their
//! own.
//!
//! # Units
//! 40 bytes a record; at most 512 records a message.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use uksm_bpf::{UKSM_HINT_GROWTH, UKSM_HINT_LOST, UKSM_HINT_READ, UKSM_HINT_WRITE, uksm_hint};
use uksm_policy::command::{FilePlace, Hint, HintSource, SpaceId};

use super::batch::{HintBatch, MAX_BATCH_HINTS};

/// Maximum number of records in a message.
const MAX_MESSAGE_RECORDS: usize = 512;
const RECORD_BYTES: usize = size_of::<uksm_hint>();

/// Maximum number of records that wait for a worker, beside those in the socket: 640 KiB. About as
/// many arrive during a sleep of some seconds.
const MAX_WAITING_RECORDS: usize = 1 << 14;

/// Maximum number of spaces whose lost hints are remembered by space; further losses are reported
/// without a space.
const MAX_LOST_SPACES: usize = 1024;

/// The record counts lost hints, of no particular space.
const NO_SPACE: u32 = u32::MAX;

/// The supervisor's end.
#[derive(Debug)]
pub struct HintSender {
    socket: OwnedFd,
    /// Hints that the worker has not read, the oldest first.
    waiting: VecDeque<uksm_hint>,
    /// Lost hints that were not yet reported to the worker.
    lost: u64,
    lost_of: BTreeSet<SpaceId>,
}

/// The worker's end.
#[derive(Debug)]
pub struct HintReceiver {
    socket: OwnedFd,
    lost: u64,
}

/// Both ends; the second is for [`HintReceiver::of`] in the worker.
///
/// # Errors
/// No more file descriptors.
pub fn pair() -> io::Result<(HintSender, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let sender = HintSender {
        socket: ours,
        waiting: VecDeque::new(),
        lost: 0,
        lost_of: BTreeSet::new(),
    };
    Ok((sender, theirs))
}

fn record(space: u32, source: u32) -> uksm_hint {
    uksm_hint {
        space,
        source,
        ..uksm_hint::default()
    }
}

fn of_hint(hint: &Hint) -> uksm_hint {
    let source = match hint.source {
        HintSource::Read => UKSM_HINT_READ,
        HintSource::Write => UKSM_HINT_WRITE,
    };
    let place = hint.place.unwrap_or(FilePlace {
        file_size: 0,
        offset: 0,
    });
    uksm_hint {
        start: hint.start,
        length: hint.length,
        file_size: place.file_size,
        offset: place.offset,
        ..record(hint.space.0, source)
    }
}

/// The hint in a record of I/O.
pub(super) fn hint_of(record: &uksm_hint) -> Hint {
    Hint {
        start: record.start,
        length: record.length,
        space: SpaceId(record.space),
        source: match record.source {
            UKSM_HINT_WRITE => HintSource::Write,
            _ => HintSource::Read,
        },
        place: (record.file_size > 0).then_some(FilePlace {
            file_size: record.file_size,
            offset: record.offset,
        }),
    }
}

impl HintSender {
    /// Sends these hints as far as the worker has room. The rest waits for [`HintSender::flush`];
    /// if too many wait, the oldest are lost.
    pub fn send(&mut self, taken: &HintBatch) {
        self.lost += taken.lost;
        for &space in &taken.lost_of {
            self.note_lost(space);
        }
        let grown = taken.grown.iter();
        let grown = grown.map(|space| record(space.0, UKSM_HINT_GROWTH));
        self.waiting.extend(grown);
        self.waiting.extend(taken.hints.iter().map(of_hint));
        while self.waiting.len() > MAX_WAITING_RECORDS
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.drop_record(&oldest);
        }
        self.flush();
    }

    /// Sends waiting hints as far as the worker has room.
    pub fn flush(&mut self) {
        let losses = self.losses();
        for loss in losses.into_iter().rev() {
            self.waiting.push_front(loss);
        }
        while !self.waiting.is_empty() {
            let message = self.waiting.iter().take(MAX_MESSAGE_RECORDS);
            let bytes: Vec<u8> = message.flat_map(uksm_hint::bytes).collect();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &bytes, flags) {
                Ok(_) => drop(self.waiting.drain(..bytes.len() / RECORD_BYTES)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                // The worker has ended: the next one starts with an empty queue.
                Err(_) => self.waiting.clear(),
            }
        }
    }

    /// Whether hints wait for the worker to read.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The losses to report; they are added again if they cannot be sent.
    fn losses(&mut self) -> Vec<uksm_hint> {
        let mut all = vec![];
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            all.push(uksm_hint {
                length: lost,
                ..record(NO_SPACE, UKSM_HINT_LOST)
            });
        }
        let of = std::mem::take(&mut self.lost_of);
        all.extend(of.iter().map(|space| record(space.0, UKSM_HINT_LOST)));
        all
    }

    fn drop_record(&mut self, record: &uksm_hint) {
        if record.source == UKSM_HINT_LOST {
            self.lost += record.length;
        } else {
            self.lost += 1;
        }
        if record.space != NO_SPACE {
            self.note_lost(SpaceId(record.space));
        }
    }

    fn note_lost(&mut self, space: SpaceId) {
        if self.lost_of.len() < MAX_LOST_SPACES {
            self.lost_of.insert(space);
        }
    }
}

impl HintReceiver {
    /// The worker's end, from its socket.
    #[must_use]
    pub fn of(socket: OwnedFd) -> HintReceiver {
        HintReceiver { socket, lost: 0 }
    }

    /// Reads the hints that wait, a bounded number.
    pub fn take(&mut self) -> HintBatch {
        let mut taken = HintBatch::default();
        let mut bytes = vec![0; MAX_MESSAGE_RECORDS * RECORD_BYTES];
        while taken.hints.len() < MAX_BATCH_HINTS {
            let length = match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) if length > 0 => length,
                Err(Errno::INTR) => continue,
                // Nothing waits, or the supervisor has ended, which the channel reports.
                _ => return taken,
            };
            let records =
                bytes[..length.min(MAX_MESSAGE_RECORDS * RECORD_BYTES)].chunks_exact(RECORD_BYTES);
            for record in records.filter_map(uksm_hint::read) {
                match record.source {
                    UKSM_HINT_GROWTH => taken.grown.push(SpaceId(record.space)),
                    UKSM_HINT_LOST => {
                        taken.lost += record.length;
                        self.lost += record.length;
                        if record.space != NO_SPACE {
                            taken.lost_of.push(SpaceId(record.space));
                        }
                    }
                    _ => taken.hints.push(hint_of(&record)),
                }
            }
        }
        taken.more = true;
        taken
    }

    /// Lost hints, as far as they were reported.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Readable when hints wait.
impl AsFd for HintReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(start: u64) -> Hint {
        Hint {
            start,
            length: 4096,
            space: SpaceId(7),
            source: HintSource::Write,
            place: Some(FilePlace {
                file_size: 1 << 20,
                offset: 8192,
            }),
        }
    }

    #[test]
    fn what_is_handed_over_arrives_as_it_was() {
        let (mut sender, theirs) = pair().unwrap();
        let mut hints = HintReceiver::of(theirs);
        let sent_batch = HintBatch {
            hints: (0..1000).map(|n| hint(n << 12)).collect(),
            lost: 3,
            lost_of: vec![SpaceId(9)],
            grown: vec![SpaceId(8)],
            more: false,
        };
        sender.send(&sent_batch);
        let taken = hints.take();
        assert_eq!(taken.hints, sent_batch.hints);
        assert_eq!((taken.lost, hints.lost()), (3, 3));
        assert_eq!(
            (taken.lost_of, taken.grown),
            (sent_batch.lost_of, sent_batch.grown)
        );
        assert!(hints.take().hints.is_empty());
    }

    #[test]
    fn what_a_slow_worker_does_not_take_is_lost_and_reported_later() {
        let (mut sender, theirs) = pair().unwrap();
        let mut hints = HintReceiver::of(theirs);
        let sent_batch = HintBatch {
            hints: (0..1000).map(hint).collect(),
            ..HintBatch::default()
        };
        let sent = 100;
        assert!(!sender.is_behind());
        (0..sent).for_each(|_| sender.send(&sent_batch));
        assert!(sender.is_behind());
        let (mut came, mut newest) = (0, 0);
        loop {
            sender.flush();
            let taken = hints.take();
            let Some(last) = taken.hints.last() else {
                break;
            };
            came += taken.hints.len() as u64;
            newest = last.start;
        }
        assert!(
            (MAX_WAITING_RECORDS as u64..sent * 1000).contains(&came),
            "{came}"
        );
        assert_eq!(came + hints.lost(), sent * 1000);
        assert_eq!(newest, 999, "the newest is never dropped");
    }
}

//! The spaces of a group, and the news about them that its worker has yet to receive.
//!
//! # Problem
//! A worker may be slow, dead, or not started yet, while processes come and go. A new worker has to
//! know all spaces of its domain, and also those that have left and are not detached yet.
//!
//! # Approach
//! A space is held here from ATTACH until the worker reports that it has detached the space. News
//! waits in a queue, and is sent as fast as the worker reads. A new worker gets all spaces that are
//! held, and then those that have left. A space that ends before its worker has received it is
//! never sent, and a changed size is sent once: so the queue is never longer than three times the
//! number of spaces.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use uksm_linux::clock;
use uksm_linux::processes::{ArrivedSpace, LeftSpace};
use uksm_linux::supervised_spaces::SpaceNotice;
use uksm_policy::command::{Nanos, SpaceArrival, SpaceId, SpaceSize};

use crate::groups::supervisor::domain_savings::DomainProcess;
use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SpaceNote, SupervisorMessage};

/// Maximum number of notes in one message, at some 80 bytes each.
const MAX_BATCH: usize = 512;

/// Minimum change of size that is reported, in pages.
const MIN_CHANGE: u64 = 16;

#[derive(Debug)]
struct HandedSpace {
    pid: u32,
    kind: u64,
    /// Time when its memory began to age; 0 if that is before the machine started.
    born: Nanos,
    /// It can have frames of another group.
    is_mixed: bool,
    /// Whether its process lives on, once it has left.
    left: Option<bool>,
    /// The last measured size that was reported, if any.
    size: Option<SpaceSize>,
}

/// The spaces of one domain.
#[derive(Debug, Default)]
pub(super) struct Handover {
    held: BTreeMap<SpaceId, HandedSpace>,
    queue: VecDeque<SpaceNotice>,
}

impl Handover {
    /// Adds a space that was attached, and that can have frames of another group if `is_mixed`.
    pub(super) fn arrive(&mut self, arrived: ArrivedSpace, is_mixed: bool) {
        let SpaceArrival { space, kind, age } = arrived.arrival;
        let held = HandedSpace {
            pid: arrived.pid,
            kind,
            born: clock::now().saturating_sub(age),
            is_mixed,
            left: None,
            size: None,
        };
        self.queue.push_back(held.arrival(space));
        self.held.insert(space, held);
    }

    /// Notes that a space has left. Answers whether it has to be detached at once, because its
    /// worker never received it.
    pub(super) fn leave(&mut self, left: LeftSpace) -> bool {
        let LeftSpace { space, lives, .. } = left;
        let is_it = |news: &SpaceNotice| matches!(news, SpaceNotice::Arrived { arrival, .. } if arrival.space == space);
        if !lives && let Some(at) = self.queue.iter().position(is_it) {
            self.queue.remove(at);
            self.held.remove(&space);
            return true;
        }
        let Some(held) = self.held.get_mut(&space) else {
            return true;
        };
        held.left = Some(lives);
        self.queue.push_back(SpaceNotice::Left { space, lives });
        false
    }

    /// The worker reports that it has detached this space. Answers whether that is believed: only
    /// if the space has left.
    pub(super) fn detached(&mut self, space: SpaceId) -> bool {
        let held = self.held.get(&space);
        let has_left = held.is_some_and(|held| held.left.is_some());
        if has_left {
            self.held.remove(&space);
        }
        has_left
    }

    /// Whether no space is held, not even a leaving one.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether this space is held.
    pub(super) fn holds(&self, space: SpaceId) -> bool {
        self.held.contains_key(&space)
    }

    /// The spaces that a process still has, in the group or not yet unmerged from it.
    pub(super) fn living(&self) -> impl Iterator<Item = SpaceId> + '_ {
        let living = self
            .held
            .iter()
            .filter(|(_, held)| held.left != Some(false));
        living.map(|(&space, _)| space)
    }

    /// The spaces whose processes are in the group.
    pub(super) fn here(&self) -> impl Iterator<Item = SpaceId> + '_ {
        let here = self.held.iter().filter(|(_, held)| held.left.is_none());
        here.map(|(&space, _)| space)
    }

    /// The same, with their processes and their sizes as far as they were measured.
    pub(super) fn processes(&self) -> impl Iterator<Item = DomainProcess> + '_ {
        let here = self.held.iter().filter(|(_, held)| held.left.is_none());
        here.map(|(&space, held)| DomainProcess {
            space,
            pid: held.pid,
            anon_pages: held.size.map_or(0, |size| size.anon_pages),
        })
    }

    /// Takes measured sizes of spaces in the group. A worker measures new spaces by itself; it gets
    /// a message about those that have changed since.
    pub(super) fn measured(&mut self, sizes: &[SpaceSize]) {
        for &size in sizes {
            let Some(held) = self.held.get_mut(&size.space) else {
                continue;
            };
            let before = held.size.get_or_insert(size);
            let news = SpaceNotice::Resized(size.space);
            if size.gone || !has_changed(before, &size) {
                continue;
            }
            *before = size;
            if !self.queue.contains(&news) {
                self.queue.push_back(news);
            }
        }
    }

    /// Forgets all spaces of a domain that is gone.
    pub(super) fn forget(&mut self) {
        *self = Handover::default();
    }

    /// Queues all spaces for a new worker.
    pub(super) fn begin_again(&mut self) {
        self.queue.clear();
        for (&space, held) in &self.held {
            self.queue.push_back(held.arrival(space));
            if let Some(lives) = held.left {
                self.queue.push_back(SpaceNotice::Left { space, lives });
            }
        }
    }

    /// Whether news is queued.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends as much as the worker reads.
    ///
    /// # Errors
    /// The worker is gone.
    pub(super) fn send(&mut self, channel: &Channel) -> io::Result<()> {
        while !self.queue.is_empty() {
            let batch = self.queue.iter().take(MAX_BATCH);
            let notes: Vec<SpaceNote> = batch.map(|&news| SpaceNote::from(news)).collect();
            let reported = notes.len();
            match channel.send(&SupervisorMessage::Spaces(notes), None) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                answer => answer?,
            }
            self.queue.drain(..reported);
        }
        Ok(())
    }
}

/// Whether the size of a space differs clearly. Small changes are no reason to wake its worker;
/// they add up.
fn has_changed(before: &SpaceSize, now: &SpaceSize) -> bool {
    let change = now.anon_pages.abs_diff(before.anon_pages);
    (now.mappings, now.pages) != (before.mappings, before.pages)
        || change >= MIN_CHANGE.max(before.anon_pages / 64)
}

impl HandedSpace {
    fn arrival(&self, space: SpaceId) -> SpaceNotice {
        SpaceNotice::Arrived {
            pid: self.pid,
            arrival: SpaceArrival {
                space,
                kind: self.kind,
                age: clock::now().saturating_sub(self.born),
            },
            is_mixed: self.is_mixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_linux::selection::GroupId;

    fn arrived(space: u32) -> ArrivedSpace {
        ArrivedSpace {
            group: GroupId(1),
            pid: 100 + space,
            arrival: SpaceArrival {
                space: SpaceId(space),
                kind: 5,
                age: 1_000_000_000,
            },
        }
    }

    fn left(space: u32, lives: bool) -> LeftSpace {
        LeftSpace {
            group: GroupId(1),
            space: SpaceId(space),
            was_reported: true,
            lives,
        }
    }

    /// The notes that a worker receives, without ages.
    fn received(channel: &Channel) -> Vec<(u32, Option<bool>)> {
        let mut all = Vec::new();
        while let Ok(Some((SupervisorMessage::Spaces(notes), _))) =
            channel.receive(Some(std::time::Duration::ZERO))
        {
            all.extend(notes.into_iter().map(|note| match SpaceNotice::from(note) {
                SpaceNotice::Arrived { arrival, .. } => {
                    assert!(arrival.age >= 1_000_000_000);
                    (arrival.space.0, None)
                }
                SpaceNotice::Left { space, lives } => (space.0, Some(lives)),
                SpaceNotice::Resized(space) => (1000 + space.0, None),
            }));
        }
        all
    }

    #[test]
    fn new_worker_gets_all_spaces_and_those_not_detached() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut handover = Handover::default();
        (1..=3).for_each(|space| handover.arrive(arrived(space), false));
        handover.send(&ours).unwrap();
        assert_eq!(received(&theirs), [(1, None), (2, None), (3, None)]);
        assert!(!handover.leave(left(1, true)) && !handover.leave(left(2, false)));
        assert_eq!(handover.here().collect::<Vec<_>>(), [SpaceId(3)]);
        handover.begin_again();
        assert!(handover.detached(SpaceId(2)));
        assert!(!handover.detached(SpaceId(2)), "it is detached already");
        assert!(!handover.detached(SpaceId(3)), "it has not left");
        handover.begin_again();
        handover.send(&ours).unwrap();
        assert_eq!(received(&theirs), [(1, None), (1, Some(true)), (3, None)]);
    }

    #[test]
    fn space_that_ends_unsent_is_never_sent_and_a_living_one_is_unmerged() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut handover = Handover::default();
        (1..=2).for_each(|space| handover.arrive(arrived(space), false));
        assert!(handover.leave(left(1, false)));
        assert!(
            !handover.leave(left(2, true)),
            "it may share what it was born with"
        );
        handover.send(&ours).unwrap();
        assert_eq!(received(&theirs), [(2, None), (2, Some(true))]);
    }

    #[test]
    fn size_is_sent_once_after_a_large_change() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut handover = Handover::default();
        handover.arrive(arrived(1), false);
        let mut measured = |anon_pages: u64, mappings: u64| {
            handover.measured(&[SpaceSize {
                space: SpaceId(1),
                gone: false,
                mappings,
                pages: 100,
                anon_pages,
            }]);
            handover.send(&ours).unwrap();
            received(&theirs)
        };
        assert_eq!(
            measured(1000, 3),
            [(1, None)],
            "it measures what came by itself"
        );
        assert_eq!(measured(1015, 3), []);
        assert_eq!(measured(1016, 3), [(1001, None)], "little by little");
        assert_eq!(measured(1016, 3), []);
        assert_eq!(measured(1016, 4), [(1001, None)]);
        handover.measured(&[]);
    }

    #[test]
    fn slow_reader_gets_all_news_later() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut handover = Handover::default();
        (1..=20_000).for_each(|space| handover.arrive(arrived(space), false));
        handover.send(&ours).unwrap();
        assert!(handover.is_waiting());
        let mut all = Vec::new();
        while handover.is_waiting() {
            all.extend(received(&theirs));
            handover.send(&ours).unwrap();
        }
        all.extend(received(&theirs));
        assert!(all.iter().map(|(space, _)| *space).eq(1..=20_000));
        drop(theirs);
        handover.arrive(arrived(1), false);
        assert!(handover.send(&ours).is_err());
    }
}

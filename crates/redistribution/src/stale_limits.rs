//! Changes that an earlier daemon did not undo, at places that are no members any more.
//!
//! # Problem
//! A daemon was killed, and the next one has another configuration: those limits and balloons would
//! never be put back.
//!
//! # Approach
//! Each has a thread that puts it back, as members have; one that does not answer is tried again
//! after [`RETRY_INTERVAL_NS`]. Places that are gone need nothing.
//!
//! # Units
//! [`Nanos`].

use std::time::Instant;

use crate::cgroup_tree::CgroupTree;
use crate::event::Event;
use crate::guard::Nanos;
use crate::member_thread::MemberThread;
use crate::restore_journal::{JournalEntry, RestoreJournal};
use crate::settings::SizeControl;
use crate::size_control_actuator::actuator;

/// The time after which one that could not be put back is tried again.
const RETRY_INTERVAL_NS: Nanos = 30_000_000_000;

#[derive(Debug)]
struct StaleLimit {
    entry: JournalEntry,
    /// The thread that puts it back; none during a pause.
    thread: Option<MemberThread>,
    /// The time of the next try.
    due: Nanos,
    reported: Option<String>,
}

/// All stale limits.
#[derive(Debug, Default)]
pub(crate) struct StaleLimits(Vec<StaleLimit>);

impl StaleLimits {
    /// The entries of the journal without those of these places.
    pub(crate) fn of(journal: &RestoreJournal, members: &[&SizeControl]) -> StaleLimits {
        let mut entries = journal.entries();
        entries.retain(|entry| !members.contains(&&entry.place));
        let left = entries.into_iter().map(|entry| StaleLimit {
            entry,
            thread: None,
            due: 0,
            reported: None,
        });
        StaleLimits(left.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops those that have become members.
    pub(crate) fn leave(&mut self, members: &[&SizeControl]) {
        self.0.retain(|left| !members.contains(&&left.entry.place));
    }

    /// Continues, and returns the results.
    pub(crate) fn turn(
        &mut self,
        now: Nanos,
        (tree, journal): (&CgroupTree, &RestoreJournal),
    ) -> Vec<Event> {
        let mut events = Vec::new();
        self.0.retain_mut(|left| {
            let Some(thread) = &left.thread else {
                if now >= left.due {
                    left.begin(tree, journal);
                    left.due = now + RETRY_INTERVAL_NS;
                }
                return true;
            };
            let Some(done) = thread.released() else {
                return true;
            };
            left.thread = None;
            let is_settled = !journal.entries().contains(&left.entry);
            let error = done.err();
            if is_settled || error != left.reported {
                events.push(left.event(error.clone()));
                left.reported = error;
            }
            !is_settled
        });
        events
    }

    /// Waits until all have been tried, or until the deadline.
    pub(crate) fn await_all(
        &mut self,
        deadline: Instant,
        own: (&CgroupTree, &RestoreJournal),
    ) -> Vec<Event> {
        let mut events = self.turn(0, own);
        for left in &self.0 {
            if let Some(thread) = &left.thread {
                events.push(left.event(thread.await_release(deadline).err()));
            }
        }
        self.0.retain(|left| own.1.entries().contains(&left.entry));
        events
    }
}

impl StaleLimit {
    fn begin(&mut self, tree: &CgroupTree, journal: &RestoreJournal) {
        self.thread = MemberThread::new(actuator(&self.entry.place, tree, journal)).ok();
        self.thread.iter().for_each(MemberThread::release);
    }

    fn event(&self, error: Option<String>) -> Event {
        Event::PutBack {
            place: self.entry.place.to_string(),
            value: self.entry.value.clone(),
            error,
        }
    }
}

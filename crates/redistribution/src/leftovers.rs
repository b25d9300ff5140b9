//! Changes that an earlier daemon did not undo, at places that are no members any more.
//!
//! # Problem
//! A daemon was killed, and the next one has another configuration: those limits and balloons would
//! never be put back.
//!
//! # Approach
//! Each has a thread that puts it back, as members have; one that does not answer is tried again
//! after [`PAUSE`]. Places that are gone need nothing.
//!
//! # Units
//! [`Nanos`].

use std::time::Instant;

use crate::before::{Book, Entry};
use crate::cgroup_tree::CgroupTree;
use crate::event::Event;
use crate::guard::Nanos;
use crate::hand::Hand;
use crate::place_actuator::actuator;
use crate::settings::Place;

/// The time after which one that could not be put back is tried again.
const PAUSE: Nanos = 30_000_000_000;

#[derive(Debug)]
struct Leftover {
    entry: Entry,
    /// The thread that puts it back; none during a pause.
    hand: Option<Hand>,
    /// The time of the next try.
    due: Nanos,
    told: Option<String>,
}

/// All leftovers.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Vec<Leftover>);

impl Leftovers {
    /// The entries of the book without those of these places.
    pub(crate) fn of(book: &Book, members: &[&Place]) -> Leftovers {
        let mut entries = book.entries();
        entries.retain(|entry| !members.contains(&&entry.place));
        let left = entries.into_iter().map(|entry| Leftover {
            entry,
            hand: None,
            due: 0,
            told: None,
        });
        Leftovers(left.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops those that have become members.
    pub(crate) fn leave(&mut self, members: &[&Place]) {
        self.0.retain(|left| !members.contains(&&left.entry.place));
    }

    /// Continues, and returns the results.
    pub(crate) fn turn(&mut self, now: Nanos, (tree, book): (&CgroupTree, &Book)) -> Vec<Event> {
        let mut events = Vec::new();
        self.0.retain_mut(|left| {
            let Some(hand) = &left.hand else {
                if now >= left.due {
                    left.begin(tree, book);
                    left.due = now + PAUSE;
                }
                return true;
            };
            let Some(done) = hand.released() else {
                return true;
            };
            left.hand = None;
            let is_settled = !book.entries().contains(&left.entry);
            let error = done.err();
            if is_settled || error != left.told {
                events.push(left.event(error.clone()));
                left.told = error;
            }
            !is_settled
        });
        events
    }

    /// Waits until all have been tried, or until the deadline.
    pub(crate) fn await_all(&mut self, deadline: Instant, own: (&CgroupTree, &Book)) -> Vec<Event> {
        let mut events = self.turn(0, own);
        for left in &self.0 {
            if let Some(hand) = &left.hand {
                events.push(left.event(hand.await_release(deadline).err()));
            }
        }
        self.0.retain(|left| own.1.entries().contains(&left.entry));
        events
    }
}

impl Leftover {
    fn begin(&mut self, tree: &CgroupTree, book: &Book) {
        self.hand = Hand::new(actuator(&self.entry.place, tree, book)).ok();
        self.hand.iter().for_each(Hand::release);
    }

    fn event(&self, error: Option<String>) -> Event {
        Event::PutBack {
            place: self.entry.place.to_string(),
            value: self.entry.value.clone(),
            error,
        }
    }
}

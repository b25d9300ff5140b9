//! Tickets: pages that were read for a hint carry one until they are merged.

use std::num::NonZeroU16;

use crate::command::Nanos;
use crate::ids::Ticket;

/// Tickets that are told apart: more hints than can be between a SAMPLE and its FOLD.
const TICKETS: u16 = 1 << 13;

/// When the hint of each ticket was taken in.
#[derive(Debug)]
pub(super) struct Tickets {
    taken: Box<[Nanos]>,
    last: u16,
}

impl Tickets {
    pub(super) fn new() -> Tickets {
        Tickets {
            taken: Box::default(),
            last: 0,
        }
    }

    /// The ticket of a hint that was taken in then.
    pub(super) fn give(&mut self, taken: Nanos) -> Ticket {
        if self.taken.is_empty() {
            self.taken = vec![0; usize::from(TICKETS)].into();
        }
        self.last = self.last % (TICKETS - 1) + 1;
        self.taken[usize::from(self.last)] = taken;
        Ticket(NonZeroU16::new(self.last).expect("they are numbered from 1"))
    }

    /// Bytes they take.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.taken)
    }

    /// When its hint was taken in.
    pub(super) fn taken(&self, ticket: Ticket) -> Nanos {
        self.taken[usize::from(ticket.0.get())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_go_round() {
        let mut tickets = Tickets::new();
        let first = tickets.give(7);
        let others: Vec<Ticket> = (1..TICKETS - 1).map(|n| tickets.give(n.into())).collect();
        assert!(others.iter().all(|&other| other != first));
        assert_eq!(tickets.taken(first), 7);
        assert_eq!(tickets.give(9), first);
        assert_eq!(tickets.taken(first), 9);
    }
}

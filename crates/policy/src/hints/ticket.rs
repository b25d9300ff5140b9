//! Tickets: pages that were read for a hint carry one until they are merged. It gives the time when
//! the hint was taken in, and the places of its pages in a file.

use std::num::NonZeroU16;

use super::file_yield::Origin;
use super::stack::WaitingHint;
use crate::command::Nanos;
use crate::ids::Ticket;

/// Number of distinct tickets: more than the hints between a SAMPLE and its FOLD.
const TICKETS: u16 = 1 << 13;

/// A hint, as its ticket gives it.
#[derive(Debug, Clone, Copy, Default)]
struct TicketHint {
    taken: Nanos,
    /// The difference between the number of a page's place in files and its number counted from
    /// address 0.
    to_place: Option<u64>,
    origin: Origin,
}

/// The hint of each ticket.
#[derive(Debug)]
pub(super) struct Tickets {
    hints: Box<[TicketHint]>,
    last: u16,
}

impl Tickets {
    pub(super) fn new() -> Tickets {
        Tickets {
            hints: Box::default(),
            last: 0,
        }
    }

    /// A ticket for a hint.
    pub(super) fn give(&mut self, hint: &WaitingHint) -> Ticket {
        if self.hints.is_empty() {
            self.hints = vec![TicketHint::default(); usize::from(TICKETS)].into();
        }
        self.last = self.last % (TICKETS - 1) + 1;
        self.hints[usize::from(self.last)] = TicketHint {
            taken: hint.at,
            to_place: hint.file.map(|first| first.wrapping_sub(hint.from)),
            origin: hint.origin,
        };
        Ticket(NonZeroU16::new(self.last).expect("they are numbered from 1"))
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.hints)
    }

    /// The time when its hint was taken in.
    pub(super) fn taken(&self, ticket: Ticket) -> Nanos {
        self.hints[usize::from(ticket.0.get())].taken
    }

    /// The file and direction of its hint.
    pub(super) fn origin(&self, ticket: Ticket) -> Origin {
        self.hints[usize::from(ticket.0.get())].origin
    }

    /// The place in files of a page of its hint, counted from address 0; see [`super::file_page`].
    pub(super) fn place(&self, ticket: Ticket, page: u64) -> Option<u64> {
        let to_place = self.hints[usize::from(ticket.0.get())].to_place;
        to_place.map(|to_place| page.wrapping_add(to_place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::SpaceId;

    fn hint(at: Nanos, file: Option<u64>) -> WaitingHint {
        WaitingHint {
            from: 100,
            to: 110,
            at,
            space: SpaceId(1),
            file,
            origin: Origin::UNKNOWN,
            tries: 0,
        }
    }

    #[test]
    fn tickets_go_round() {
        let mut tickets = Tickets::new();
        let first = tickets.give(&hint(7, None));
        let others: Vec<Ticket> = (1..TICKETS - 1)
            .map(|n| tickets.give(&hint(n.into(), None)))
            .collect();
        assert!(others.iter().all(|&other| other != first));
        assert_eq!(tickets.taken(first), 7);
        assert_eq!(tickets.give(&hint(9, None)), first);
        assert_eq!(tickets.taken(first), 9);
    }

    #[test]
    fn a_ticket_tells_the_places_of_its_pages() {
        let mut tickets = Tickets::new();
        let ticket = tickets.give(&hint(7, Some(3000)));
        assert_eq!(tickets.place(ticket, 104), Some(3004));
        let ticket = tickets.give(&hint(7, Some(5)));
        assert_eq!(tickets.place(ticket, 101), Some(6));
        let ticket = tickets.give(&hint(7, None));
        assert_eq!(tickets.place(ticket, 104), None);
    }
}

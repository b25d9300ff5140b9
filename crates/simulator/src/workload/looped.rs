//! A loop that writes pages without changing their contents (UKSM §8.1.2).

use uksm_policy::command::{Nanos, PAGE_SIZE, PageState, SpaceId};
use uksm_policy::mix::SplitMix64;

use super::map;
use crate::layout::pooled;
use crate::{Host, Workload};

/// The order of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The page behind the last one, from the start to the end and again.
    InTurn,
    /// A page drawn from all.
    Random,
}

/// One process that writes some of its equal pages, sleeps, and goes on with the next ones. It
/// sleeps for a whole step after the writes, so its rate depends on the cost of writing.
#[derive(Debug, Clone)]
pub struct Loop {
    pages: u64,
    per_step: u64,
    step: Nanos,
    order: Order,
    random: SplitMix64,
    place: Option<(SpaceId, u64)>,
    next: u64,
}

impl Loop {
    /// A loop over this many pages.
    #[must_use]
    pub fn new(pages: u64, per_step: u64, step: Nanos, order: Order, seed: u64) -> Loop {
        Loop {
            pages,
            per_step,
            step,
            order,
            random: SplitMix64::new(seed),
            place: None,
            next: 0,
        }
    }
}

impl Workload for Loop {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        let content = pooled(6, 0);
        let Some((space, start)) = self.place else {
            let space = host.spawn(2);
            let pages = usize::try_from(self.pages).expect("fits in memory");
            let start = map(host, space, 1, &vec![content; pages], &mut self.random);
            self.place = Some((space, start));
            return Some(now + self.step + host.costs().late);
        };
        let mut taken = host.costs().late;
        for _ in 0..self.per_step {
            let address = start + self.next * PAGE_SIZE;
            let page = host.page(space, address).expect("it is mapped");
            taken += host.costs().write;
            if page.state != PageState::Anon {
                taken += host.costs().unshare;
            }
            host.write(space, address, content);
            self.next = match self.order {
                Order::InTurn => (self.next + 1) % self.pages,
                Order::Random => self.random.below(self.pages),
            };
        }
        Some(now + self.step + taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;

    #[test]
    fn a_loop_writes_its_pages_in_turn_and_what_writing_takes_makes_it_slower() {
        let mut host = Host::new(1, Costs::default());
        let mut work = Loop::new(10, 4, 1_000_000, Order::InTurn, 1);
        let mut now = work.act(&mut host, 0).unwrap();
        assert_eq!(now, 1_000_000);
        for _ in 0..3 {
            now = work.act(&mut host, now).unwrap();
        }
        assert_eq!(work.next, 2);
        let taken = 12 * host.costs().write;
        assert_eq!(now, 4_000_000 + taken);
    }
}

//! Virtual machines that run the same system: their page caches hold the same files in runs.

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;

use super::{SECOND, map, place};
use crate::layout::{Arrangement, Layout};
use crate::{Content, Fill, Host, Workload};

/// Shares of a guest's pages that are zeros, and that have twins in another guest, in percent.
const ZEROS: u64 = 9;
const TWINS: u64 = 45;

/// The memory of a guest that has been up for a while.
fn memory(pages: u64, owner: u64, seed: u64) -> Vec<Content> {
    let zeros = pages * ZEROS / 100;
    let filled = Layout {
        pages: pages - zeros,
        percent: TWINS * 100 / (100 - ZEROS),
        place: Arrangement::GuestRuns,
        pool: 6,
        seed,
    };
    let mut contents = filled.contents(owner);
    // Free memory is the part that the guest has not used yet: at the end.
    contents.resize(
        usize::try_from(pages).expect("fits in memory"),
        Content::ZERO,
    );
    contents
}

/// Guests that have read the files of one image, each in its own order.
#[derive(Debug, Clone)]
pub struct Guests {
    /// Number of guests.
    pub guests: u64,
    /// Pages of each.
    pub pages: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Workload for Guests {
    fn act(&mut self, host: &mut Host, _: Nanos) -> Option<Nanos> {
        let mut random = SplitMix64::new(self.seed);
        for number in 1..=self.guests {
            let space = host.spawn(4);
            let contents = memory(self.pages, number, self.seed);
            map(host, space, 1, &contents, &mut random);
        }
        None
    }
}

/// Steps in which a booting guest fills its memory.
const STEPS: u64 = 100;

/// Guests that boot one after the other.
#[derive(Debug, Clone)]
pub struct Boots {
    /// Number of guests.
    pub guests: u64,
    /// Pages of each.
    pub pages: u64,
    /// Time between two.
    pub interval: Nanos,
    /// Duration of a boot.
    pub boot: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    begun: u64,
    booting: Vec<Booting>,
}

/// A guest that boots.
#[derive(Debug, Clone)]
struct Booting {
    space: SpaceId,
    start: u64,
    begun: Nanos,
    filled: u64,
    contents: Vec<Content>,
}

impl Boots {
    /// Guests from the start on.
    #[must_use]
    pub fn new(guests: u64, pages: u64, interval: Nanos, seed: u64) -> Boots {
        Boots {
            guests,
            pages,
            interval,
            boot: 10 * SECOND,
            seed,
            begun: 0,
            booting: vec![],
        }
    }
}

impl Workload for Boots {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        if self.begun < self.guests && now >= self.begun * self.interval {
            self.begun += 1;
            let space = host.spawn(4);
            let start = place(1, &mut SplitMix64::new(self.seed ^ self.begun));
            host.map(space, start, self.pages, 1, &Fill::Empty);
            self.booting.push(Booting {
                space,
                start,
                begun: now,
                filled: 0,
                contents: memory(self.pages, self.begun, self.seed),
            });
        }
        for guest in &mut self.booting {
            let passed = (now - guest.begun).min(self.boot);
            let due = self.pages * (passed * STEPS / self.boot) / STEPS;
            while guest.filled < due {
                let page = usize::try_from(guest.filled).expect("a page of the guest");
                let address = guest.start + guest.filled * PAGE_SIZE;
                host.write(guest.space, address, guest.contents[page]);
                guest.filled += 1;
            }
        }
        self.booting.retain(|guest| guest.filled < self.pages);
        let next_boot = (self.begun < self.guests).then_some(self.begun * self.interval);
        let next_step = (!self.booting.is_empty()).then_some(now + self.boot / STEPS);
        [next_boot, next_step].into_iter().flatten().min()
    }
}

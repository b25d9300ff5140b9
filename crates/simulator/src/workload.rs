//! Models of workloads on hosts.
//!
//! Each model is a [`Workload`](crate::Workload) that starts its processes at its first action, at
//! the start, and returns the time of its next one. All that is random comes from its seed.
//! `docs/simulator.md` has the sources of the figures.

mod churn;
mod crowd;
mod disks;
mod fleet;
mod guests;
mod looped;
mod page_cache;
mod snapshot;
mod static_pages;

pub use churn::{Rewritten, ShortLived};
pub use crowd::Crowd;
pub use disks::{Disks, Load};
pub use fleet::Fleet;
pub use guests::{Boots, Guests};
pub use looped::{Loop, Order};
pub use snapshot::Snapshots;
pub use static_pages::{Scatter, StaticMixed, Zipf};

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;

use crate::{Content, Fill, Host};

pub(crate) const SECOND: Nanos = 1_000_000_000;

/// The kind of mapping that models have.
const ANONYMOUS: u64 = 1;

/// The start of a mapping of a process by its number: far from the others, at a random page.
fn place(number: u64, random: &mut SplitMix64) -> u64 {
    0x1000_0000_0000 + number * (1 << 36) + random.below(1 << 20) * PAGE_SIZE
}

/// Maps pages of these contents; returns the address.
pub(crate) fn map(
    host: &mut Host,
    space: SpaceId,
    number: u64,
    contents: &[Content],
    random: &mut SplitMix64,
) -> u64 {
    let start = place(number, random);
    let content = |page: u64| contents[usize::try_from(page).expect("a page of the mapping")];
    let pages = contents.len() as u64;
    host.map(space, start, pages, ANONYMOUS, &Fill::Dense(&content));
    start
}

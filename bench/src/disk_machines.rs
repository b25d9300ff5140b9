//! Processes that simulate virtual machines: each has a page cache over a disk of its own.
//!
//! # Problem
//! Most duplicates of virtual machines are contents of their disks, and come and go with the reads
//! of the machines (XLH §1). To compare systems, all must meet the same reads at the same times,
//! and the shareable pages must be known at each moment.
//!
//! # Approach
//! A [`Machine`] is a plan made from a seed. File accesses ([`accesses`]) go through a page cache
//! that drops the pages used longest ago ([`cache`]); misses become requests to the disk
//! ([`plan`]). A child carries the plan out ([`child`]): its page cache is anonymous memory, its
//! disk a file, and it reads and writes as QEMU does, by `preadv` or by io_uring. The measuring
//! process makes the same plan, and so knows the block in each page at any time ([`sharing`]).
//!
//! # Source
//! XLH §5.1, §5.2.

mod accesses;
mod cache;
pub(crate) mod child;
mod disk;
mod interface;
mod plan;
pub(crate) mod sharing;

pub(crate) use disk::Disk;
pub(crate) use plan::Plan;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::MIB_PAGES;

/// The work of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Builds a kernel.
    Build,
    /// Serves files in a shuffled order.
    Web,
}

/// The interface of a machine to its disk, like QEMU's `aio=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Aio {
    /// `preadv` and `pwritev`: QEMU's `aio=threads`.
    Threads,
    /// Vectored requests of io_uring.
    IoUring,
}

/// A process that simulates a virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Seed of all contents and of all draws.
    pub seed: u64,
    /// Its number; each machine has an order and private pages of its own.
    pub number: u64,
    /// Its work.
    pub load: Load,
    /// Its interface to the disk.
    pub aio: Aio,
    /// Its memory, in pages.
    pub pages: usize,
    /// Duration of its work.
    pub length: Duration,
    /// Divisor of its speed.
    pub slowness: u32,
    /// Offer the memory to in-kernel KSM.
    pub mergeable: bool,
    /// The file that is its disk.
    pub disk: PathBuf,
}

impl Machine {
    /// Pages of its page cache: three quarters of its memory. The rest is other memory, which never
    /// changes and is unique. It lies above the page cache.
    pub(crate) fn cache_pages(&self) -> usize {
        self.pages / 4 * 3
    }

    /// Its memory in MiB.
    pub(crate) fn mib(&self) -> f64 {
        self.pages as f64 / MIB_PAGES as f64
    }
}

/// Families of contents: of blocks of disks, and of pages that only one machine has (its number is
/// added).
const BLOCKS: u64 = 1 << 42;
const PRIVATE: u64 = 1 << 43;
/// Names of draws; numbers of machines are added.
const SIZES: u64 = 1 << 44;
const REQUESTS: u64 = 1 << 45;
const SYSTEM_REQUESTS: u64 = 1 << 46;
const SLOTS: u64 = 1 << 47;
const HEADERS: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::plan::{Action, Plan};
    use super::sharing::{chances, course};
    use super::*;

    /// A machine with this many pages that serves files.
    pub(super) fn machine(pages: usize) -> Machine {
        Machine {
            seed: 5,
            number: 0,
            load: Load::Web,
            aio: Aio::Threads,
            pages,
            length: Duration::from_secs(40),
            slowness: 1,
            mergeable: false,
            disk: PathBuf::new(),
        }
    }

    fn pair(loads: [Load; 2]) -> ([Machine; 2], [Plan; 2]) {
        let with = |number: usize| Machine {
            number: number as u64,
            load: loads[number],
            ..machine(4096)
        };
        let machines = [with(0), with(1)];
        let plans = [Plan::of(&machines[0]), Plan::of(&machines[1])];
        (machines, plans)
    }

    #[test]
    fn a_plan_is_always_the_same_in_order_of_time_and_within_its_page_cache() {
        for load in [Load::Build, Load::Web] {
            let machine = Machine {
                load,
                ..machine(4096)
            };
            let plan = Plan::of(&machine);
            assert_eq!(plan, Plan::of(&machine));
            assert!(plan.0.is_sorted_by_key(|step| step.at));
            assert!(plan.0.iter().all(|step| step.at < machine.length));
            let pages = plan.0.iter().flat_map(|step| &step.pages);
            assert_eq!(pages.max(), Some(&(machine.cache_pages() - 1)));
            let writes = plan.0.iter().any(|step| step.action == Action::WriteBack);
            assert_eq!(writes, load == Load::Build);
        }
    }

    #[test]
    fn a_chance_is_a_block_that_both_have_at_that_time() {
        let (machines, plans) = pair([Load::Web; 2]);
        let chances = chances([&machines[0], &machines[1]], [&plans[0], &plans[1]]);
        // Carried out page by page: the content of each page at this moment.
        for moment in [3.0, 17.0, 39.5] {
            let held = plans.each_ref().map(|plan| {
                let mut held = vec![None; machines[0].cache_pages()];
                for step in plan.0.iter().filter(|step| step.at.as_secs_f64() <= moment) {
                    for (block, page) in step.blocks() {
                        held[page] = Some(block);
                    }
                }
                held
            });
            let both = held[0]
                .iter()
                .flatten()
                .filter(|block| held[1].contains(&Some(**block)));
            let open = chances
                .iter()
                .filter(|c| c.from <= moment && c.until > moment);
            let open: Vec<_> = open.collect();
            assert_eq!(open.len(), both.count(), "{moment}");
            assert!(
                open.iter()
                    .all(|c| held[0][c.pages[0]] == held[1][c.pages[1]])
            );
            let course = course(&chances);
            let counted = course
                .iter()
                .rev()
                .find(|change| change.0 <= moment)
                .unwrap()
                .1;
            assert_eq!(counted, open.len());
        }
    }

    #[test]
    fn equal_loads_share_much_and_different_ones_only_the_system() {
        let shared = |loads| {
            let (machines, plans) = pair(loads);
            chances([&machines[0], &machines[1]], [&plans[0], &plans[1]]).len()
        };
        let (web, build) = (shared([Load::Web; 2]), shared([Load::Build; 2]));
        let mixed = shared([Load::Build, Load::Web]);
        assert!(web > 2000 && build > 2000, "{web} {build}");
        assert!((1..web / 4).contains(&mixed), "{mixed}");
    }
}

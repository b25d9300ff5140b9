//! In-kernel KSM.
//!
//! # Problem
//! uksm is compared with KSM. The comparison is honest only if KSM finds on the simulated host what it
//! finds on a real one, as soon and with as much work.
//!
//! # Approach
//! ksmd walks all mappings in turn, pages upwards, so many pages at a time, then sleeps. A page is
//! looked at in this order: its checksum must be that of the last scan, then the stable tree is
//! searched for a frame of its contents, then the unstable tree for a page. The unstable tree is
//! emptied with each full scan. Trees are tables here; a search costs as many comparisons as a
//! balanced tree of that size has levels. Smart scan leaves out pages that were looked at in vain
//! more and more often. A frame has at most so many mappings; then there is a second one for the
//! same contents. The advisor changes how many pages are scanned at a time, after each full scan.
//! Not modelled: NUMA trees, `use_zero_pages`, the walk over holes, and collisions of checksums.
//!
//! # Source
//! `mm/ksm.c` of Linux 6.12: `cmp_and_merge_page`, `should_skip_rmap_item`, `skip_age`,
//! `is_page_sharing_candidate`, `scan_time_advisor`.

use std::collections::HashMap;

use uksm_policy::command::{Nanos, PageState, SpaceId};

use super::held::Held;
use crate::host::in_kernel::{Place, Stretch, address};
use crate::world::{Deduplicator, Turn};
use crate::{Content, Host, KsmCosts};

/// Pages scanned in one turn at most: the host must not change unseen for longer.
const TURN_PAGES: u64 = 100;
/// Mappings of a frame (`max_page_sharing`).
const MOST_SHARERS: u32 = 256;
/// A page is not left out before it was looked at so often (`should_skip_rmap_item`).
const FIRST_LOOKS: u8 = 3;
/// How soon ksmd notices that there is something to scan.
const IDLE: Nanos = 20_000_000;
/// Bytes of an rmap item, and of a node of the stable tree.
const ITEM_BYTES: u64 = 64;

/// How KSM is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KsmSettings {
    /// `pages_to_scan`.
    pub pages_to_scan: u64,
    /// `sleep_millisecs`, as a time; 0 never sleeps.
    pub sleep: Nanos,
    /// `smart_scan`.
    pub smart_scan: bool,
    /// Whether the scan-time advisor sets `pages_to_scan`.
    pub advisor: bool,
    /// The share of a core that `pages_to_scan` is changed for, in percent.
    pub held_percent: Option<u32>,
}

/// What is kept of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    /// Its contents at the last scan: their number plus 1, or 0.
    checksum: u64,
    /// How often it was looked at.
    age: u8,
    /// How often it will be left out.
    skips: u8,
}

/// In-kernel KSM on a simulated host.
#[derive(Debug)]
pub struct Ksm {
    settings: KsmSettings,
    costs: KsmCosts,
    /// Where the scan goes on.
    cursor: Place,
    /// Pages left until the next sleep.
    batch: u64,
    /// By the mapping's place.
    items: HashMap<Place, Vec<Item>>,
    /// The frames of each content; the last one may have room.
    stable: HashMap<Content, Vec<u32>>,
    unstable: HashMap<Content, Place>,
    advisor: Advisor,
    held: Option<Held>,
    spent: Nanos,
    full_scans: u64,
    scanned: u64,
}

impl Ksm {
    /// ksmd before its first scan.
    #[must_use]
    pub fn new(settings: KsmSettings, costs: KsmCosts) -> Ksm {
        Ksm {
            settings,
            costs,
            cursor: (SpaceId(0), 0),
            batch: settings.pages_to_scan,
            items: HashMap::new(),
            stable: HashMap::new(),
            unstable: HashMap::new(),
            advisor: Advisor::default(),
            held: settings
                .held_percent
                .map(|percent| Held::new(percent, settings.pages_to_scan)),
            spent: 0,
            full_scans: 0,
            scanned: 0,
        }
    }

    /// Scans completed.
    #[must_use]
    pub fn full_scans(&self) -> u64 {
        self.full_scans
    }

    /// Pages looked at.
    #[must_use]
    pub fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Memory of its items and nodes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let items: usize = self.items.values().map(Vec::len).sum();
        (items + self.stable.len()) as u64 * ITEM_BYTES
    }

    /// Looks at pages of one mapping from the cursor on; what it cost, or nothing if all mappings
    /// were walked.
    fn scan(&mut self, host: &mut Host) -> Option<Nanos> {
        let stretch = host.mapping_behind(self.cursor)?;
        let (space, at) = self.cursor;
        let first = if space == stretch.space && at > stretch.mapping {
            (at - stretch.mapping) / uksm_policy::command::PAGE_SIZE
        } else {
            0
        };
        let key = (stretch.space, stretch.mapping);
        let mut items = self.items.remove(&key).unwrap_or_default();
        let count = usize::try_from(stretch.pages).expect("a mapping that is filled");
        items.resize(count, Item::default());
        let mut cost = 0;
        let mut page = first;
        for _ in 0..self.batch.min(TURN_PAGES) {
            let Some((found, slot)) = host.page_from(stretch, page) else {
                page = stretch.pages;
                break;
            };
            page = found + 1;
            let item = &mut items[usize::try_from(found).expect("a page of the mapping")];
            let may_skip = self.settings.smart_scan && slot.state == PageState::Anon;
            if may_skip && is_skipped(item) {
                // It is passed by on the way to the next page, and is none of the batch.
                cost += self.costs.revisit;
                continue;
            }
            self.batch -= 1;
            self.scanned += 1;
            cost += match slot.state {
                PageState::Anon if slot.pinned => self.costs.revisit,
                PageState::Anon => self.look(host, stretch, found, slot.content, item),
                _ => self.costs.revisit,
            };
        }
        self.items.insert(key, items);
        self.cursor = (stretch.space, address(stretch, page));
        Some(cost)
    }

    /// Compares a page, and merges it if it can.
    fn look(
        &mut self,
        host: &mut Host,
        stretch: Stretch,
        page: u64,
        content: Content,
        item: &mut Item,
    ) -> Nanos {
        let here = (stretch.space, address(stretch, page));
        let mut cost = self.costs.checksum;
        if item.checksum == 0 {
            cost += self.costs.first;
        }
        let checksum = content.number().wrapping_add(1);
        if std::mem::replace(&mut item.checksum, checksum) != checksum {
            return cost;
        }
        cost += self.costs.stable_step * u64::from(levels(self.stable.len()));
        if let Some(frame) = self.frame(host, content) {
            host.merge_with(here, frame);
            return cost + self.costs.merge;
        }
        cost += self.costs.tree_step * u64::from(levels(self.unstable.len()));
        let twin = self
            .unstable
            .insert(content, here)
            .filter(|&twin| twin != here);
        let is_equal = |twin: &Place| {
            let slot = host.look(*twin);
            slot.is_some_and(|slot| slot.state == PageState::Anon && slot.content == content)
        };
        let Some(twin) = twin.filter(is_equal) else {
            return cost;
        };
        self.unstable.remove(&content);
        let frame = host.merge_pair([twin, here]);
        self.stable.entry(content).or_default().push(frame);
        cost + self.costs.pair
    }

    /// A frame of these contents that has room.
    fn frame(&mut self, host: &mut Host, content: Content) -> Option<u32> {
        let frames = self.stable.get_mut(&content)?;
        frames.retain(|&frame| host.is_mapped(frame));
        if frames.is_empty() {
            self.stable.remove(&content);
            return None;
        }
        let has_room = |frame: &u32| {
            let held = host.frame(*frame);
            held.is_some_and(|held| held.sharers < MOST_SHARERS)
        };
        frames.iter().copied().rev().find(has_room)
    }
}

/// Levels of a balanced tree of so many nodes.
#[must_use]
pub fn levels(nodes: usize) -> u32 {
    (nodes + 1).next_power_of_two().ilog2()
}

/// Whether smart scan leaves this page out now.
fn is_skipped(item: &mut Item) -> bool {
    let age = item.age;
    item.age = age.saturating_add(1);
    if age < FIRST_LOOKS {
        return false;
    }
    if item.skips == 0 {
        item.skips = match age {
            0..=3 => 1,
            4..=5 => 2,
            6..=8 => 4,
            _ => 8,
        };
        return false;
    }
    item.skips -= 1;
    true
}

impl Deduplicator for Ksm {
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn {
        if host.mapping_behind((SpaceId(0), 0)).is_none() {
            // ksmd waits until there is something to scan.
            let cost = self.costs.wake;
            let next = now + IDLE + cost;
            return Turn {
                cost,
                next,
                ends: None,
            };
        }
        let mut cost = 0;
        match self.scan(host) {
            Some(scanning) => cost += scanning,
            None => {
                self.cursor = (SpaceId(0), 0);
                self.unstable.clear();
                self.full_scans += 1;
                // ksm_do_scan() returns when all was walked, whatever is left of its pages.
                self.batch = 0;
                cost += self.costs.revisit;
                if self.settings.advisor {
                    let pages = self.settings.pages_to_scan;
                    self.settings.pages_to_scan = self.advisor.advise(now, self.spent, pages);
                }
            }
        }
        let mut next = now + cost.max(1);
        if self.batch == 0 {
            if let Some(held) = &mut self.held {
                self.settings.pages_to_scan = held.batch(now, self.spent);
            }
            self.batch = self.settings.pages_to_scan;
            if self.settings.sleep > 0 {
                cost += self.costs.wake;
                next = now + cost + self.settings.sleep + self.costs.late;
            }
        }
        self.spent += cost;
        Turn {
            cost,
            next,
            ends: None,
        }
    }
}

/// The scan-time advisor (`scan_time_advisor`), with the kernel's defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Advisor {
    begun: Nanos,
    spent: Nanos,
    scan_seconds: u64,
    change: u64,
}

impl Advisor {
    const TARGET_SECONDS: u64 = 200;
    const LEAST_CPU: u64 = 10;
    const MOST_CPU: u64 = 70;
    const MOST_PAGES: u64 = 30_000;
    /// `pages_to_scan` when the advisor begins.
    pub const FIRST_PAGES: u64 = 500;

    /// The next `pages_to_scan`, after a full scan.
    fn advise(&mut self, now: Nanos, spent: Nanos, pages: u64) -> u64 {
        let weighted = |before: u64, now: u64| (70 * before + 30 * now) / 100;
        let seconds = ((now - self.begun) / 1_000_000_000).max(1);
        let milliseconds = (spent - self.spent) / 1_000_000;
        let percent = (milliseconds * 100 / (seconds * 1000)).max(1);
        let last = if self.scan_seconds == 0 {
            seconds
        } else {
            self.scan_seconds
        };
        let factor = (Self::TARGET_SECONDS * 100 / seconds).max(1);
        let change = weighted(self.change, (seconds * 100 / last).max(1));
        let a_percent = (pages / percent).max(1);
        *self = Advisor {
            begun: now,
            spent,
            scan_seconds: seconds,
            change,
        };
        let wanted = pages * 100 / factor * change / 100;
        let least = a_percent * Self::LEAST_CPU;
        let bounded = wanted.min(a_percent * Self::MOST_CPU).max(least);
        bounded.min(Self::MOST_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Place as Lie};
    use crate::workload::Scatter;
    use crate::world::{Alone, World};
    use crate::{Costs, Workload};

    const UNLIMITED: KsmSettings = KsmSettings {
        pages_to_scan: 1000,
        sleep: 0,
        smart_scan: true,
        advisor: false,
        held_percent: None,
    };

    fn scattered(settings: KsmSettings) -> Alone<Ksm> {
        let layout = Layout {
            pages: 2000,
            percent: 50,
            place: Lie::Singly,
            pool: 1,
            seed: 3,
        };
        let scatter: Box<dyn Workload> = Box::new(Scatter {
            processes: 2,
            layout,
            begin: 0,
        });
        let costs = Costs::default();
        let world = World::new(Host::new(1, costs), vec![scatter]);
        Alone::new(world, Ksm::new(settings, costs.ksm))
    }

    #[test]
    fn nothing_is_merged_in_the_first_scan_and_everything_in_the_second() {
        let mut alone = scattered(UNLIMITED);
        while alone.deduplicator.full_scans() < 1 {
            alone.turn();
            assert_eq!(alone.world.host.saved(), 0);
        }
        while alone.deduplicator.full_scans() < 2 {
            alone.turn();
        }
        let host = &alone.world.host;
        assert_eq!(host.saved(), host.mergeable());
        assert_eq!(host.saved(), 1000);
        let audit = host.audit();
        assert_eq!((audit.wrong, audit.saved()), (None, host.saved()));
    }

    #[test]
    fn smart_scan_looks_at_fewer_pages_later() {
        let spent = |smart_scan| {
            let mut alone = scattered(KsmSettings {
                smart_scan,
                ..UNLIMITED
            });
            while alone.deduplicator.full_scans() < 30 {
                alone.turn();
            }
            alone.spent()
        };
        assert!(spent(true) * 2 < spent(false));
    }

    #[test]
    fn as_shipped_it_sleeps_and_reads_a_hundred_pages_at_a_time() {
        let mut alone = scattered(KsmSettings {
            pages_to_scan: 100,
            sleep: 20_000_000,
            ..UNLIMITED
        });
        while alone.deduplicator.full_scans() < 2 {
            alone.turn();
        }
        // Two scans of 4000 pages are eighty batches.
        let seconds = alone.now() as f64 / 1e9;
        assert!((1.6..2.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_advisor_raises_the_rate_where_a_scan_takes_longer_than_wanted() {
        let mut advisor = Advisor::default();
        let second = 1_000_000_000;
        let mut pages = Advisor::FIRST_PAGES;
        for scan in 1..=8 {
            pages = advisor.advise(scan * 2000 * second, scan * 400 * second, pages);
        }
        assert!(pages > 2 * Advisor::FIRST_PAGES, "{pages}");
    }
}

//! In-kernel KSM.
//!
//! # Problem
//! uksm is compared with KSM. The comparison is fair only if KSM finds on the simulated host the
//! same pages as on a real one, as soon and with as much work.
//!
//! # Approach
//! ksmd walks all mappings in turn, pages upwards, a batch of pages at a time, then sleeps. For
//! each page, its checksum must be that of the last scan; then the stable tree is searched for a
//! frame of its contents, then the unstable tree for a page. The unstable tree is emptied with each
//! full scan. Trees are tables here; a search costs as many comparisons as a balanced tree of that
//! size has levels. Where pages change, the unstable tree can be one whose order that disturbs
//! ([`Ksm::on_a_tree`]). Smart scan leaves out pages more and more often that were examined in
//! vain. A frame has at most `MAX_SHARERS` mappings; then there is a second one for the same
//! contents. The advisor changes the number of pages scanned at a time, after each full scan. Not
//! modelled: NUMA trees, `use_zero_pages`, the walk over holes, and collisions of checksums.
//!
//! # Source
//! `mm/ksm.c` of Linux 6.12: `cmp_and_merge_page`, `should_skip_rmap_item`, `skip_age`,
//! `is_page_sharing_candidate`; of Linux 6.1 for [`Ksm::frames_first`].

use std::collections::HashMap;

use uksm_policy::command::{Nanos, PageState, SpaceId};

use super::advisor::Advisor;
use super::capped_ksm::BatchControl;
use super::tree::{Reachability, UnstableTree};
use super::unstable::{Unstable, levels};
use crate::host::in_kernel::{Stretch, address};
use crate::memory::PageAddress;
use crate::memory::Slot;
use crate::world::{Deduplicator, Turn};
use crate::{Content, Host, KsmCosts};

/// Limit of the pages scanned in one turn: the host must not change unseen for longer.
const TURN_PAGES: u64 = 100;
/// Mappings of a frame (`max_page_sharing`).
const MAX_SHARERS: u32 = 256;
/// Examinations of a page before it can be left out (`should_skip_rmap_item`).
const FIRST_LOOKS: u8 = 3;
/// Time until ksmd notices that there is something to scan.
const IDLE: Nanos = 20_000_000;
/// Bytes of an rmap item, and of a node of the stable tree.
const ITEM_BYTES: u64 = 64;

/// Settings of KSM.
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
    /// The share of a core that `pages_to_scan` is regulated for, in percent.
    pub cap_percent: Option<u32>,
}

/// State kept for a page.
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    /// Its contents at the last scan: their number plus 1, or 0.
    checksum: u64,
    /// Number of examinations.
    age: u8,
    /// Number of scans that will leave it out.
    skips: u8,
}

/// The reason to examine a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The scan has come to it.
    Scanned,
    /// I/O has touched it: a change of its contents is no reason to leave it out (XLH §4.3).
    Hinted,
}

/// In-kernel KSM on a simulated host.
#[derive(Debug)]
pub struct Ksm {
    settings: KsmSettings,
    costs: KsmCosts,
    /// Place at which the scan goes on.
    cursor: PageAddress,
    /// Pages left until the next sleep.
    batch: u64,
    /// Items of the pages of each mapping, by the mapping's place.
    items: HashMap<PageAddress, Vec<Item>>,
    /// The frames of each content; the last one may have room.
    stable: HashMap<Content, Vec<u32>>,
    unstable: Unstable,
    /// Whether frames are searched before the checksum is compared.
    frames_first: bool,
    /// Pages that could be found in the unstable tree at the ends of scans.
    reachable: Reachability,
    advisor: Advisor,
    batch_control: Option<BatchControl>,
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
            unstable: Unstable::Table(HashMap::new()),
            frames_first: false,
            reachable: Reachability::default(),
            advisor: Advisor::default(),
            batch_control: settings
                .cap_percent
                .map(|percent| BatchControl::new(percent, settings.pages_to_scan)),
            spent: 0,
            full_scans: 0,
            scanned: 0,
        }
    }

    /// Uses a real unstable tree.
    #[must_use]
    pub fn on_a_tree(mut self) -> Ksm {
        self.unstable = Unstable::Tree(UnstableTree::default());
        self
    }

    /// Searches for a frame of a page's contents before it compares the checksum, as ksmd did up to
    /// Linux 6.1 at least: a page that was just written is merged if there is a frame (XLH §3).
    #[must_use]
    pub fn frames_first(mut self) -> Ksm {
        self.frames_first = true;
        self
    }

    /// Pages that could be found in the unstable tree at the ends of all scans so far, if it is a
    /// real one.
    #[must_use]
    pub fn reachability(&self) -> Reachability {
        self.reachable
    }

    /// Scans completed.
    #[must_use]
    pub fn full_scans(&self) -> u64 {
        self.full_scans
    }

    /// Pages examined.
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

    /// Examines pages of one mapping from the cursor on; returns the cost, or nothing at the end of
    /// all mappings.
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
                // It is passed on the way to the next page, and does not count in the batch.
                cost += self.costs.revisit;
                continue;
            }
            self.batch -= 1;
            self.scanned += 1;
            cost += match slot.state {
                PageState::Anon if slot.pinned => self.costs.revisit,
                PageState::Anon => {
                    let here = (stretch.space, address(stretch, found));
                    self.look(host, here, slot.content, item, Why::Scanned)
                }
                _ => self.costs.revisit,
            };
        }
        self.items.insert(key, items);
        self.cursor = (stretch.space, address(stretch, page));
        Some(cost)
    }

    /// Compares a page, and merges it if possible.
    fn look(
        &mut self,
        host: &mut Host,
        here: PageAddress,
        content: Content,
        item: &mut Item,
        why: Why,
    ) -> Nanos {
        let mut cost = 0;
        self.unstable.forget(here);
        let is_hinted = why == Why::Hinted;
        let frames_first = self.frames_first || is_hinted;
        if frames_first {
            let (merged, merging) = self.join_frame(host, here, content);
            cost += merging;
            if merged {
                return cost;
            }
        }
        cost += self.costs.checksum;
        if item.checksum == 0 {
            cost += self.costs.first;
        }
        let checksum = content.number().wrapping_add(1);
        let has_changed = std::mem::replace(&mut item.checksum, checksum) != checksum;
        if has_changed && !is_hinted {
            return cost;
        }
        if !frames_first {
            let (merged, merging) = self.join_frame(host, here, content);
            cost += merging;
            if merged {
                return cost;
            }
        }
        let (twin, compared) = self.unstable.meet(host, content, here);
        cost += self.costs.tree_step * u64::from(compared);
        let Some(twin) = twin else {
            return cost;
        };
        self.unstable.merged(content, twin);
        let frame = host.merge_pair([twin, here]);
        self.stable.entry(content).or_default().push(frame);
        cost + self.costs.pair
    }

    /// Merges a page with a frame of its contents; returns whether there is one, and the cost.
    fn join_frame(
        &mut self,
        host: &mut Host,
        here: PageAddress,
        content: Content,
    ) -> (bool, Nanos) {
        let cost = self.costs.stable_step * u64::from(levels(self.stable.len()));
        match self.frame(host, content) {
            Some(frame) => {
                host.merge_with(here, frame);
                (true, cost + self.costs.merge)
            }
            None => (false, cost),
        }
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
            held.is_some_and(|held| held.sharers < MAX_SHARERS)
        };
        frames.iter().copied().rev().find(has_room)
    }
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

/// The part that XLH uses.
impl Ksm {
    /// Examines a hinted page; returns the cost.
    pub(super) fn look_at_hinted(&mut self, host: &mut Host, here: PageAddress) -> Nanos {
        let stretch = host.mapping_behind((here.0, here.1));
        let is_in = |one: &Stretch| one.space == here.0 && one.mapping <= here.1;
        let slot = host.look(here);
        let is_own = |slot: &Slot| slot.state == PageState::Anon && !slot.pinned;
        let (Some(stretch), Some(slot)) = (stretch.filter(is_in), slot.filter(is_own)) else {
            return self.costs.revisit;
        };
        self.scanned += 1;
        let key = (stretch.space, stretch.mapping);
        let mut items = self.items.remove(&key).unwrap_or_default();
        let count = usize::try_from(stretch.pages).expect("a mapping that is filled");
        items.resize(count, Item::default());
        let page = (here.1 - stretch.mapping) / uksm_policy::command::PAGE_SIZE;
        let item = &mut items[usize::try_from(page).expect("a page of the mapping")];
        let cost = self.look(host, here, slot.content, item, Why::Hinted);
        self.items.insert(key, items);
        cost
    }

    /// Removes a page from the unstable tree.
    pub(super) fn forget(&mut self, here: PageAddress) {
        self.unstable.forget(here);
    }

    /// Pages left until the next sleep.
    pub(super) fn batch(&mut self) -> &mut u64 {
        &mut self.batch
    }

    /// Goes on with the scan; returns the cost.
    pub(super) fn go_on(&mut self, host: &mut Host, now: Nanos) -> Nanos {
        if let Some(scanning) = self.scan(host) {
            return scanning;
        }
        self.cursor = (SpaceId(0), 0);
        self.reachable.add(self.unstable.reachability(host));
        self.unstable.clear();
        self.full_scans += 1;
        // ksm_do_scan() returns at the end of all mappings, even if pages of the batch are left.
        self.batch = 0;
        if self.settings.advisor {
            let pages = self.settings.pages_to_scan;
            self.settings.pages_to_scan = self.advisor.advise(now, self.spent, pages);
        }
        self.costs.revisit
    }

    /// Sleeps if all of the batch was scanned; returns the turn, which cost `cost` until now.
    pub(super) fn rest(&mut self, now: Nanos, mut cost: Nanos) -> Turn {
        let mut next = now + cost.max(1);
        if self.batch == 0 {
            if let Some(control) = &mut self.batch_control {
                self.settings.pages_to_scan = control.batch(now, self.spent);
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

    /// ksmd waits until there is something to scan.
    pub(super) fn idle(&self, now: Nanos) -> Turn {
        let cost = self.costs.wake;
        Turn {
            cost,
            next: now + IDLE + cost,
            ends: None,
        }
    }
}

impl Deduplicator for Ksm {
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn {
        if host.mapping_behind((SpaceId(0), 0)).is_none() {
            return self.idle(now);
        }
        let cost = self.go_on(host, now);
        self.rest(now, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Arrangement, Layout};
    use crate::workload::Scatter;
    use crate::world::{Alone, World};
    use crate::{Costs, Workload};

    const UNLIMITED: KsmSettings = KsmSettings {
        pages_to_scan: 1000,
        sleep: 0,
        smart_scan: true,
        advisor: false,
        cap_percent: None,
    };

    fn scattered(settings: KsmSettings) -> Alone<Ksm> {
        let layout = Layout {
            pages: 2000,
            percent: 50,
            place: Arrangement::Singly,
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
}

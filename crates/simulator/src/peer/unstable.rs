//! The pages that ksmd has examined in this scan and not merged.
//!
//! # Problem
//! Where pages do not change, the kernel's tree finds all pages, and a table does the same at a
//! fraction of the time of a simulation. Where they change it does not: [`UnstableTree`].
//!
//! # Approach
//! Either, by choice. The table costs as many comparisons as a balanced tree of its size has
//! levels, the tree the number of real comparisons.

use std::collections::HashMap;

use uksm_policy::command::PageState;
use uksm_policy::mix::mix;

use super::tree::{Met, Reachability, UnstableTree};
use crate::memory::PageAddress;
use crate::memory::Slot;
use crate::{Content, Host};

/// Limit of the pages searched for when counting those that can be found.
const SOUGHT: usize = 20_000;

/// The pages.
#[derive(Debug)]
pub(super) enum Unstable {
    /// A tree that is always in order.
    Table(HashMap<Content, PageAddress>),
    /// The real tree.
    Tree(UnstableTree),
}

impl Unstable {
    /// Searches for a page of these contents, and inserts this one if there is none; returns the
    /// other page, and the number of comparisons.
    pub(super) fn meet(
        &mut self,
        host: &Host,
        content: Content,
        here: PageAddress,
    ) -> (Option<PageAddress>, u32) {
        match self {
            Unstable::Table(table) => {
                let compared = levels(table.len());
                let twin = table.insert(content, here).filter(|&twin| twin != here);
                let is_equal = |twin: &PageAddress| {
                    let slot = host.look(*twin);
                    slot.is_some_and(|slot| {
                        slot.state == PageState::Anon && slot.content == content
                    })
                };
                (twin.filter(is_equal), compared)
            }
            Unstable::Tree(tree) => {
                let holds = |place| holds(host, place);
                let (met, compared) = tree.search_insert(here, order(content), holds);
                let twin = match met {
                    Met::Twin(twin) => Some(twin),
                    Met::Nothing | Met::Gone => None,
                };
                (twin, compared)
            }
        }
    }

    /// Removes a page that was found and is merged now.
    pub(super) fn merged(&mut self, content: Content, twin: PageAddress) {
        match self {
            Unstable::Table(table) => {
                table.remove(&content);
            }
            Unstable::Tree(tree) => {
                tree.remove(twin);
            }
        }
    }

    /// Removes a page from the tree because it is examined again, or was written while guarded.
    pub(super) fn forget(&mut self, here: PageAddress) {
        if let Unstable::Tree(tree) = self {
            tree.remove(here);
        }
    }

    /// Ends a full scan.
    pub(super) fn clear(&mut self) {
        match self {
            Unstable::Table(table) => table.clear(),
            Unstable::Tree(tree) => tree.clear(),
        }
    }

    /// The number of pages that can be found, of a part of them if they are many; a table loses
    /// none.
    pub(super) fn reachability(&self, host: &Host) -> Reachability {
        match self {
            Unstable::Table(_) => Reachability::default(),
            Unstable::Tree(tree) => tree.reachability(|place| holds(host, place), SOUGHT),
        }
    }
}

/// The present contents of a page, as the tree orders them.
fn holds(host: &Host, place: PageAddress) -> Option<u64> {
    let slot = host.look(place).filter(Slot::is_there);
    slot.map(|slot| order(slot.content))
}

/// The rank of contents: consecutive numbers stand for pages that `memcmp` orders at random.
fn order(content: Content) -> u64 {
    mix(content.number())
}

/// Levels of a balanced tree with this many nodes.
#[must_use]
pub fn levels(nodes: usize) -> u32 {
    (nodes + 1).next_power_of_two().ilog2()
}

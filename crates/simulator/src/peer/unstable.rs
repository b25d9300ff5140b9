//! The pages that ksmd has looked at in this scan and not merged.
//!
//! # Problem
//! Where pages do not change, the kernel's tree finds what is there, and a table does the same at a
//! fraction of the time that a simulation takes. Where they change it does not: [`UnstableTree`].
//!
//! # Approach
//! Either, as is asked for. The table costs as many comparisons as a balanced tree of its size has
//! levels, the tree as many as are made.

use std::collections::HashMap;

use uksm_policy::command::PageState;
use uksm_policy::hash::mix;

use super::tree::{Met, Reachability, UnstableTree};
use crate::host::in_kernel::Place;
use crate::memory::Slot;
use crate::{Content, Host};

/// Pages searched for at most to tell how many can be found.
const SOUGHT: usize = 20_000;

/// The pages.
#[derive(Debug)]
pub(super) enum Unstable {
    /// A tree that is always in order.
    Table(HashMap<Content, Place>),
    /// The tree as it is.
    Tree(UnstableTree),
}

impl Unstable {
    /// Searches for a page of these contents, and enters this one if there is none; the other one,
    /// and with how many pages it was compared.
    pub(super) fn meet(
        &mut self,
        host: &Host,
        content: Content,
        here: Place,
    ) -> (Option<Place>, u32) {
        match self {
            Unstable::Table(table) => {
                let compared = levels(table.len());
                let twin = table.insert(content, here).filter(|&twin| twin != here);
                let is_equal = |twin: &Place| {
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

    /// The page that was met is merged now.
    pub(super) fn merged(&mut self, content: Content, twin: Place) {
        match self {
            Unstable::Table(table) => {
                table.remove(&content);
            }
            Unstable::Tree(tree) => {
                tree.remove(twin);
            }
        }
    }

    /// A page is looked at anew, or was written and is guarded: it is no longer in the tree.
    pub(super) fn forget(&mut self, here: Place) {
        if let Unstable::Tree(tree) = self {
            tree.remove(here);
        }
    }

    /// A full scan is over.
    pub(super) fn clear(&mut self) {
        match self {
            Unstable::Table(table) => table.clear(),
            Unstable::Tree(tree) => tree.clear(),
        }
    }

    /// How many of its pages can be found, of a part of them if they are many; nothing is lost in a
    /// table.
    pub(super) fn reachability(&self, host: &Host) -> Reachability {
        match self {
            Unstable::Table(_) => Reachability::default(),
            Unstable::Tree(tree) => tree.reachability(|place| holds(host, place), SOUGHT),
        }
    }
}

/// What a page holds now, as the tree orders it.
fn holds(host: &Host, place: Place) -> Option<u64> {
    let slot = host.look(place).filter(Slot::is_there);
    slot.map(|slot| order(slot.content))
}

/// Where contents stand among others: numbers that follow each other name pages that `memcmp` puts
/// anywhere.
fn order(content: Content) -> u64 {
    mix(content.number())
}

/// Levels of a balanced tree of so many nodes.
#[must_use]
pub fn levels(nodes: usize) -> u32 {
    (nodes + 1).next_power_of_two().ilog2()
}

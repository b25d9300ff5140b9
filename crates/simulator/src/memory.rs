//! Processes, their mappings and pages.
//!
//! A mapping of terabytes must fit beside pages that are written one by one: a mapping keeps its
//! pages in a row if it was filled, and in a map by their index if it is sparse.

use std::collections::BTreeMap;

use uksm_policy::command::{Nanos, PAGE_SIZE, PageState};

use crate::Content;

/// One page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) content: Content,
    pub(crate) state: PageState,
    pub(crate) frame: u32,
    pub(crate) pinned: bool,
}

impl Slot {
    pub(crate) const NONE: Slot = Slot {
        content: Content::ZERO,
        state: PageState::None,
        frame: 0,
        pinned: false,
    };

    pub(crate) fn anon(content: Content) -> Slot {
        Slot {
            content,
            state: PageState::Anon,
            frame: 0,
            pinned: false,
        }
    }
}

/// What can be seen of a page from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageView {
    /// Its state.
    pub state: PageState,
    /// What it holds.
    pub content: Content,
}

/// How a new mapping is filled.
pub enum Fill<'a> {
    /// Every page, by its index.
    Dense(&'a dyn Fn(u64) -> Content),
    /// Every page, in huge pages where aligned.
    Huge(&'a dyn Fn(u64) -> Content),
    /// These pages only.
    Sparse(&'a [(u64, Content)]),
}

impl std::fmt::Debug for Fill<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fill::Dense(_) => "Dense",
            Fill::Huge(_) => "Huge",
            Fill::Sparse(_) => "Sparse",
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Pages {
    Dense(Vec<Slot>),
    Sparse(BTreeMap<u64, Slot>),
}

/// A mapping.
#[derive(Debug, Clone)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    pub(crate) kind: u64,
    pub(crate) refused: bool,
    pub(crate) no_zero: bool,
    pub(crate) slots: Pages,
    /// Blocks, counted from the first aligned one, that are huge.
    pub(crate) huge: Vec<bool>,
}

const BLOCK: u64 = 2 << 20;

impl Area {
    pub(crate) fn new(start: u64, pages: u64, kind: u64, fill: &Fill<'_>) -> Area {
        let dense = |content: &dyn Fn(u64) -> Content| {
            Pages::Dense((0..pages).map(|page| Slot::anon(content(page))).collect())
        };
        let (slots, is_huge) = match fill {
            Fill::Dense(content) => (dense(content), false),
            Fill::Huge(content) => (dense(content), true),
            Fill::Sparse(list) => (
                Pages::Sparse(
                    list.iter()
                        .map(|&(page, c)| (page, Slot::anon(c)))
                        .collect(),
                ),
                false,
            ),
        };
        let huge = if is_huge {
            let first = start.next_multiple_of(BLOCK);
            let whole = (start + pages * PAGE_SIZE).saturating_sub(first) / BLOCK;
            vec![true; usize::try_from(whole).expect("simulated mappings are small")]
        } else {
            vec![]
        };
        Area {
            start,
            pages,
            kind,
            refused: false,
            no_zero: false,
            slots,
            huge,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.pages * PAGE_SIZE
    }

    /// The index of the huge page at `address`, if there is one.
    pub(crate) fn huge_at(&self, address: u64) -> Option<usize> {
        let first = self.start.next_multiple_of(BLOCK);
        let block = usize::try_from(address.checked_sub(first)? / BLOCK).ok()?;
        self.huge
            .get(block)
            .copied()
            .unwrap_or(false)
            .then_some(block)
    }

    pub(crate) fn get(&self, page: u64) -> Slot {
        match &self.slots {
            Pages::Dense(slots) => slots[usize::try_from(page).expect("dense")],
            Pages::Sparse(slots) => slots.get(&page).copied().unwrap_or(Slot::NONE),
        }
    }

    pub(crate) fn set(&mut self, page: u64, slot: Slot) {
        match &mut self.slots {
            Pages::Dense(slots) => slots[usize::try_from(page).expect("dense")] = slot,
            Pages::Sparse(slots) => {
                slots.insert(page, slot);
            }
        }
    }

    /// All pages that are there.
    pub(crate) fn slots(&self) -> Box<dyn Iterator<Item = &Slot> + '_> {
        match &self.slots {
            Pages::Dense(slots) => Box::new(slots.iter()),
            Pages::Sparse(slots) => Box::new(slots.values()),
        }
    }
}

/// A process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) kind: u64,
    pub(crate) born: Nanos,
    pub(crate) areas: Vec<Area>,
    pub(crate) reported: bool,
}

impl Process {
    pub(crate) fn area(&self, address: u64) -> Option<usize> {
        let at = self.areas.partition_point(|area| area.end() <= address);
        self.areas
            .get(at)
            .is_some_and(|area| area.start <= address)
            .then_some(at)
    }
}

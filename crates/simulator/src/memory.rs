//! Mappings and their pages.
//!
//! # Problem
//! Tens of millions of pages must fit, as must a mapping of terabytes whose pages are written one
//! by one.
//!
//! # Approach
//! A filled mapping keeps its pages in two rows: the contents, 8 bytes a page, and a word of 4
//! bytes with state, pin and frame. A sparse mapping keeps its pages in a map by their index.
//!
//! # Units
//! A page's index counts from the start of its mapping.

use std::collections::BTreeMap;

use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};

use crate::Content;

/// The space and the address of a page.
pub(crate) type PageAddress = (SpaceId, u64);

/// One page, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) content: Content,
    pub(crate) state: PageState,
    pub(crate) frame: u32,
    pub(crate) pinned: bool,
}

/// The states that a page can be in, by their code in a word.
const STATES: [PageState; 5] = [
    PageState::None,
    PageState::Anon,
    PageState::Frame,
    PageState::Zero,
    PageState::Swap,
];
const FRAME_BITS: u32 = 28;
const PINNED: u32 = 1 << FRAME_BITS;
const STATE_SHIFT: u32 = FRAME_BITS + 1;
/// The word of an ordinary page.
const ANON: u32 = 1 << STATE_SHIFT;

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

    /// Whether it is in memory.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.state, PageState::None | PageState::Swap)
    }

    fn word(&self) -> u32 {
        let code = STATES.iter().zip(0u32..).find(|(s, _)| **s == self.state);
        let (_, code) = code.expect("a page is in one of these states");
        assert!(self.frame < 1 << FRAME_BITS, "too many frames");
        code << STATE_SHIFT | if self.pinned { PINNED } else { 0 } | self.frame
    }

    fn unpacked(content: Content, word: u32) -> Slot {
        Slot {
            content,
            state: STATES[(word >> STATE_SHIFT) as usize],
            frame: word & (PINNED - 1),
            pinned: word & PINNED != 0,
        }
    }
}

/// A page as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageView {
    /// Its state.
    pub state: PageState,
    /// Its content.
    pub content: Content,
}

/// The contents of a new mapping.
pub enum Fill<'a> {
    /// Every page, by its index.
    Dense(&'a dyn Fn(u64) -> Content),
    /// Every page, in huge pages where aligned.
    Huge(&'a dyn Fn(u64) -> Content),
    /// Every page, in large folios of this many pages where aligned.
    Large(u64, &'a dyn Fn(u64) -> Content),
    /// These pages only.
    Sparse(&'a [(u64, Content)]),
    /// No page yet; pages come as they are written, and room for all of them is taken at once.
    Empty,
    /// No page yet; the first write of a page brings a large folio of this many pages, where
    /// aligned.
    Folios(u64),
}

impl std::fmt::Debug for Fill<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fill::Dense(_) => "Dense",
            Fill::Huge(_) => "Huge",
            Fill::Large(..) => "Large",
            Fill::Sparse(_) => "Sparse",
            Fill::Empty => "Empty",
            Fill::Folios(_) => "Folios",
        })
    }
}

#[derive(Debug, Clone)]
enum Pages {
    Dense {
        contents: Vec<Content>,
        words: Vec<u32>,
    },
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
    pub(crate) locked: bool,
    slots: Pages,
    /// Pages in memory.
    pub(crate) resident: u64,
    /// Folios, counted from the first aligned one, that are large.
    pub(crate) large: Vec<bool>,
    /// Pages of each folio.
    pub(crate) folio_pages: u64,
}

/// Pages of a huge page.
pub(crate) const HUGE_PAGES: u64 = 512;

fn at(page: u64) -> usize {
    usize::try_from(page).expect("a filled mapping fits in memory")
}

impl Area {
    pub(crate) fn new(start: u64, pages: u64, kind: u64, fill: &Fill<'_>) -> Area {
        let dense = |content: &dyn Fn(u64) -> Content| Pages::Dense {
            contents: (0..pages).map(content).collect(),
            words: vec![ANON; at(pages)],
        };
        let (slots, resident, folio_pages) = match fill {
            Fill::Dense(content) => (dense(content), pages, 1),
            Fill::Huge(content) => (dense(content), pages, HUGE_PAGES),
            Fill::Large(folio_pages, content) => (dense(content), pages, *folio_pages),
            Fill::Sparse(list) => {
                let slots: BTreeMap<u64, Slot> = list
                    .iter()
                    .map(|&(page, content)| (page, Slot::anon(content)))
                    .collect();
                let count = slots.len() as u64;
                (Pages::Sparse(slots), count, 1)
            }
            Fill::Empty | Fill::Folios(_) => {
                let slots = Pages::Dense {
                    contents: vec![Content::ZERO; at(pages)],
                    words: vec![0; at(pages)],
                };
                let folio_pages = match fill {
                    Fill::Folios(folio_pages) => *folio_pages,
                    _ => 1,
                };
                (slots, 0, folio_pages)
            }
        };
        let large = if folio_pages > 1 {
            let bytes = folio_pages * PAGE_SIZE;
            let first = start.next_multiple_of(bytes);
            let whole = (start + pages * PAGE_SIZE).saturating_sub(first) / bytes;
            vec![resident > 0; at(whole)]
        } else {
            vec![]
        };
        Area {
            start,
            pages,
            kind,
            refused: false,
            no_zero: false,
            locked: false,
            slots,
            resident,
            large,
            folio_pages,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.pages * PAGE_SIZE
    }

    /// The index of the page at an address in this mapping.
    pub(crate) fn page(&self, address: u64) -> u64 {
        (address - self.start) / PAGE_SIZE
    }

    /// The index of the large folio at `address`, if there is one.
    pub(crate) fn large_at(&self, address: u64) -> Option<usize> {
        let bytes = self.folio_pages * PAGE_SIZE;
        let first = self.start.next_multiple_of(bytes);
        let folio = usize::try_from(address.checked_sub(first)? / bytes).ok()?;
        self.large
            .get(folio)
            .copied()
            .unwrap_or(false)
            .then_some(folio)
    }

    /// The large folio that the first write of an address brings: its number, and its first page;
    /// none if the folio would not be aligned, or a page is there.
    pub(crate) fn new_folio(&self, address: u64) -> Option<(usize, u64)> {
        if self.folio_pages == 1 {
            return None;
        }
        let bytes = self.folio_pages * PAGE_SIZE;
        let first = self.start.next_multiple_of(bytes);
        let folio = address.checked_sub(first)? / bytes;
        let at = usize::try_from(folio).ok()?;
        // The last folio of a mapping may be incomplete.
        if at >= self.large.len() {
            return None;
        }
        let page = self.page(first + folio * bytes);
        let mut pages = page..page + self.folio_pages;
        let is_free = pages.all(|page| self.get(page).state == PageState::None);
        is_free.then_some((at, page))
    }

    pub(crate) fn get(&self, page: u64) -> Slot {
        match &self.slots {
            Pages::Dense { contents, words } => {
                let page = at(page);
                Slot::unpacked(contents[page], words[page])
            }
            Pages::Sparse(slots) => slots.get(&page).copied().unwrap_or(Slot::NONE),
        }
    }

    pub(crate) fn set(&mut self, page: u64, slot: Slot) {
        let old = self.get(page);
        match &mut self.slots {
            Pages::Dense { contents, words } => {
                let page = at(page);
                contents[page] = slot.content;
                words[page] = slot.word();
            }
            Pages::Sparse(slots) => {
                slots.insert(page, slot);
            }
        }
        self.resident += u64::from(slot.is_there());
        self.resident -= u64::from(old.is_there());
    }

    /// Adds `pages` empty pages at the end.
    pub(crate) fn grow(&mut self, pages: u64) {
        self.pages += pages;
        if let Pages::Dense { contents, words } = &mut self.slots {
            contents.resize(at(self.pages), Content::ZERO);
            words.resize(at(self.pages), 0);
        }
    }

    /// The first page from an index on that is present or swapped out, with its index.
    pub(crate) fn first_from(&self, first: u64) -> Option<(u64, Slot)> {
        match &self.slots {
            Pages::Dense { .. } => (first..self.pages)
                .map(|page| (page, self.get(page)))
                .find(|(_, slot)| slot.state != PageState::None),
            Pages::Sparse(slots) => {
                let mut behind = slots.range(first..);
                let is_some = |(_, slot): &(&u64, &Slot)| slot.state != PageState::None;
                behind.find(is_some).map(|(&page, &slot)| (page, slot))
            }
        }
    }

    /// All pages that are present or swapped out, with their index, ascending.
    pub(crate) fn slots(&self) -> Box<dyn Iterator<Item = (u64, Slot)> + '_> {
        match &self.slots {
            Pages::Dense { contents, words } => {
                let pages = contents.iter().zip(words).zip(0..);
                let unpacked = pages.map(|((&content, &word), page)| {
                    let slot = Slot::unpacked(content, word);
                    (page, slot)
                });
                Box::new(unpacked.filter(|(_, slot)| slot.state != PageState::None))
            }
            Pages::Sparse(slots) => {
                let pages = slots.iter().map(|(&page, &slot)| (page, slot));
                Box::new(pages.filter(|(_, slot)| slot.state != PageState::None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_set_in_either_kind_of_mapping() {
        for fill in [Fill::Empty, Fill::Sparse(&[])] {
            let mut area = Area::new(0, 8, 1, &fill);
            for (page, state) in (0..).zip(STATES) {
                let slot = Slot {
                    content: Content::new(page + 5),
                    state,
                    frame: if state == PageState::Frame { 77 } else { 0 },
                    pinned: page % 2 == 0,
                };
                area.set(page, slot);
                assert_eq!(area.get(page), slot, "{fill:?}");
            }
            assert_eq!(area.resident, 3, "{fill:?}");
            assert_eq!(area.slots().count(), 4, "{fill:?}");
        }
    }

    #[test]
    fn a_filled_mapping_needs_twelve_bytes_a_page() {
        assert_eq!(size_of::<Content>() + size_of::<u32>(), 12);
    }
}

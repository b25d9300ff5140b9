//! The frames of a simulated host: their contents, domains, and numbers of mappings.
//!
//! A frame lives on without mappings until it is freed. The savings are counted as mappings come
//! and go, because every step reads them.

use crate::Content;

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameView {
    /// Its contents.
    pub content: Content,
    /// Its mappings.
    pub sharers: u32,
    /// The domain whose spaces may map it.
    pub domain: u16,
    /// The node of memory that it lies on.
    pub node: u32,
    /// Its memory has failed: nothing can be merged into it any more.
    pub is_poisoned: bool,
    /// A check noted its contents.
    pub is_noted: bool,
    /// A bit of it has flipped since, unnoticed.
    pub is_changed: bool,
}

/// All frames, by id.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Unused and freed frames are `None`; 0 is never used.
    slots: Vec<Option<FrameView>>,
    next: u32,
    held: usize,
    saved: u64,
}

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames {
            slots: vec![None],
            next: 1,
            held: 0,
            saved: 0,
        }
    }

    /// Adds a frame without mappings; returns its id.
    pub(crate) fn hold(&mut self, content: Content, domain: u16, node: u32) -> u32 {
        while self.get(self.next).is_some() {
            self.next += 1;
        }
        let place = self.next as usize;
        if place >= self.slots.len() {
            self.slots.resize(place + 1, None);
        }
        self.slots[place] = Some(FrameView {
            content,
            sharers: 0,
            domain,
            node,
            is_poisoned: false,
            is_noted: false,
            is_changed: false,
        });
        self.held += 1;
        self.next
    }

    pub(crate) fn get(&self, frame: u32) -> Option<FrameView> {
        self.slots.get(frame as usize).copied().flatten()
    }

    fn get_mut(&mut self, frame: u32) -> &mut FrameView {
        let slot = self.slots.get_mut(frame as usize);
        slot.and_then(Option::as_mut).expect("the frame is held")
    }

    /// Adds a mapping of a page.
    pub(crate) fn share(&mut self, frame: u32) {
        let frame = self.get_mut(frame);
        frame.sharers += 1;
        let is_saving = frame.sharers > 1;
        self.saved += u64::from(is_saving);
    }

    /// Removes a mapping of a page.
    pub(crate) fn unshare(&mut self, frame: u32) {
        let frame = self.get_mut(frame);
        frame.sharers -= 1;
        let was_saving = frame.sharers > 0;
        self.saved -= u64::from(was_saving);
    }

    pub(crate) fn poison(&mut self, frame: u32) {
        self.get_mut(frame).is_poisoned = true;
    }

    pub(crate) fn change(&mut self, frame: u32) {
        let frame = self.get_mut(frame);
        frame.is_changed = frame.is_noted;
    }

    /// Notes its contents.
    pub(crate) fn note(&mut self, frame: u32) {
        self.get_mut(frame).is_noted = true;
    }

    /// Frees a frame without mappings.
    pub(crate) fn free(&mut self, frame: u32) {
        let freed = self.slots[frame as usize].take();
        assert!(
            freed.is_some_and(|freed| freed.sharers == 0),
            "it is mapped"
        );
        self.held -= 1;
    }

    /// Frees all frames without mappings. If `reuse`, the next frames get their ids.
    pub(crate) fn shrink(&mut self, reuse: bool) {
        for slot in &mut self.slots {
            if slot.is_some_and(|frame| frame.sharers == 0) {
                *slot = None;
                self.held -= 1;
            }
        }
        if reuse {
            self.next = 1;
        }
    }

    /// Frames from an id on, ascending.
    pub(crate) fn from(&self, first: u32) -> impl Iterator<Item = (u32, FrameView)> {
        let first = first.min(u32::try_from(self.slots.len()).expect("ids have 32 bits"));
        let behind = (first..).zip(&self.slots[first as usize..]);
        behind.filter_map(|(id, frame)| Some((id, (*frame)?)))
    }

    /// Frames held, mapped or not.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Mappings less frames, over frames that are mapped.
    pub(crate) fn saved(&self) -> u64 {
        self.saved
    }
}

//! Whether memory has grown so much that the strength in use was found for another host.
//!
//! # Problem
//! A strength is found among what there is at the start, and again when false matches cost much.
//! Where little memory was searched, the search settled on what suited that. If it is too strong
//! for what comes later, nothing tells: only false matches do, and a hash that is too strong has
//! none. Each page then costs some lines too many.
//!
//! # Approach
//! What it takes to read all memory once, compared with the same when the last search ended. Only
//! growth counts, and only since that search: memory that comes and goes is searched for once.
//!
//! # Source
//! UKSM §6.1 leaves the stable state when the benefit moves by half; that shows only where pages
//! collide.

/// Memory has grown much when reading it takes so many times what it took.
const MUCH: f64 = 8.0;
/// Or so many times this, in nanoseconds: below, no search is worth beginning.
const MIN_GROWTH_NS: f64 = 10e6;

/// How much memory there was when the strength was found.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// What reading it took, in nanoseconds.
    found_for: f64,
    is_searched_for: bool,
}

impl Growth {
    /// Whether memory that takes so many nanoseconds to read is much more than that.
    pub(super) fn is_much(&self, all: f64) -> bool {
        all > MUCH * self.found_for.max(MIN_GROWTH_NS)
    }

    /// A search begins because of it.
    pub(super) fn search(&mut self) {
        self.is_searched_for = true;
    }

    /// Whether such a search is under way.
    pub(super) fn is_searched_for(&self) -> bool {
        self.is_searched_for
    }

    /// A search has ended, with memory that takes so long to read.
    pub(super) fn settle(&mut self, all: f64) {
        *self = Growth {
            found_for: all,
            is_searched_for: false,
        };
    }
}

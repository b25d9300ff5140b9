//! Detects growth of memory that makes the present strength one of another, smaller host.
//!
//! # Problem
//! A strength is found for the memory present at the start, and again when false matches cost much.
//! A search in little memory settles on the best strength for that. If that is too strong for later
//! memory, nothing shows it: only false matches do, and a hash that is too strong has none. Each
//! page then costs some lines too many.
//!
//! # Approach
//! The time to read all memory once is compared with the same time when the last search ended. Only
//! growth counts, and only since that search: memory that comes and goes is searched for once.
//!
//! # Source
//! UKSM §6.1 leaves the stable state when the benefit moves by half; that shows only where pages
//! collide.

/// Memory has grown much when reading it takes this many times the former time.
const MIN_GROWTH_FACTOR: f64 = 8.0;
/// Lower bound of the former time, in nanoseconds: below it, no search is worth beginning.
const MIN_GROWTH_NS: f64 = 10e6;

/// The amount of memory when the strength was found.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Time that reading it took, in nanoseconds.
    found_for: f64,
    is_searched_for: bool,
}

impl Growth {
    /// Whether memory that takes `all` nanoseconds to read has grown much.
    pub(super) fn is_much(&self, all: f64) -> bool {
        all > MIN_GROWTH_FACTOR * self.found_for.max(MIN_GROWTH_NS)
    }

    /// A search begins because of growth.
    pub(super) fn search(&mut self) {
        self.is_searched_for = true;
    }

    /// Whether such a search is under way.
    pub(super) fn is_searched_for(&self) -> bool {
        self.is_searched_for
    }

    /// A search has ended, with memory that takes `all` nanoseconds to read.
    pub(super) fn settle(&mut self, all: f64) {
        *self = Growth {
            found_for: all,
            is_searched_for: false,
        };
    }
}

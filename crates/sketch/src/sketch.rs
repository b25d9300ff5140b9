//! A sketch: some of a process's contents, chosen by their hashes.
//!
//! # Problem
//! Equal pages of two processes hardly ever meet in a sample of pages: both are in a sample of one
//! in a hundred once in ten thousand times.
//!
//! # Approach
//! A content is kept if its hash lies below a bound, so that all processes keep the same ones.
//! Occurrences of each are counted. There are at most [`Sketch::MAX_CONTENTS`] contents: if more
//! lie below the bound, the bound goes down to the largest, which is dropped. A process with fewer
//! contents than that has all of them in its sketch, and is known exactly. The probability that a
//! content is kept is the bound over 2^64; the dependence of the bound on the contents causes no
//! bias, since the bound is the hash of a content that was dropped (rank conditioning, Cohen and
//! Kaplan §4).
//!
//! If only a part of the pages of a process was read, a content that was met once is assumed to
//! occur once, and to be met by chance; one that was met several times would have been met in any
//! case.
//!
//! # Units
//! Pages. A hash below the bound is kept, one at the bound is not.

use std::collections::BTreeMap;

use crate::content::{Content, Hash};
use crate::frequent::Frequent;
use crate::tally::Tally;

/// The sketch of one process's contents.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    kept: BTreeMap<Hash, Tally>,
    /// Hashes from here on were not kept; none if all were kept.
    bound: Option<Hash>,
    frequent: Frequent,
    /// Pages read: all, those with a hash, and the process's own pages of zeros.
    read: u64,
    hashed: u64,
    zero: u64,
    /// Pages there are; at least as many as were read.
    present: u64,
}

impl Sketch {
    /// Limit of contents of one process that are kept.
    pub const MAX_CONTENTS: usize = 4096;

    /// Adds a page that was read. `shared` means that another process maps it, too.
    pub fn add(&mut self, content: Content, shared: bool) {
        let page = Tally {
            pages: 1,
            shared: u64::from(shared),
        };
        self.read += 1;
        match content {
            // The kernel's own page of zeros takes no memory of the process, and a shared one is
            // assumed to be that.
            Content::Zero if shared => {}
            Content::Zero => self.zero += 1,
            Content::Hashed(hash) => {
                self.hashed += 1;
                self.frequent.add(hash, page);
                if self.bound.is_some_and(|bound| hash >= bound) {
                    return;
                }
                *self.kept.entry(hash).or_default() += page;
                if self.kept.len() > Sketch::MAX_CONTENTS {
                    self.bound = self.kept.pop_last().map(|(largest, _)| largest);
                }
            }
        }
    }

    /// Sets the number of pages, of which those added are a sample.
    pub fn set_present(&mut self, present: u64) {
        self.present = present;
    }

    /// Number of pages that are not zero, estimated from those read.
    #[must_use]
    pub fn pages(&self) -> f64 {
        self.hashed as f64 / self.part_read()
    }

    /// Number of pages of zeros, estimated from those read.
    #[must_use]
    pub fn zero_pages(&self) -> f64 {
        self.zero as f64 / self.part_read()
    }

    /// The part of the pages that was read.
    #[must_use]
    pub fn part_read(&self) -> f64 {
        if self.read >= self.present {
            1.0
        } else {
            self.read.max(1) as f64 / self.present as f64
        }
    }

    /// The number of contents that were kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether no content was kept: there were only pages of zeros, if any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The contents that were kept, by hash.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (Hash, Tally)> + '_ {
        self.kept.iter().map(|(&hash, &tally)| (hash, tally))
    }

    /// Contents from here on were not kept.
    pub(crate) fn bound(&self) -> Option<Hash> {
        self.bound
    }

    /// The contents that are frequent.
    pub(crate) fn frequent(&self) -> &Frequent {
        &self.frequent
    }
}

/// The probability that a content's hash lies below the bound.
pub(crate) fn probability(bound: Option<Hash>) -> f64 {
    /// 2^64
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    bound.map_or(1.0, |bound| bound as f64 / ALL)
}

/// The lower of two bounds.
pub(crate) fn lower(one: Option<Hash>, other: Option<Hash>) -> Option<Hash> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Salt;

    fn hashes(number: u64) -> impl Iterator<Item = Content> {
        (0..number).map(|n| Content::Hashed(Salt::new(3).mix([n, 0])))
    }

    #[test]
    fn a_small_process_is_kept_whole() {
        let mut sketch = Sketch::default();
        hashes(4096).for_each(|content| sketch.add(content, false));
        hashes(10).for_each(|content| sketch.add(content, true));
        sketch.add(Content::Zero, false);
        sketch.add(Content::Zero, true);
        assert_eq!((sketch.len(), sketch.bound()), (4096, None));
        assert_eq!((sketch.pages(), sketch.zero_pages()), (4106.0, 1.0));
    }

    #[test]
    fn a_large_one_never_takes_more_than_its_room() {
        let mut sketch = Sketch::default();
        hashes(100_000).for_each(|content| sketch.add(content, false));
        assert_eq!(sketch.len(), Sketch::MAX_CONTENTS);
        let bound = sketch.bound().unwrap();
        assert!(sketch.kept().all(|(hash, _)| hash < bound));
        let expected = 4096.0 / 100_000.0;
        let probability = probability(Some(bound));
        assert!((probability / expected - 1.0).abs() < 0.06, "{probability}");
    }

    #[test]
    fn order_changes_nothing() {
        let pages: Vec<Content> = hashes(9000).chain(hashes(500)).collect();
        let (mut there, mut back) = (Sketch::default(), Sketch::default());
        for (&first, &last) in pages.iter().zip(pages.iter().rev()) {
            there.add(first, false);
            back.add(last, false);
        }
        assert_eq!((there.kept, there.bound), (back.kept, back.bound));
    }

    #[test]
    fn what_was_not_read_is_as_what_was() {
        let mut sketch = Sketch::default();
        hashes(75).for_each(|content| sketch.add(content, false));
        (0..25).for_each(|_| sketch.add(Content::Zero, false));
        sketch.set_present(400);
        assert_eq!(
            (sketch.part_read(), sketch.pages(), sketch.zero_pages()),
            (0.25, 300.0, 100.0)
        );
    }
}

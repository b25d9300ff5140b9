//! Blocks that need not be read again while a region is being filled.
//!
//! # Problem
//! A guest fills its memory little by little. Each time more of it is there it is swept again, and
//! most of what such a sweep reads was read a moment ago: every page two dozen times while a guest
//! boots.
//!
//! # Approach
//! A block is *settled* when a sweep found all its pages and took each in: as merged, or as a candidate,
//! which is indexed or queued from then on. What it left out because it had just been merged counts as
//! found. Later sweeps pass it over, for [`LASTS`] after the first block was settled; then all count as
//! unread again, because pages may have been rewritten. What is busy, locked, or in a huge page does not
//! settle.
//!
//! A region with few holes that has been swept is done. When its space grows after that, a sweep
//! fills the holes: it passes over what settled, however long ago, so that it costs what may be new.
//! Any other sweep of the region reads all, and so does each once the space became smaller. A region
//! that was found full forgets its settled blocks.
//!
//! # Units
//! Blocks of 2 MiB. One bit each, once a block is settled; a region of one block has none of this.

use crate::command::Nanos;
use crate::convert;
use crate::params::SECOND;

/// For so long after the first one settled, blocks are passed over.
const LASTS: Nanos = 4 * SECOND;

/// The settled blocks of one region, and the block that is being read.
#[derive(Debug, Clone, Default)]
pub(super) struct Settled {
    bits: Box<[u64]>,
    /// When the first of them settled; none if only a sweep that fills holes passes them over.
    since: Option<Nanos>,
    /// Pages of the block that is being read: read so far, and taken in.
    counted: (u32, u32),
}

impl Settled {
    /// A block is read from its first page on.
    pub(super) fn begin_block(&mut self) {
        self.counted = (0, 0);
    }

    /// So many of its pages were read.
    pub(super) fn was_read(&mut self, pages: u32) {
        self.counted.0 += pages;
    }

    /// So many of its pages were taken in.
    pub(super) fn took(&mut self, pages: u32) {
        self.counted.1 += pages;
    }

    /// The block, one of `blocks`, was read to its end. `may_settle` says whether what was taken in is merged, or
    /// will be.
    pub(super) fn end_block(&mut self, block: u32, blocks: u32, may_settle: bool, now: Nanos) {
        let (read, taken) = std::mem::take(&mut self.counted);
        if taken < read || blocks < 2 || !may_settle {
            return;
        }
        if self.bits.is_empty() {
            self.bits = vec![0; convert::index(blocks.div_ceil(u64::BITS))].into();
            self.since = Some(now);
        }
        let (word, bit) = convert::word_and_bit(block);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
    }

    /// Whether the block is passed over.
    pub(super) fn has(&self, block: u32) -> bool {
        let (word, bit) = convert::word_and_bit(block);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }

    /// A sweep begins that reads more than what was not there: what settled long ago is forgotten.
    pub(super) fn begin_sweep(&mut self, now: Nanos) {
        let is_old = |since| now.saturating_sub(since) >= LASTS;
        if self.since.is_none_or(is_old) {
            self.forget();
        }
    }

    /// From now on only sweeps that fill holes pass blocks over.
    pub(super) fn expire(&mut self) {
        self.since = None;
    }

    /// All blocks are to be read again.
    pub(super) fn forget(&mut self) {
        self.bits = Box::default();
    }

    /// Whether nothing is known, and no block is being read.
    pub(super) fn is_empty(&self) -> bool {
        self.bits.is_empty() && self.counted == (0, 0)
    }

    /// Bytes it takes beside its own.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settled: &mut Settled, block: u32, taken: u32, now: Nanos) {
        settled.begin_block();
        settled.was_read(512);
        settled.took(taken);
        settled.end_block(block, 100, true, now);
    }

    #[test]
    fn a_block_settles_if_all_its_pages_were_taken_in() {
        let mut settled = Settled::default();
        read(&mut settled, 3, 512, 0);
        read(&mut settled, 70, 511, 0);
        read(&mut settled, 99, 512, 0);
        let all: Vec<u32> = (0..100).filter(|&block| settled.has(block)).collect();
        assert_eq!(all, [3, 99]);
    }

    #[test]
    fn settled_blocks_are_read_again_after_a_while() {
        let mut settled = Settled::default();
        read(&mut settled, 3, 512, SECOND);
        read(&mut settled, 4, 512, 4 * SECOND);
        settled.begin_sweep(5 * SECOND - 1);
        assert!(settled.has(3) && settled.has(4));
        settled.begin_sweep(5 * SECOND);
        assert!(!settled.has(3) && !settled.has(4));
    }

    #[test]
    fn a_region_of_one_block_has_nothing_to_pass_over() {
        let mut settled = Settled::default();
        settled.was_read(512);
        settled.took(512);
        settled.end_block(0, 1, true, 0);
        assert!(!settled.has(0) && settled.bytes() == 0);
    }
}

//! Values by number of a frame.
//!
//! # Problem
//! Each merged page causes lookups and updates by the number of its frame; a hash table of single
//! frames took longer for them than all other bookkeeping of a merge. With millions of frames each
//! byte beside the values counts.
//!
//! # Approach
//! The machine assigns numbers densely, the lowest first. So values lie in blocks of [`BLOCK`]
//! neighbours, and two levels of arrays lead to a block, as in the kernel's radix trees. A block
//! lives as long as a value in it; the arrays above it live as long as the table. Nothing is moved
//! when the table grows.
//!
//! # Units
//! A value takes its size and a quarter of a byte; with numbers that are scattered widely, as much
//! as a block. All beyond that is [`LEAF_BYTES`] for each 131,072 numbers that were ever used.

use std::ops::RangeInclusive;

use crate::command::FrameId;
use crate::convert;

/// Neighbouring numbers that share a block: those of a mask of 128 bits.
const BLOCK: u32 = 128;
/// Neighbouring blocks that share a leaf.
const LEAF: u32 = 1024;
/// Bytes of a leaf.
#[cfg(test)]
pub(crate) const LEAF_BYTES: usize = LEAF as usize * size_of::<usize>();

#[derive(Debug, Clone)]
struct FrameBlock<T> {
    /// One bit for each of its numbers that has a value.
    present: [u64; 2],
    values: [T; BLOCK as usize],
}

impl<T> FrameBlock<T> {
    #[inline]
    fn has(&self, place: usize) -> bool {
        self.present[place / 64 % 2] >> (place % 64) & 1 != 0
    }
}

/// Blocks that follow each other.
type Leaf<T> = Box<[Option<Box<FrameBlock<T>>>]>;

/// The table.
#[derive(Debug, Clone)]
pub(crate) struct FrameTable<T> {
    leaves: Vec<Option<Leaf<T>>>,
    /// Leaves and blocks that there are.
    leaf_count: usize,
    block_count: usize,
    len: usize,
}

impl<T> Default for FrameTable<T> {
    fn default() -> FrameTable<T> {
        FrameTable {
            leaves: vec![],
            leaf_count: 0,
            block_count: 0,
            len: 0,
        }
    }
}

/// The position of a frame's value: the leaf, the block in it, the index in the block.
#[inline]
fn split(frame: FrameId) -> (usize, usize, usize) {
    let block = frame.0 / BLOCK;
    (
        convert::index(block / LEAF),
        convert::index(block % LEAF),
        convert::index(frame.0 % BLOCK),
    )
}

impl<T: Copy + Default> FrameTable<T> {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.block_count * size_of::<FrameBlock<T>>()
            + self.leaf_count * size_of::<Option<Box<FrameBlock<T>>>>() * convert::index(LEAF)
            + self.leaves.capacity() * size_of::<Option<Leaf<T>>>()
    }

    /// The value of a frame, if it has one.
    #[inline]
    pub(crate) fn get(&self, frame: FrameId) -> Option<&T> {
        let (leaf, at, place) = split(frame);
        let block = self.leaves.get(leaf)?.as_ref()?[at].as_ref()?;
        block.has(place).then(|| &block.values[place])
    }

    /// As [`FrameTable::get`], to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, frame: FrameId) -> Option<&mut T> {
        let (leaf, at, place) = split(frame);
        let block = self.leaves.get_mut(leaf)?.as_mut()?[at].as_mut()?;
        block.has(place).then(|| &mut block.values[place])
    }

    /// Gives a frame a value; returns the one it had.
    #[inline]
    pub(crate) fn insert(&mut self, frame: FrameId, value: T) -> Option<T> {
        let (_, _, place) = split(frame);
        let block = self.block_for(frame);
        let old = std::mem::replace(&mut block.values[place], value);
        if block.has(place) {
            return Some(old);
        }
        block.present[place / 64] |= 1 << (place % 64);
        self.len += 1;
        None
    }

    /// Takes the value of a frame away.
    pub(crate) fn remove(&mut self, frame: FrameId) -> Option<T> {
        let (leaf, at, place) = split(frame);
        let slot = &mut self.leaves.get_mut(leaf)?.as_mut()?[at];
        let block = slot.as_mut()?;
        if !block.has(place) {
            return None;
        }
        let old = block.values[place];
        block.present[place / 64] &= !(1 << (place % 64));
        self.len -= 1;
        if block.present == [0, 0] {
            *slot = None;
            self.block_count -= 1;
        }
        Some(old)
    }

    /// The frames of these numbers with their values, in order. Costs a little for each leaf that
    /// there is, too.
    pub(crate) fn range(&self, range: RangeInclusive<u32>) -> impl Iterator<Item = (FrameId, &T)> {
        let numbers = range.clone();
        let is_in = move |first: u32, count: u32| {
            first <= *range.end() && *range.start() - first.min(*range.start()) < count
        };
        let is_leaf_in = is_in.clone();
        let leaves = (0..).zip(&self.leaves);
        let leaves = leaves
            .map(|(number, leaf)| (number * (BLOCK * LEAF), leaf))
            .filter(move |(first, _)| is_leaf_in(*first, BLOCK * LEAF))
            .filter_map(|(first, leaf)| leaf.as_ref().map(|leaf| (first, leaf)));
        let blocks = leaves
            .flat_map(|(first, leaf)| (0..LEAF).map(move |at| first + at * BLOCK).zip(leaf.iter()))
            .filter(move |(first, _)| is_in(*first, BLOCK))
            .filter_map(|(first, block)| block.as_deref().map(|block| (first, block)));
        let all = blocks.flat_map(|(first, block): (u32, &FrameBlock<T>)| {
            let all = (0..BLOCK).zip(block.values.iter().enumerate());
            all.filter(|(_, (place, _))| block.has(*place))
                .map(move |(place, (_, value))| (FrameId(first + place), value))
        });
        all.filter(move |(frame, _)| numbers.contains(&frame.0))
    }

    /// The block of a frame, which is made if it is not there.
    fn block_for(&mut self, frame: FrameId) -> &mut FrameBlock<T> {
        let (leaf, at, _) = split(frame);
        if leaf >= self.leaves.len() {
            self.leaves.resize(leaf + 1, None);
        }
        let leaf_count = &mut self.leaf_count;
        let leaf = self.leaves[leaf].get_or_insert_with(|| {
            *leaf_count += 1;
            vec![None; convert::index(LEAF)].into_boxed_slice()
        });
        let block_count = &mut self.block_count;
        leaf[at].get_or_insert_with(|| {
            *block_count += 1;
            Box::new(FrameBlock {
                present: [0, 0],
                values: [T::default(); BLOCK as usize],
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..600, any::<u16>()), 0..400)) {
            let (mut table, mut map) = (FrameTable::default(), BTreeMap::new());
            for (insert, frame, value) in steps {
                if insert {
                    prop_assert_eq!(table.insert(FrameId(frame), value), map.insert(frame, value));
                } else {
                    prop_assert_eq!(table.remove(FrameId(frame)), map.remove(&frame));
                }
                prop_assert_eq!(table.len(), map.len());
                if let Some(value) = table.get_mut(FrameId(frame / 2)) {
                    *value ^= 1;
                    map.entry(frame / 2).and_modify(|value| *value ^= 1);
                }
            }
            for frame in 0..600 {
                prop_assert_eq!(table.get(FrameId(frame)), map.get(&frame));
            }
            let all: BTreeMap<u32, u16> = table.range(0..=u32::MAX).map(|(frame, &value)| (frame.0, value)).collect();
            prop_assert_eq!(&all, &map);
            for range in [0..=126, 127..=128, 100..=400, 599..=u32::MAX] {
                let some = table.range(range.clone()).map(|(frame, &value)| (frame.0, value));
                prop_assert!(some.eq(map.range(range).map(|(&frame, &value)| (frame, value))));
            }
        }
    }

    #[test]
    fn an_emptied_table_takes_no_blocks() {
        let mut table = FrameTable::default();
        for frame in [0, 127, 128, 5000, u32::MAX] {
            table.insert(FrameId(frame), 1u64);
        }
        for frame in [128, 0, u32::MAX, 127, 5000] {
            assert_eq!(table.remove(FrameId(frame)), Some(1));
        }
        assert_eq!((table.len(), table.block_count), (0, 0));
        assert_eq!(table.get(FrameId(127)), None);
    }
}

//! Values by number of a frame.
//!
//! # Problem
//! Something is looked up or noted for each page that is merged, by the number of its frame; a
//! hash table of single frames took longer for that than all other bookkeeping of a merge.
//!
//! # Approach
//! The machine hands out numbers in runs, and pages are merged in that order. So values lie in
//! blocks of [`BLOCK`] neighbours, a directory finds the blocks, and the block that was used last
//! is tried first. A block lives as long as a value in it.
//!
//! # Units
//! A value takes its size and a byte; with numbers that are scattered widely, as much
//! as a block.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::command::FrameId;
use crate::convert;
use crate::hash::mix;

/// Neighbouring numbers that share a block.
const BLOCK: u32 = 128;

/// Hashes the number of a block; the standard one costs more than the table.
#[derive(Debug, Clone, Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("blocks are hashed by their number");
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = mix(u64::from(number));
    }
}

#[derive(Debug, Clone)]
struct Block<T> {
    number: u32,
    /// How many of its numbers have values, and which.
    len: u32,
    present: [bool; BLOCK as usize],
    values: [T; BLOCK as usize],
}

/// The table.
#[derive(Debug, Clone)]
pub(crate) struct FrameTable<T> {
    blocks: Vec<Box<Block<T>>>,
    /// Where in `blocks` a block is, by its number.
    directory: HashMap<u32, u32, BuildHasherDefault<BlockHasher>>,
    /// Where the block is that was used last.
    last: u32,
    len: usize,
}

impl<T> Default for FrameTable<T> {
    fn default() -> FrameTable<T> {
        FrameTable {
            blocks: vec![],
            directory: HashMap::default(),
            last: 0,
            len: 0,
        }
    }
}

/// Number of a frame's block, and its place in that.
fn split(frame: FrameId) -> (u32, usize) {
    (frame.0 / BLOCK, convert::index(frame.0 % BLOCK))
}

impl<T: Copy + Default> FrameTable<T> {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<Block<T>>()
            + self.blocks.capacity() * size_of::<usize>()
            + self.directory.capacity() * 9
    }

    /// The value of a frame, if it has one.
    pub(crate) fn get(&self, frame: FrameId) -> Option<&T> {
        let (number, place) = split(frame);
        let block = &self.blocks[self.find(number)?];
        block.present[place].then(|| &block.values[place])
    }

    /// As [`FrameTable::get`], to be changed.
    pub(crate) fn get_mut(&mut self, frame: FrameId) -> Option<&mut T> {
        let (number, place) = split(frame);
        let at = self.find(number)?;
        self.last = convert::narrow(at as u64);
        let block = &mut self.blocks[at];
        block.present[place].then(|| &mut block.values[place])
    }

    /// Gives a frame a value; returns the one it had.
    pub(crate) fn insert(&mut self, frame: FrameId, value: T) -> Option<T> {
        let (number, place) = split(frame);
        let at = match self.find(number) {
            Some(at) => at,
            None => self.add(number),
        };
        self.last = convert::narrow(at as u64);
        let block = &mut self.blocks[at];
        let old = std::mem::replace(&mut block.values[place], value);
        if std::mem::replace(&mut block.present[place], true) {
            return Some(old);
        }
        block.len += 1;
        self.len += 1;
        None
    }

    /// Takes the value of a frame away.
    pub(crate) fn remove(&mut self, frame: FrameId) -> Option<T> {
        let (number, place) = split(frame);
        let at = self.find(number)?;
        let block = &mut self.blocks[at];
        if !std::mem::replace(&mut block.present[place], false) {
            return None;
        }
        let old = block.values[place];
        block.len -= 1;
        self.len -= 1;
        if block.len == 0 {
            self.drop_block(at);
        }
        Some(old)
    }

    /// All frames with their values; the order depends on the calls made only.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FrameId, &T)> {
        self.blocks.iter().flat_map(|block| {
            let first = block.number * BLOCK;
            (first..)
                .zip(block.present.iter().zip(&block.values))
                .filter(|(_, (present, _))| **present)
                .map(|(frame, (_, value))| (FrameId(frame), value))
        })
    }

    fn find(&self, number: u32) -> Option<usize> {
        let last = convert::index(self.last);
        if self
            .blocks
            .get(last)
            .is_some_and(|block| block.number == number)
        {
            return Some(last);
        }
        self.directory.get(&number).map(|&at| convert::index(at))
    }

    fn add(&mut self, number: u32) -> usize {
        let at = self.blocks.len();
        self.blocks.push(Box::new(Block {
            number,
            len: 0,
            present: [false; BLOCK as usize],
            values: [T::default(); BLOCK as usize],
        }));
        self.directory.insert(number, convert::narrow(at as u64));
        at
    }

    fn drop_block(&mut self, at: usize) {
        let block = self.blocks.swap_remove(at);
        self.directory.remove(&block.number);
        if let Some(moved) = self.blocks.get(at) {
            self.directory
                .insert(moved.number, convert::narrow(at as u64));
        }
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
            let all: BTreeMap<u32, u16> = table.iter().map(|(frame, &value)| (frame.0, value)).collect();
            prop_assert_eq!(all, map);
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
        assert_eq!((table.len(), table.blocks.len()), (0, 0));
        assert_eq!(table.get(FrameId(127)), None);
    }
}

//! The order and the times in which a machine reads the files of its disk.
//!
//! Each file is read once in full, in shuffled order, at a steady pace. After every few files one
//! of those read before is read again: its pages are in the page cache, so the disk is not used.

use std::ops::Range;
use std::time::Duration;

use super::ORDER;
use crate::rng::{Rng, shuffle};

/// Limit of the bytes of one read; a machine's kernel reads ahead as much.
const PIECE: u64 = 128 << 10;
/// After one file in this many, another is read again.
const AGAIN: usize = 3;

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Piece {
    /// The file, by its place in the list.
    pub file: usize,
    /// Bytes of it.
    pub bytes: Range<u64>,
}

/// A piece that is read, and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PieceAccess {
    /// The time since the beginning.
    pub at: Duration,
    /// The piece.
    pub piece: Piece,
}

/// The pieces of a file of this size.
pub(super) fn pieces(file: usize, size: u64) -> impl Iterator<Item = Piece> {
    let starts = (0..size).step_by(usize::try_from(PIECE).unwrap_or(1));
    starts.map(move |start| Piece {
        file,
        bytes: start..(start + PIECE).min(size),
    })
}

/// The reads of machine `number` of files of these sizes, at this many bytes a second.
pub(super) fn accesses(
    sizes: &[u64],
    seed: u64,
    number: u64,
    bytes_per_second: u64,
) -> Vec<PieceAccess> {
    let mut draws = Rng::new(seed, ORDER + number);
    let mut files: Vec<usize> = (0..sizes.len()).collect();
    shuffle(&mut files, &mut draws);
    let mut accesses = Vec::new();
    let mut asked = 0;
    for (place, &file) in files.iter().enumerate() {
        for piece in pieces(file, sizes[file]) {
            let at = Duration::from_secs_f64(asked as f64 / bytes_per_second as f64);
            asked += piece.bytes.end - piece.bytes.start;
            accesses.push(PieceAccess { at, piece });
        }
        if draws.below(AGAIN) == 0 {
            let file = files[draws.below(place + 1)];
            let at = Duration::from_secs_f64(asked as f64 / bytes_per_second as f64);
            accesses.extend(pieces(file, sizes[file]).map(|piece| PieceAccess { at, piece }));
        }
    }
    accesses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SIZES: [u64; 6] = [1, 4096, 0, 300_000, 131_072, 70_000];

    #[test]
    fn every_byte_is_read_first_at_its_pace_and_some_again() {
        let accesses = accesses(&SIZES, 1, 0, 100_000);
        assert!(accesses.is_sorted_by_key(|access| access.at));
        let mut first = HashSet::new();
        let mut asked = 0_u64;
        for access in &accesses {
            if first.insert(access.piece.clone()) {
                let due = Duration::from_secs_f64(asked as f64 / 100_000.0);
                assert_eq!(access.at, due);
                asked += access.piece.bytes.end - access.piece.bytes.start;
            }
        }
        assert_eq!(asked, SIZES.iter().sum::<u64>());
        let many = super::accesses(&[10; 300], 1, 0, 1000);
        assert!((350..450).contains(&many.len()), "{}", many.len());
    }

    #[test]
    fn each_machine_has_an_order_of_its_own_and_the_same_each_time() {
        let order = |number| accesses(&[10; 50], 7, number, 1000);
        assert_eq!(order(0), order(0));
        assert_ne!(order(0), order(1));
    }
}

//! Contents of few pages, or of many: the numbers of copies follow a Zipf law.
//!
//! # Problem
//! If each equal page has one partner, or all pages are the same one, a system learns at once which
//! merges pay. In real memory most repeated contents occur two or three times, and few are
//! everywhere.
//!
//! # Approach
//! One plan for all processes: contents with [`MIN_COPIES`] to [`MAX_COPIES`] copies, the chance of
//! a number of copies in inverse proportion to it, until half of all pages are taken; the others
//! are unique. All are shuffled over all processes.

use serde::{Deserialize, Serialize};

use crate::rng::{Rng, shuffle};

/// Bounds of the copies of one content.
const MIN_COPIES: usize = 2;
const MAX_COPIES: usize = 1000;
/// A family of contents that no page has.
const PLAN: u64 = 1 << 44;

/// The part of the plan that one process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sharers {
    /// Index of the process.
    pub process: usize,
    /// Number of processes.
    pub processes: usize,
}

impl Sharers {
    /// The numbers of its pages.
    pub(crate) fn numbers(self, seed: u64, pages: usize) -> Vec<u64> {
        let all = plan(seed, pages * self.processes);
        all[pages * self.process..][..pages].to_vec()
    }
}

/// The numbers of `pages` pages of all processes.
fn plan(seed: u64, pages: usize) -> Vec<u64> {
    let mut draws = Rng::new(seed, PLAN);
    let weights: Vec<f64> = (MIN_COPIES..=MAX_COPIES)
        .map(|copies| 1.0 / copies as f64)
        .collect();
    let total: f64 = weights.iter().sum();
    let (mut numbers, mut content) = (Vec::with_capacity(pages), 0);
    while numbers.len() < pages / 2 {
        let mut at = draws.below(1 << 30) as f64 / f64::from(1 << 30) * total;
        let copies = weights.iter().position(|weight| {
            at -= weight;
            at < 0.0
        });
        let copies = copies.map_or(MAX_COPIES, |at| MIN_COPIES + at);
        let room = pages - numbers.len();
        numbers.extend(std::iter::repeat_n(content, copies.min(room)));
        content += 1;
    }
    numbers.extend((content..).take(pages - numbers.len()));
    shuffle(&mut numbers, &mut draws);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn few_contents_are_everywhere_and_most_have_few_copies() {
        let pages = 1 << 16;
        let mut copies: HashMap<u64, usize> = HashMap::new();
        for number in plan(3, pages) {
            *copies.entry(number).or_default() += 1;
        }
        let of = |least: usize, most: usize| {
            copies
                .values()
                .filter(|&&n| n >= least && n <= most)
                .count()
        };
        assert_eq!(copies.values().sum::<usize>(), pages);
        assert!(copies.values().all(|&n| n <= MAX_COPIES));
        let unique = of(1, 1);
        assert!((pages * 9 / 20..=pages / 2).contains(&unique), "{unique}");
        // As many contents have 2 to 20 copies as have 21 to 1000, up to chance.
        let (few, many) = (of(2, 20), of(21, MAX_COPIES));
        assert!(
            few > 3 * many / 10 && many > 3 * few / 10,
            "{few} and {many}"
        );
    }

    #[test]
    fn processes_share_one_plan() {
        let of = |process| {
            Sharers {
                process,
                processes: 4,
            }
            .numbers(7, 1000)
        };
        assert_eq!((0..4).flat_map(of).collect::<Vec<_>>(), plan(7, 4000));
        assert_ne!(
            of(0),
            Sharers {
                process: 0,
                processes: 4
            }
            .numbers(8, 1000)
        );
    }
}

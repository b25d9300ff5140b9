//! Merged pages, possible merges and work, by space.
//!
//! # Problem
//! Sums over all spaces do not show which of them is worth its work. Monitoring asks every second,
//! for thousands of spaces.
//!
//! # Approach
//! One pass over the regions in the order in which they are kept, as for [`Engine::report`], adds
//! each to its space; no page is read. Of many spaces only the first by merged pages, by pages
//! left, and by work are reported: a reader can sort them in any of these orders, and has the first
//! of each.
//!
//! # Units
//! Pages; nanoseconds of processor time.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Engine;
use crate::convert;
use crate::report::{SpaceFigures, SpacesFigures};

/// The orders whose first spaces are reported.
const ORDERS: [fn(&SpaceFigures) -> u64; 3] = [
    |space| space.merged,
    |space| space.left,
    |space| space.work_time,
];

impl Engine {
    /// The sums of at most `most` spaces. Costs a pass over all regions.
    #[must_use]
    pub fn figures(&self, most: usize) -> SpacesFigures {
        let scale = self.scale();
        let mut sums = vec![Sum::default(); self.spaces.slots()];
        for region in self.regions.iter() {
            let sum = &mut sums[region.space().index()];
            sum.resident += u64::from(region.resident());
            sum.merged += u64::from(region.merged_now());
            sum.left += region.duplicates_left(&scale);
        }
        let spaces = self.spaces.with_slots().map(|(slot, space)| {
            let (sum, work) = (sums[slot.index()], space.work());
            SpaceFigures {
                space: space.id(),
                resident: sum.resident,
                merged: sum.merged,
                left: convert::count(sum.left),
                read: work.read,
                work_time: work.time,
            }
        });
        first(spaces.collect(), most)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    resident: u64,
    merged: u64,
    left: f64,
}

/// At most `most` of the spaces: the first of each order, then the second of each, and so on.
fn first(spaces: Vec<SpaceFigures>, most: usize) -> SpacesFigures {
    let Some(left_out) = spaces.len().checked_sub(most).filter(|&out| out > 0) else {
        return SpacesFigures {
            spaces,
            left_out: 0,
        };
    };
    let orders = ORDERS.map(|figure| {
        let mut order: Vec<usize> = (0..spaces.len()).collect();
        order.sort_by_key(|&at| Reverse(figure(&spaces[at])));
        order
    });
    let mut chosen = BTreeSet::new();
    let ranks = (0..spaces.len()).flat_map(|rank| orders.iter().map(move |order| order[rank]));
    for at in ranks {
        if chosen.len() == most {
            break;
        }
        chosen.insert(at);
    }
    SpacesFigures {
        spaces: chosen.into_iter().map(|at| spaces[at]).collect(),
        left_out: left_out as u64,
    }
}

#[cfg(test)]
mod tests;

//! Growth of tables with the host: capacity little above their contents.
//!
//! # Problem
//! A vector that doubles takes up to twice its contents, and a queue keeps the capacity of its
//! longest time. On a host of small mappings, 1/256 of its memory is little.
//!
//! # Approach
//! Tables grow by a sixteenth, which copies an item sixteen times on average instead of once; a
//! large one is not copied, but mapped elsewhere. Queues shrink once three quarters of their
//! capacity are free.

use std::collections::VecDeque;

/// A table grows by one part in this many of its length, and by [`MIN_GROWTH`] at least.
const GROWTH_DIVISOR: usize = 16;
const MIN_GROWTH: usize = 16;

/// Makes room for another item.
pub(crate) fn reserve<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact((table.len() / GROWTH_DIVISOR).max(MIN_GROWTH));
    }
}

/// Appends an item.
pub(crate) fn push<T>(table: &mut Vec<T>, item: T) {
    reserve(table);
    table.push(item);
}

/// Shrinks a queue whose capacity was not needed for a while.
pub(crate) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > MIN_GROWTH && queue.len() < queue.capacity() / 4 {
        queue.shrink_to(queue.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_a_sixteenth_more_at_most() {
        let mut table = vec![];
        for number in 0..10_000 {
            push(&mut table, number);
            assert!(table.capacity() <= table.len() + table.len() / GROWTH_DIVISOR + MIN_GROWTH);
        }
    }

    #[test]
    fn a_queue_that_empties_gives_its_room_back() {
        let mut queue: VecDeque<u64> = (0..10_000).collect();
        while queue.pop_front().is_some() {
            shrink(&mut queue);
            assert!(queue.capacity() <= 4 * queue.len() + MIN_GROWTH);
        }
    }
}

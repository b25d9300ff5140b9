//! Contents that a process has very often.
//!
//! # Problem
//! A sketch keeps one content in many. A content that a process has a hundred thousand times
//! (memory that an allocator or a guest fills with a pattern) is probably not kept, and the kept
//! ones do not show it.
//!
//! # Approach
//! A fixed number of counters. A page whose content has none takes a free one; if there is none
//! free, each counter loses one. A content's counter lacks at most the number lost, and a content
//! of more than one page in [`MAX_COUNTERS`] keeps its counter.
//!
//! # Source
//! J. Misra and D. Gries, "Finding repeated elements", 1982.

use std::collections::BTreeMap;

use crate::content::Hash;
use crate::tally::Tally;

/// Counters of a process.
const MAX_COUNTERS: usize = 256;

/// The counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frequent {
    counters: BTreeMap<Hash, Tally>,
    /// The most that a counter may lack.
    lost: u64,
}

impl Frequent {
    /// One more page.
    pub(crate) fn add(&mut self, hash: Hash, page: Tally) {
        if let Some(counter) = self.counters.get_mut(&hash) {
            *counter += page;
        } else if self.counters.len() < MAX_COUNTERS {
            self.counters.insert(hash, page);
        } else {
            self.lost += 1;
            self.counters.retain(|_, counter| {
                counter.pages -= 1;
                counter.shared = counter.shared.min(counter.pages);
                counter.pages > 0
            });
        }
    }

    /// The contents that are frequent beyond doubt: more was counted than lost.
    pub(crate) fn sure(&self) -> BTreeMap<Hash, Tally> {
        let sure = |counter: &Tally| counter.pages > self.lost;
        let counters = self.counters.iter().filter(|(_, counter)| sure(counter));
        counters.map(|(&hash, &counter)| (hash, counter)).collect()
    }

    /// The most that a counter may lack.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Tally = Tally {
        pages: 1,
        shared: 0,
    };

    #[test]
    fn a_content_of_one_page_in_ten_is_found_among_many_others() {
        let mut frequent = Frequent::default();
        for page in 0..100_000u64 {
            let hash = if page % 10 == 0 { 7 } else { page + 100 };
            frequent.add(hash, PAGE);
        }
        let sure = frequent.sure();
        assert_eq!(sure.keys().copied().collect::<Vec<_>>(), [7]);
        let counted = sure[&7].pages;
        assert!(counted <= 10_000 && counted + frequent.lost() >= 10_000);
        assert!(frequent.lost() <= 100_000 / 256, "{}", frequent.lost());
    }

    #[test]
    fn nothing_is_frequent_where_all_differ() {
        let mut frequent = Frequent::default();
        (0..100_000).for_each(|hash| frequent.add(hash, PAGE));
        assert!(frequent.sure().is_empty());
    }
}

//! Pages that were merged after they were read.
//!
//! # Problem
//! An answer of 16,000 pages is worked through piece by piece, and matches are extended in between.
//! Pages merged since the answer was read must not count as broken.
//!
//! # Approach
//! A bit a page, in a sorted list of the regions in question. Pages are merged and looked up in
//! runs, so the region is nearly always that of the time before.
//!
//! # Rejected
//! A sorted list of the pages would be sorted again for each piece: where equal pages come in runs
//! that took a sixth of all instructions.
//!
//! # Units
//! Pages of a region. 24 bytes for each region, and a bit for each page up to the last that was
//! merged.

use crate::convert;
use crate::ids::RegionId;
use crate::lookup::RegionPage;

/// A set of places, cleared as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct MergedSinceRead {
    /// Bits of pages, 64 a word, by region.
    regions: Vec<(RegionId, Vec<u64>)>,
    /// The index of the last region looked up.
    last: usize,
}

impl MergedSinceRead {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.regions.clear();
    }

    /// Notes a place.
    pub(super) fn insert(&mut self, place: RegionPage) {
        if let Err(at) = self.find(place.region) {
            self.regions.insert(at, (place.region, vec![]));
            self.last = at;
        }
        let pages = &mut self.regions[self.last].1;
        let (word, bit) = convert::word_and_bit(place.page);
        if pages.len() <= word {
            pages.resize(word + 1, 0);
        }
        pages[word] |= bit;
    }

    /// Whether the page was merged since the answer was read.
    pub(super) fn contains(&mut self, place: RegionPage) -> bool {
        let (word, bit) = convert::word_and_bit(place.page);
        self.find(place.region).is_ok()
            && self.regions[self.last]
                .1
                .get(word)
                .is_some_and(|pages| pages & bit != 0)
    }

    /// Makes the region the last one; an error is the index where it belongs.
    fn find(&mut self, region: RegionId) -> Result<(), usize> {
        if self
            .regions
            .get(self.last)
            .is_none_or(|&(id, _)| id != region)
        {
            self.last = self.regions.binary_search_by_key(&region, |&(id, _)| id)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_holds_what_was_noted_since_it_was_cleared(
            noted in prop::collection::vec((0_u32..5, 0_u32..200, 0_u32..40), 0..200),
        ) {
            let mut outdated = MergedSinceRead::default();
            let mut model = BTreeSet::new();
            for (region, page, clears) in noted {
                if clears == 0 {
                    outdated.clear();
                    model.clear();
                }
                let place = RegionPage { region: RegionId(region), page };
                let asked = RegionPage { region: RegionId(region ^ 1), page };
                prop_assert_eq!(outdated.contains(asked), model.contains(&asked));
                outdated.insert(place);
                model.insert(place);
                prop_assert!(outdated.contains(place));
            }
            for region in 0..6 {
                for page in 0..300 {
                    let place = RegionPage { region: RegionId(region), page };
                    prop_assert_eq!(outdated.contains(place), model.contains(&place));
                }
            }
        }
    }
}

//! Changes between two lists of a space's mappings.
//!
//! # Problem
//! Regions must follow mappings that grow at the end (heaps), at the start (stacks), shrink, split
//! and vanish, without losing the state of the pages that stay; lists may have 60,000 entries.
//!
//! # Approach
//! One pass over both sorted lists. A region lives on as far as mappings of its kind cover it
//! without a gap from its start; one whose start is gone dies. An uncovered part first extends the
//! region in front of it up to the full size, and the rest is cut into regions counted from the
//! start of the uncovered part: clones of one mapping are cut alike at any address. A part that
//! would be cut into more than [`MAX_PIECES`] is a *sparse mapping*, see [`super::sparse`].
//!
//! # Source
//! UKSM §5.1: regions come and go with mappings.

use crate::command::{Mapping, PAGE_SIZE};
use crate::ids::RegionId;

/// Limit of regions that one mapping is cut into when it is found.
pub(crate) const MAX_PIECES: u64 = 1024;

/// The properties of a region that concern mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: u64,
    /// Its id.
    pub(crate) region: RegionId,
}

/// A change of a known region, or a new region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The region stays as it is.
    Keep(RegionId),
    /// The region now ends here.
    Resize { region: RegionId, end: u64 },
    /// Its mapping is gone.
    Drop(RegionId),
    /// A new region.
    Found { start: u64, end: u64, kind: u64 },
    /// A new mapping too large to cut.
    Sparse { start: u64, end: u64, kind: u64 },
}

/// The changes that turn `known` into regions that cover `mappings`, by address; both are sorted
/// and disjoint, regions are at most `region_bytes` long. `sparse` are ranges that must not be cut,
/// sorted and disjoint; a part that would be cut into more than `most_pieces` becomes one of them.
/// Resized regions keep their start. Costs the length of all lists.
pub(crate) fn changes(
    known: &[KnownRegion],
    mappings: &[Mapping],
    sparse: &[(u64, u64)],
    region_bytes: u64,
    most_pieces: u64,
) -> Vec<Change> {
    let mut changes = Vec::with_capacity(known.len());
    let mut kept: Vec<KeptRegion> = Vec::with_capacity(known.len());
    let mut at = 0;
    for region in known {
        while at < mappings.len() && mappings[at].end <= region.start {
            at += 1;
        }
        let end = covered_until(&mappings[at..], region);
        if end > region.start {
            kept.push(KeptRegion {
                start: region.start,
                end,
                kind: region.kind,
                change: changes.len(),
            });
            changes.push(if end == region.end {
                Change::Keep(region.region)
            } else {
                Change::Resize {
                    region: region.region,
                    end,
                }
            });
        } else {
            changes.push(Change::Drop(region.region));
        }
    }
    let mut cutter = Cutter {
        sparse,
        region_bytes,
        most_pieces,
        changes,
    };
    let mut next = 0;
    for mapping in mappings.iter().filter(|mapping| is_sane(mapping)) {
        let mut from = mapping.start;
        while next < kept.len() && kept[next].end <= from {
            next += 1;
        }
        let mut here = next;
        while from < mapping.end {
            let (hole, covered) = match kept.get(here) {
                Some(region) if region.start < mapping.end => (region.start.max(from), region.end),
                _ => (mapping.end, mapping.end),
            };
            // The region in front grows first.
            if let Some(before) = here.checked_sub(1).map(|before| &kept[before])
                && from < hole
                && before.end == from
                && before.kind == mapping.kind
                && from - before.start < region_bytes
            {
                from = hole.min(before.start + region_bytes);
                cutter.extend(before.change, from);
            }
            cutter.cut(from, hole, mapping.kind);
            from = covered.max(hole);
            here += 1;
        }
    }
    cutter.changes
}

/// A region that lives on.
struct KeptRegion {
    start: u64,
    end: u64,
    kind: u64,
    /// The index of its change.
    change: usize,
}

fn is_sane(mapping: &Mapping) -> bool {
    mapping.start < mapping.end
        && mapping.start.is_multiple_of(PAGE_SIZE)
        && mapping.end.is_multiple_of(PAGE_SIZE)
}

/// The end of the part of the region, from its start on, that mappings of its kind cover.
fn covered_until(mappings: &[Mapping], region: &KnownRegion) -> u64 {
    let mut end = region.start;
    for mapping in mappings {
        if mapping.start > end
            || mapping.end <= end
            || mapping.kind != region.kind
            || end >= region.end
        {
            break;
        }
        end = mapping.end;
    }
    end.min(region.end)
}

/// Cuts the parts that no region covers, by address.
struct Cutter<'a> {
    /// The ranges that must not be cut, without those before the current address.
    sparse: &'a [(u64, u64)],
    region_bytes: u64,
    most_pieces: u64,
    changes: Vec<Change>,
}

impl Cutter<'_> {
    /// The region of this change ends at `end` instead.
    fn extend(&mut self, change: usize, end: u64) {
        let change = &mut self.changes[change];
        let (Change::Keep(region) | Change::Resize { region, .. }) = *change else {
            unreachable!("{change:?} is not that of a region that was kept");
        };
        *change = Change::Resize { region, end };
    }

    /// Cuts `from..to` into regions, leaving out known sparse ranges.
    fn cut(&mut self, mut from: u64, to: u64, kind: u64) {
        while let Some((&(start, end), rest)) = self.sparse.split_first() {
            if start >= to {
                break;
            }
            if end > from {
                self.pieces(from, start.max(from), kind);
                from = end.min(to);
            }
            if end > to {
                break;
            }
            self.sparse = rest;
        }
        self.pieces(from, to, kind);
    }

    fn pieces(&mut self, mut from: u64, to: u64, kind: u64) {
        if to - from.min(to) > self.region_bytes * self.most_pieces {
            self.changes.push(Change::Sparse {
                start: from,
                end: to,
                kind,
            });
            return;
        }
        while from < to {
            let end = to.min(from + self.region_bytes);
            self.changes.push(Change::Found {
                start: from,
                end,
                kind,
            });
            from = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: u64 = 16 * PAGE_SIZE;

    fn map(start: u64, end: u64) -> Mapping {
        Mapping {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            kind: 1,
        }
    }

    fn known(region: u32, start: u64, end: u64) -> KnownRegion {
        KnownRegion {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            kind: 1,
            region: RegionId(region),
        }
    }

    fn found(start: u64, end: u64) -> Change {
        Change::Found {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            kind: 1,
        }
    }

    fn resize(region: u32, end: u64) -> Change {
        Change::Resize {
            region: RegionId(region),
            end: end * PAGE_SIZE,
        }
    }

    #[test]
    fn a_mapping_is_cut_from_its_own_start() {
        let got = changes(&[], &[map(3, 38)], &[], PIECE, MAX_PIECES);
        assert_eq!(got, vec![found(3, 19), found(19, 35), found(35, 38)]);
    }

    #[test]
    fn a_heap_that_grows_extends_its_last_region() {
        let got = changes(&[known(0, 0, 10)], &[map(0, 20)], &[], PIECE, MAX_PIECES);
        assert_eq!(got, vec![resize(0, 16), found(16, 20)]);
    }

    #[test]
    fn a_stack_that_grows_downwards_keeps_its_region() {
        let got = changes(&[known(0, 10, 20)], &[map(5, 20)], &[], PIECE, MAX_PIECES);
        assert_eq!(got, vec![Change::Keep(RegionId(0)), found(5, 10)]);
    }

    #[test]
    fn a_mapping_that_shrinks_shortens_its_region() {
        let got = changes(
            &[known(0, 0, 16), known(1, 16, 20)],
            &[map(0, 12)],
            &[],
            PIECE,
            MAX_PIECES,
        );
        assert_eq!(got, vec![resize(0, 12), Change::Drop(RegionId(1))]);
    }

    #[test]
    fn a_region_whose_start_is_unmapped_dies() {
        let got = changes(&[known(0, 0, 16)], &[map(4, 16)], &[], PIECE, MAX_PIECES);
        assert_eq!(got, vec![Change::Drop(RegionId(0)), found(4, 16)]);
    }

    #[test]
    fn a_mapping_split_by_mprotect_keeps_its_region() {
        let got = changes(
            &[known(0, 0, 16)],
            &[map(0, 6), map(6, 16)],
            &[],
            PIECE,
            MAX_PIECES,
        );
        assert_eq!(got, vec![Change::Keep(RegionId(0))]);
    }

    #[test]
    fn another_kind_of_mapping_is_another_region() {
        let other = Mapping {
            kind: 2,
            ..map(0, 16)
        };
        let got = changes(&[known(0, 0, 16)], &[other], &[], PIECE, MAX_PIECES);
        assert_eq!(
            got,
            vec![
                Change::Drop(RegionId(0)),
                Change::Found {
                    start: 0,
                    end: PIECE,
                    kind: 2
                }
            ]
        );
    }

    #[test]
    fn a_huge_mapping_is_not_cut() {
        let size = MAX_PIECES * 16 + 1;
        let got = changes(&[], &[map(0, size)], &[], PIECE, MAX_PIECES);
        assert_eq!(
            got,
            vec![Change::Sparse {
                start: 0,
                end: size * PAGE_SIZE,
                kind: 1
            }]
        );
        let again = changes(
            &[],
            &[map(0, size)],
            &[(0, size * PAGE_SIZE)],
            PIECE,
            MAX_PIECES,
        );
        assert!(again.is_empty());
    }

    /// Processor time of the fastest of a few comparisons of `count` regions that grow.
    fn list_time(count: u64) -> u64 {
        // Pages 4 apart, each region one page, each mapping two.
        let known: Vec<KnownRegion> = (0..count)
            .map(|n| known(crate::convert::narrow(n), 4 * n, 4 * n + 1))
            .collect();
        let mappings: Vec<Mapping> = (0..count).map(|n| map(4 * n, 4 * n + 2)).collect();
        crate::convert::fastest(5, || {
            let got = changes(&known, &mappings, &[], PIECE, MAX_PIECES);
            assert!(matches!(
                got[0],
                Change::Resize {
                    region: RegionId(0),
                    ..
                }
            ));
            assert_eq!(got.len(), known.len());
        })
    }

    #[test]
    fn a_list_of_eight_times_the_growing_regions_takes_about_eight_times_as_long() {
        // Large enough that memory for either comes from the kernel each time.
        let (few, many) = (list_time(32_000), list_time(256_000));
        assert!(many < 32 * few, "{few} ns, then {many} ns");
    }

    #[test]
    fn a_sparse_mapping_that_shrank_leaves_the_rest_to_be_cut() {
        let sparse = [(0, 16 * PAGE_SIZE), (32 * PAGE_SIZE, 48 * PAGE_SIZE)];
        let got = changes(&[], &[map(0, 64)], &sparse, PIECE, MAX_PIECES);
        assert_eq!(got, vec![found(16, 32), found(48, 64)]);
    }

    proptest! {
        #[test]
        fn regions_cover_the_mappings_exactly_after_any_history(
            lists in prop::collection::vec(prop::collection::vec((1u64..60, 0u64..30, 0u64..2), 0..12), 1..6),
        ) {
            let mut regions: Vec<KnownRegion> = vec![];
            let mut newcomers = 0;
            for list in lists {
                let mut at = 0;
                let mut mappings = vec![];
                for (size, gap, kind) in list {
                    mappings.push(Mapping {
                        start: (at + gap) * PAGE_SIZE,
                        end: (at + gap + size) * PAGE_SIZE,
                        kind,
                    });
                    at += gap + size;
                }
                let mut next = vec![];
                for change in changes(&regions, &mappings, &[], PIECE, MAX_PIECES) {
                    let old = |number: RegionId| *regions.iter().find(|r| r.region == number).unwrap();
                    match change {
                        Change::Keep(number) => next.push(old(number)),
                        Change::Resize { region, end } => next.push(KnownRegion { end, ..old(region) }),
                        Change::Drop(_) => {}
                        Change::Found { start, end, kind } => {
                            newcomers += 1;
                            next.push(KnownRegion { start, end, kind, region: RegionId(newcomers) });
                        }
                        Change::Sparse { .. } => prop_assert!(false),
                    }
                }
                next.sort_by_key(|region| region.start);
                regions = next;
                let pages = |ranges: Vec<(u64, u64, u64)>| -> Vec<(u64, u64)> {
                    ranges
                        .into_iter()
                        .flat_map(|(start, end, kind)| (start / PAGE_SIZE..end / PAGE_SIZE).map(move |p| (p, kind)))
                        .collect()
                };
                let covered = pages(regions.iter().map(|r| (r.start, r.end, r.kind)).collect());
                let mapped = pages(mappings.iter().map(|m| (m.start, m.end, m.kind)).collect());
                prop_assert_eq!(covered, mapped);
                prop_assert!(regions.iter().all(|r| r.end - r.start <= PIECE));
            }
        }
    }
}

//! What changed between two lists of a space's mappings.
//!
//! # Problem
//! Regions must follow mappings that grow at the end (heaps), at the start (stacks), shrink, split
//! and vanish, without losing what is known of the pages that stay; lists may have 60,000 entries.
//!
//! # Approach
//! One pass over both sorted lists. A region lives on as far as mappings of its kind cover it
//! without a gap from its start; one whose start is gone dies. What is covered by no region
//! first extends the region in front of it up to the full size, and the rest is cut into regions
//! counted from where the uncovered part begins: clones of one mapping are cut alike wherever they
//! lie. What would be cut into more than [`MOST_PIECES`] is an *expanse*, see `expanse.rs`.
//!
//! # Units
//! Bytes, half-open ranges.
//!
//! # Source
//! UKSM §5.1: regions come and go with mappings.

use crate::command::{Mapping, PAGE_SIZE};

/// Most regions that one mapping is cut into when it is found.
pub(crate) const MOST_PIECES: u64 = 1024;

/// A region as the survey sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: u64,
    /// Its number.
    pub(crate) region: u32,
}

/// What happens to a known region, or is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The region stays as it is.
    Keep(u32),
    /// The region now ends here.
    Resize { region: u32, end: u64 },
    /// Its mapping is gone.
    Drop(u32),
    /// A new region.
    Found { start: u64, end: u64, kind: u64 },
    /// A new mapping too large to cut.
    Vast { start: u64, end: u64, kind: u64 },
}

/// The changes that turn `known` into what covers `mappings`, by address; both are sorted and
/// disjoint, regions are at most `region_bytes` long. `vast` are ranges that must not be cut.
/// Resized regions keep their start. Costs the length of both lists.
pub(crate) fn changes(
    known: &[Known],
    mappings: &[Mapping],
    vast: &[(u64, u64)],
    region_bytes: u64,
) -> Vec<Change> {
    let mut changes = Vec::with_capacity(known.len());
    let mut kept: Vec<(u64, u64)> = Vec::with_capacity(known.len());
    let mut at = 0;
    for region in known {
        while at < mappings.len() && mappings[at].end <= region.start {
            at += 1;
        }
        let end = covered_until(&mappings[at..], region);
        if end > region.start {
            kept.push((region.start, end));
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
    let kinds: Vec<(u32, u64)> = changes
        .iter()
        .zip(known)
        .filter(|(change, _)| !matches!(change, Change::Drop(_)))
        .map(|(_, region)| (region.region, region.kind))
        .collect();
    let mut next = 0;
    let mut extended: Vec<(u32, u64)> = vec![];
    for mapping in mappings.iter().filter(|mapping| is_sane(mapping)) {
        let mut from = mapping.start;
        while next < kept.len() && kept[next].1 <= from {
            next += 1;
        }
        let mut here = next;
        while from < mapping.end {
            let (hole, covered) = match kept.get(here) {
                Some(&(start, end)) if start < mapping.end => (start.max(from), end),
                _ => (mapping.end, mapping.end),
            };
            // The region in front grows first.
            if let Some(before) = here.checked_sub(1)
                && from < hole
                && kept[before].1 == from
                && kinds[before].1 == mapping.kind
                && from - kept[before].0 < region_bytes
            {
                let end = hole.min(kept[before].0 + region_bytes);
                extended.push((kinds[before].0, end));
                from = end;
            }
            cut(from, hole, mapping.kind, vast, region_bytes, &mut changes);
            from = covered.max(hole);
            here += 1;
        }
    }
    for (region, end) in extended {
        let change = changes.iter_mut().find(|change| match change {
            Change::Keep(other) | Change::Resize { region: other, .. } => *other == region,
            _ => false,
        });
        *change.expect("it was kept") = Change::Resize { region, end };
    }
    changes
}

fn is_sane(mapping: &Mapping) -> bool {
    mapping.start < mapping.end
        && mapping.start.is_multiple_of(PAGE_SIZE)
        && mapping.end.is_multiple_of(PAGE_SIZE)
}

/// How far mappings of the region's kind cover it from its start on.
fn covered_until(mappings: &[Mapping], region: &Known) -> u64 {
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

/// Cuts `from..to` into regions, leaving out what is vast already.
fn cut(
    mut from: u64,
    to: u64,
    kind: u64,
    vast: &[(u64, u64)],
    region_bytes: u64,
    changes: &mut Vec<Change>,
) {
    for &(start, end) in vast {
        if end <= from || start >= to {
            continue;
        }
        pieces(from, start.max(from), kind, region_bytes, changes);
        from = end.min(to);
    }
    pieces(from, to, kind, region_bytes, changes);
}

fn pieces(mut from: u64, to: u64, kind: u64, region_bytes: u64, changes: &mut Vec<Change>) {
    if to - from.min(to) > region_bytes * MOST_PIECES {
        changes.push(Change::Vast {
            start: from,
            end: to,
            kind,
        });
        return;
    }
    while from < to {
        let end = to.min(from + region_bytes);
        changes.push(Change::Found {
            start: from,
            end,
            kind,
        });
        from = end;
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

    fn known(region: u32, start: u64, end: u64) -> Known {
        Known {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            kind: 1,
            region,
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
            region,
            end: end * PAGE_SIZE,
        }
    }

    #[test]
    fn a_mapping_is_cut_from_its_own_start() {
        let got = changes(&[], &[map(3, 38)], &[], PIECE);
        assert_eq!(got, vec![found(3, 19), found(19, 35), found(35, 38)]);
    }

    #[test]
    fn a_heap_that_grows_extends_its_last_region() {
        let got = changes(&[known(0, 0, 10)], &[map(0, 20)], &[], PIECE);
        assert_eq!(got, vec![resize(0, 16), found(16, 20)]);
    }

    #[test]
    fn a_stack_that_grows_downwards_keeps_its_region() {
        let got = changes(&[known(0, 10, 20)], &[map(5, 20)], &[], PIECE);
        assert_eq!(got, vec![Change::Keep(0), found(5, 10)]);
    }

    #[test]
    fn a_mapping_that_shrinks_shortens_its_region() {
        let got = changes(
            &[known(0, 0, 16), known(1, 16, 20)],
            &[map(0, 12)],
            &[],
            PIECE,
        );
        assert_eq!(got, vec![resize(0, 12), Change::Drop(1)]);
    }

    #[test]
    fn a_region_whose_start_is_unmapped_dies() {
        let got = changes(&[known(0, 0, 16)], &[map(4, 16)], &[], PIECE);
        assert_eq!(got, vec![Change::Drop(0), found(4, 16)]);
    }

    #[test]
    fn a_mapping_split_by_mprotect_keeps_its_region() {
        let got = changes(&[known(0, 0, 16)], &[map(0, 6), map(6, 16)], &[], PIECE);
        assert_eq!(got, vec![Change::Keep(0)]);
    }

    #[test]
    fn another_kind_of_mapping_is_another_region() {
        let other = Mapping {
            kind: 2,
            ..map(0, 16)
        };
        let got = changes(&[known(0, 0, 16)], &[other], &[], PIECE);
        assert_eq!(
            got,
            vec![
                Change::Drop(0),
                Change::Found {
                    start: 0,
                    end: PIECE,
                    kind: 2
                }
            ]
        );
    }

    #[test]
    fn a_vast_mapping_is_not_cut() {
        let size = MOST_PIECES * 16 + 1;
        let got = changes(&[], &[map(0, size)], &[], PIECE);
        assert_eq!(
            got,
            vec![Change::Vast {
                start: 0,
                end: size * PAGE_SIZE,
                kind: 1
            }]
        );
        let again = changes(&[], &[map(0, size)], &[(0, size * PAGE_SIZE)], PIECE);
        assert!(again.is_empty());
    }

    proptest! {
        #[test]
        fn regions_cover_the_mappings_exactly_after_any_history(
            lists in prop::collection::vec(prop::collection::vec((1u64..60, 0u64..30, 0u64..2), 0..12), 1..6),
        ) {
            let mut regions: Vec<Known> = vec![];
            let mut fresh = 0;
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
                for change in changes(&regions, &mappings, &[], PIECE) {
                    let old = |number: u32| *regions.iter().find(|r| r.region == number).unwrap();
                    match change {
                        Change::Keep(number) => next.push(old(number)),
                        Change::Resize { region, end } => next.push(Known { end, ..old(region) }),
                        Change::Drop(_) => {}
                        Change::Found { start, end, kind } => {
                            fresh += 1;
                            next.push(Known { start, end, kind, region: fresh });
                        }
                        Change::Vast { .. } => prop_assert!(false),
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

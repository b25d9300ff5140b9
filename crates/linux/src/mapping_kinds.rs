//! Translates mappings for the policy: whether their pages can be merged, and their kind.
//!
//! # Problem
//! The module lists mappings as the kernel has them. Only some can hold pages that merge, and a
//! program that protects every other page has tens of thousands where the policy sees one region.
//!
//! # Approach
//! The flags of a mapping alone decide. Memory without any permission is a reservation: it holds no
//! pages. A file's pages that cannot be written are shared already. Adjacent mappings of one kind
//! are one mapping for the policy: protection does not change the kind of memory. Other refusals of
//! the module (userfaultfd, locked memory) appear page by page.
//!
//! Memory that a program offers to in-kernel KSM is left to KSM while it runs. Otherwise ksmd
//! considers each frame a page that it can merge, makes a KSM page of every equal one in each scan,
//! fails, and breaks it again.
//!
//! Ranges are half-open.
//!
//! # Source
//! `UKSM_IOC_MAPPINGS` of the contract.

use uksm_policy::command::Mapping;

use crate::module::raw;

/// The kind of memory in a mapping, by which the policy learns lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Kind {
    /// Anonymous memory.
    Anonymous = 1,
    /// The heap of `brk`.
    Heap = 2,
    /// The main thread's stack.
    Stack = 3,
    /// Pages of a file, private and writable: data of a program.
    File = 4,
}

/// The kind of a mapping; none if it holds no pages to merge.
#[must_use]
pub fn kind(mapping: &raw::uksm_mapping, ksm_runs: bool) -> Option<Kind> {
    use raw::{
        UKSM_MAPPING_EXEC, UKSM_MAPPING_FILE, UKSM_MAPPING_HEAP, UKSM_MAPPING_MERGEABLE,
        UKSM_MAPPING_READ, UKSM_MAPPING_REFUSED, UKSM_MAPPING_STACK, UKSM_MAPPING_WRITE,
    };
    let has = |flags| mapping.flags & flags != 0;
    let usable = has(UKSM_MAPPING_READ | UKSM_MAPPING_WRITE | UKSM_MAPPING_EXEC);
    if has(UKSM_MAPPING_REFUSED) || !usable || ksm_runs && has(UKSM_MAPPING_MERGEABLE) {
        None
    } else if has(UKSM_MAPPING_FILE) {
        has(UKSM_MAPPING_WRITE).then_some(Kind::File)
    } else if has(UKSM_MAPPING_HEAP) {
        Some(Kind::Heap)
    } else if has(UKSM_MAPPING_STACK) {
        Some(Kind::Stack)
    } else {
        Some(Kind::Anonymous)
    }
}

/// Adds the next part of a list to the mergeable mappings, ascending and disjoint.
pub fn add_mergeable(part: &[raw::uksm_mapping], mappings: &mut Vec<Mapping>, ksm_runs: bool) {
    for mapping in part {
        let Some(kind) = kind(mapping, ksm_runs) else {
            continue;
        };
        match mappings.last_mut() {
            Some(last) if last.end == mapping.start && last.kind == kind as u64 => {
                last.end = mapping.end;
            }
            _ => mappings.push(Mapping {
                start: mapping.start,
                end: mapping.end,
                kind: kind as u64,
            }),
        }
    }
}

/// Adds the next part of a list to the ranges that can hold merged pages, as `(start, end)`: all of
/// it, whatever its permissions are now.
pub fn add_breakable(part: &[raw::uksm_mapping], ranges: &mut Vec<(u64, u64)>) {
    for mapping in part {
        match ranges.last_mut() {
            Some(last) if last.1 == mapping.start => last.1 = mapping.end,
            _ => ranges.push((mapping.start, mapping.end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raw::{
        UKSM_MAPPING_EXEC as EXEC, UKSM_MAPPING_FILE as FILE, UKSM_MAPPING_HEAP as HEAP,
        UKSM_MAPPING_MERGEABLE as OFFERED, UKSM_MAPPING_READ as READ,
        UKSM_MAPPING_REFUSED as REFUSED, UKSM_MAPPING_STACK as STACK, UKSM_MAPPING_WRITE as WRITE,
    };

    fn mapping(start: u64, end: u64, flags: u32) -> raw::uksm_mapping {
        raw::uksm_mapping {
            start,
            end,
            flags,
            pad: 0,
        }
    }

    #[test]
    fn memory_that_can_be_merged_is_chosen_and_everything_else_left() {
        let kind = |flags| kind(&mapping(0x1000, 0x2000, flags), false);
        assert_eq!(kind(READ | WRITE), Some(Kind::Anonymous));
        assert_eq!(kind(READ), Some(Kind::Anonymous), "written before");
        assert_eq!(kind(READ | WRITE | HEAP), Some(Kind::Heap));
        assert_eq!(kind(READ | WRITE | EXEC | STACK), Some(Kind::Stack));
        assert_eq!(kind(READ | WRITE | FILE), Some(Kind::File));
        assert_eq!(kind(READ | FILE), None, "pages of the file");
        assert_eq!(kind(READ | EXEC | FILE), None, "pages of the file");
        for nothing in [0, HEAP, STACK, FILE] {
            assert_eq!(kind(nothing), None, "a reservation");
        }
        for refused in [READ, READ | WRITE, READ | WRITE | FILE, READ | WRITE | HEAP] {
            assert_eq!(kind(refused | REFUSED), None, "the module refuses it");
        }
    }

    #[test]
    fn memory_that_is_offered_to_ksm_is_left_to_it_while_it_runs() {
        let parts = [
            mapping(0x1000, 0x2000, READ | WRITE),
            mapping(0x2000, 0x3000, READ | WRITE | OFFERED),
            mapping(0x3000, 0x4000, READ | WRITE),
        ];
        let ranges = |ksm_runs| {
            let mut mappings = Vec::new();
            add_mergeable(&parts, &mut mappings, ksm_runs);
            let ranges = mappings.iter().map(|mapping| (mapping.start, mapping.end));
            ranges.collect::<Vec<_>>()
        };
        assert_eq!(ranges(false), [(0x1000, 0x4000)]);
        assert_eq!(ranges(true), [(0x1000, 0x2000), (0x3000, 0x4000)]);
        let mut breakable = Vec::new();
        add_breakable(&parts, &mut breakable);
        assert_eq!(
            breakable,
            [(0x1000, 0x4000)],
            "frames from before can be there"
        );
    }

    #[test]
    fn touching_mappings_of_one_kind_are_one() {
        let mut mappings = Vec::new();
        let parts = [
            vec![
                mapping(0x1000, 0x2000, READ | WRITE),
                mapping(0x2000, 0x3000, READ),
            ],
            vec![],
            vec![
                mapping(0x3000, 0x4000, READ | WRITE),
                mapping(0x4000, 0x5000, READ | WRITE | HEAP),
                mapping(0x5000, 0x6000, 0),
                mapping(0x6000, 0x7000, READ | WRITE | HEAP),
            ],
        ];
        for part in &parts {
            add_mergeable(part, &mut mappings, false);
        }
        let found: Vec<_> = mappings.iter().map(|m| (m.start, m.end, m.kind)).collect();
        assert_eq!(
            found,
            [
                (0x1000, 0x4000, Kind::Anonymous as u64),
                (0x4000, 0x5000, Kind::Heap as u64),
                (0x6000, 0x7000, Kind::Heap as u64),
            ]
        );
    }

    #[test]
    fn merged_pages_are_looked_for_in_every_private_mapping() {
        let mut ranges = Vec::new();
        add_breakable(
            &[
                mapping(0x1000, 0x2000, 0),
                mapping(0x2000, 0x3000, READ | FILE),
            ],
            &mut ranges,
        );
        add_breakable(
            &[
                mapping(0x3000, 0x4000, READ | REFUSED),
                mapping(0x5000, 0x6000, READ),
            ],
            &mut ranges,
        );
        assert_eq!(ranges, [(0x1000, 0x4000), (0x5000, 0x6000)]);
    }
}

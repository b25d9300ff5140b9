//! The possible saving of merging, from the contents themselves.
//!
//! # Problem
//! The equal pages of a real program are not planned.
//!
//! # Approach
//! Read every anonymous page that is present through /proc/PID/mem, hash it to 64 bits, count pages
//! minus distinct hashes (all-zero pages cost nothing). Absent pages are not read: that would map
//! the zero page.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use super::pagemap::{Place, PresentPages, present_pages};
use crate::contents::{PAGE, mix};

/// Pages read at a time.
const CHUNK: usize = 256;

/// Pages that merging all equal ones of these processes would save.
pub(crate) fn mergeable_pages(pids: &[u32]) -> Result<usize> {
    let mut contents = DistinctContents::default();
    for &pid in pids {
        contents.add(pid, present_pages(pid)?)?;
    }
    Ok(contents.mergeable())
}

/// The same, of these mappings alone: each a process id and a half-open range of addresses.
pub(crate) fn mergeable_pages_of(mappings: &[(u32, Range<u64>)]) -> Result<usize> {
    let mut contents = DistinctContents::default();
    for (pid, range) in mappings {
        let mut present = present_pages(*pid)?;
        // Present pages of the mapping may follow others without a gap.
        for part in &mut present {
            let end = (part.start + (part.count * PAGE) as u64).min(range.end);
            part.start = part.start.max(range.start);
            part.count = usize::try_from(end.saturating_sub(part.start))? / PAGE;
        }
        contents.add(*pid, present)?;
    }
    Ok(contents.mergeable())
}

/// Pages, and the contents left after merging all equal ones.
#[derive(Default)]
struct DistinctContents {
    pages: usize,
    kept: HashSet<u64>,
}

impl DistinctContents {
    fn add(&mut self, pid: u32, present: Vec<PresentPages>) -> Result<()> {
        for_each_page(pid, present, |_, hash| {
            self.pages += 1;
            self.kept.extend(hash);
        })
    }

    fn mergeable(&self) -> usize {
        self.pages - self.kept.len()
    }
}

/// Pages that are equal to others.
pub(crate) struct Equal {
    /// Sets of two and more, without those that are all zero.
    pub sets: Vec<Vec<Place>>,
    /// Pages that are all zero.
    pub zero: Vec<Place>,
}

impl Equal {
    /// Pages that merging all of them would save.
    pub(crate) fn mergeable(&self) -> usize {
        let beside_first = self.sets.iter().map(|set| set.len() - 1);
        self.zero.len() + beside_first.sum::<usize>()
    }

    /// All of them.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.sets.iter().flatten().chain(&self.zero).copied()
    }
}

/// The equal pages of these processes.
pub(crate) fn equal_pages(pids: &[u32]) -> Result<Equal> {
    let mut zero = vec![];
    let mut sets: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for &pid in pids {
        for_each_page(pid, present_pages(pid)?, |place, hash| match hash {
            Some(hash) => sets.entry(hash).or_default().push(place),
            None => zero.push(place),
        })?;
    }
    let sets = sets.into_values().filter(|set| set.len() > 1).collect();
    Ok(Equal { sets, zero })
}

/// Calls with the place and the hash of every one of these pages.
fn for_each_page(
    pid: u32,
    pages: Vec<PresentPages>,
    mut each: impl FnMut(Place, Option<u64>),
) -> Result<()> {
    let mut buffer = vec![0; CHUNK * PAGE];
    let path = format!("/proc/{pid}/mem");
    let memory = File::open(&path).with_context(|| path.clone())?;
    for PresentPages { start, count } in pages {
        let mut at = start;
        let end = start + (count * PAGE) as u64;
        while at < end {
            let want = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            // A page that vanishes between the listing and here is not counted.
            let Ok(read) = memory.read_at(&mut buffer[..want], at) else {
                break;
            };
            if read < PAGE {
                break;
            }
            let places = (at..).step_by(PAGE).map(|at| (pid, at));
            for (place, page) in places.zip(buffer[..read].chunks_exact(PAGE)) {
                each(place, hash(page));
            }
            at += (read - read % PAGE) as u64;
        }
    }
    Ok(())
}

/// A 64-bit hash of a page; none for one that is all zero.
fn hash(page: &[u8]) -> Option<u64> {
    let (mut a, mut b, mut any) = (0x243F_6A88_85A3_08D3_u64, 0x1319_8A2E_0370_7344_u64, 0);
    for pair in page.chunks_exact(16) {
        let (low, high) = pair.split_at(8);
        let low = u64::from_ne_bytes(low.try_into().expect("8 bytes"));
        let high = u64::from_ne_bytes(high.try_into().expect("8 bytes"));
        any |= low | high;
        a = (a ^ low)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29);
        b = (b ^ high)
            .wrapping_mul(0xC2B2_AE3D_27D4_EB4F)
            .rotate_left(31);
    }
    (any != 0).then(|| mix(a ^ mix(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_mapping_are_compared() {
        let memory = vec![7_u8; 64 * PAGE];
        let own = std::process::id();
        let start = (memory.as_ptr().addr() as u64).next_multiple_of(PAGE as u64);
        let range = |pages: u64| (own, start..start + pages * PAGE as u64);
        assert_eq!(mergeable_pages_of(&[range(16)]).unwrap(), 15);
        assert_eq!(mergeable_pages_of(&[range(1)]).unwrap(), 0);
        assert_eq!(mergeable_pages_of(&[range(8), range(8)]).unwrap(), 15);
    }

    #[test]
    fn equal_pages_hash_equal_zero_pages_not_at_all_and_one_byte_matters() {
        let mut page = vec![0; PAGE];
        assert_eq!(hash(&page), None);
        page[4095] = 1;
        let one = hash(&page);
        assert_eq!(one, hash(&page.clone()));
        page[0] = 1;
        assert_ne!(one, hash(&page));
    }
}

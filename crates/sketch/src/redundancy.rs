//! Where the copies of a sample lie: within processes, within groups of processes, across groups.
//!
//! # Approach
//! The sampled pages are sorted once, by content, group and process, so that all pages of a content
//! are neighbours, within these the pages of a group, and within these the pages of a process.
//! Meetings of contents are counted at each of the three levels. The possible savings at a level
//! are its copies ([`crate::occupancy`]) beyond those of the level below.
//!
//! For each process and group, meetings of its contents in itself are counted, and its pages whose
//! contents were met elsewhere as well. For a sample, which meets the partner of a page only
//! sometimes, the latter is a lower bound and no estimate.
//!
//! # Units
//! Pages. Processes and groups are numbers.

use crate::content::Hash;
use crate::occupancy::MeetingCounts;

/// A sampled page, not of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The hash of its content.
    pub hash: Hash,
    /// Its process.
    pub process: u32,
    /// Whether in-kernel KSM may merge it.
    pub is_offered: bool,
}

/// The meetings of the contents of a process or group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// In itself.
    pub met: MeetingCounts,
    /// Number of its pages whose contents were met in another one, too.
    pub elsewhere: u64,
}

/// The meetings of contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// In each process by itself.
    pub in_processes: MeetingCounts,
    /// In each group by itself.
    pub in_groups: MeetingCounts,
    /// In all.
    pub in_all: MeetingCounts,
    /// In all pages that in-kernel KSM may merge.
    pub offered: MeetingCounts,
    /// Meetings for each process.
    pub by_process: Vec<Part>,
    /// Meetings for each group.
    pub by_group: Vec<Part>,
}

impl Redundancy {
    /// Counts a sample, where `groups` has the group of each process.
    ///
    /// # Panics
    /// The process of a page is not in `groups`.
    #[must_use]
    pub fn of(mut pages: Vec<Page>, groups: &[u32]) -> Redundancy {
        let group = |page: &Page| groups[page.process as usize];
        pages.sort_unstable_by_key(|page| (page.hash, group(page), page.process));
        let number = groups.iter().max().map_or(0, |&last| last as usize + 1);
        let mut found = Redundancy {
            by_process: vec![Part::default(); groups.len()],
            by_group: vec![Part::default(); number],
            ..Redundancy::default()
        };
        for same in pages.chunk_by(|one, next| one.hash == next.hash) {
            let all = same.len() as u64;
            found.in_all.add(all);
            let offered = same.iter().filter(|page| page.is_offered);
            found.offered.add(offered.count() as u64);
            for here in same.chunk_by(|one, next| group(one) == group(next)) {
                let times = here.len() as u64;
                found.in_groups.add(times);
                found.by_group[group(&here[0]) as usize].add(times, all);
            }
            for here in same.chunk_by(|one, next| one.process == next.process) {
                let times = here.len() as u64;
                found.in_processes.add(times);
                found.by_process[here[0].process as usize].add(times, all);
            }
        }
        found
    }
}

impl Part {
    /// Adds a content that was met `times` times here, of `all` in all.
    fn add(&mut self, times: u64, all: u64) {
        self.met.add(times);
        if all > times {
            self.elsewhere += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_where_they_lie() {
        let page = |hash, process, is_offered| Page {
            hash,
            process,
            is_offered,
        };
        // Processes 0 and 1 are group 1, process 2 is group 0; process 3 has nothing.
        let pages = vec![
            page(7, 1, false),
            page(5, 0, false),
            page(7, 0, true),
            page(7, 0, true),
            page(5, 2, true),
            page(9, 2, false),
            page(5, 0, false),
        ];
        let found = Redundancy::of(pages, &[1, 1, 0, 0]);
        let copies = |met: &MeetingCounts| met.copies();
        assert_eq!(copies(&found.in_processes), 2);
        assert_eq!(copies(&found.in_groups), 3);
        assert_eq!(copies(&found.in_all), 4);
        assert_eq!((found.offered.pages(), copies(&found.offered)), (3, 1));
        let parts = |parts: &[Part]| -> Vec<(u64, u64, u64)> {
            let row = |part: &Part| (part.met.pages(), part.met.copies(), part.elsewhere);
            parts.iter().map(row).collect()
        };
        assert_eq!(
            parts(&found.by_process),
            [(4, 2, 4), (1, 0, 1), (2, 0, 1), (0, 0, 0)]
        );
        assert_eq!(parts(&found.by_group), [(2, 0, 1), (5, 3, 2)]);
        assert_eq!(Redundancy::of(vec![], &[]), Redundancy::default());
    }
}

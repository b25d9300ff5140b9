//! The times from which pages are present, and from which they share a frame with another.
//!
//! # Problem
//! The pages of a real program that become equal, and the times, are not planned. The mergeable
//! pages are known at the end, from contents; their times must have been recorded before.
//!
//! # Approach
//! Each look reads the frame of every page. A page has come at the look that sees it first, and is
//! merged from the look on since which it has always shared its frame. At the end, when the equal
//! pages are known, their times can be read. A page that is rewritten in place has come when it was
//! first there, so times are rather too long.

use std::collections::HashMap;

use anyhow::Result;

use super::pagemap::{Place, page_frames};

/// The record of one page.
#[derive(Debug, Clone, Copy)]
struct Page {
    came: f64,
    shared: Option<f64>,
    look: usize,
}

/// The pages of some processes.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    pages: HashMap<Place, Page>,
    looks: usize,
}

/// The counts of one look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharingCount {
    /// Pages that are there.
    pub mapped: usize,
    /// Pages of these that cost no frame of their own.
    pub saved: usize,
}

impl Sharing {
    /// Looks at these processes.
    pub(crate) fn look(&mut self, seconds: f64, pids: &[u32]) -> Result<SharingCount> {
        let mut there = Vec::new();
        for &pid in pids {
            let frames = page_frames(pid)?;
            there.extend(frames.into_iter().map(|(at, frame)| ((pid, at), frame)));
        }
        Ok(self.take(seconds, &there))
    }

    fn take(&mut self, seconds: f64, there: &[(Place, u64)]) -> SharingCount {
        self.looks += 1;
        let mut sharers: HashMap<u64, usize> = HashMap::new();
        for &(_, frame) in there {
            *sharers.entry(frame).or_default() += 1;
        }
        for &(place, frame) in there {
            let page = self.pages.entry(place).or_insert(Page {
                came: seconds,
                shared: None,
                look: 0,
            });
            page.look = self.looks;
            page.shared = (sharers[&frame] > 1).then(|| page.shared.unwrap_or(seconds));
        }
        let last = self.looks;
        self.pages.retain(|_, page| page.look == last);
        SharingCount {
            mapped: there.len(),
            saved: there.len() - sharers.len(),
        }
    }

    /// For each page of these sets of equal ones, the seconds from the time at which it had an
    /// equal one until it was merged; infinite if it is not.
    pub(crate) fn times(&self, sets: &[Vec<Place>]) -> Vec<f64> {
        let mut times = Vec::new();
        for set in sets {
            let pages: Vec<&Page> = set
                .iter()
                .filter_map(|place| self.pages.get(place))
                .collect();
            let mut came: Vec<f64> = pages.iter().map(|page| page.came).collect();
            came.sort_by(f64::total_cmp);
            let Some(&paired) = came.get(1) else {
                continue;
            };
            times.extend(pages.iter().map(|page| {
                let shared = page.shared.unwrap_or(f64::INFINITY);
                (shared - page.came.max(paired)).max(0.0)
            }));
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_from_when_it_had_a_partner_and_only_if_it_stays_merged() {
        let mut sharing = Sharing::default();
        let (a, b, c) = ((1, 0), (2, 0), (3, 0));
        sharing.take(0.0, &[(a, 10)]);
        sharing.take(1.0, &[(a, 10), (b, 11)]);
        let seen = sharing.take(2.0, &[(a, 10), (b, 10), (c, 12)]);
        assert_eq!((seen.mapped, seen.saved), (3, 1));
        sharing.take(3.0, &[(a, 10), (b, 10), (c, 10)]);
        assert_eq!(sharing.times(&[vec![a, b, c]]), [1.0, 1.0, 1.0]);
        sharing.take(4.0, &[(a, 10), (b, 13), (c, 10)]);
        assert_eq!(sharing.times(&[vec![a, b]]), [1.0, f64::INFINITY]);
    }

    #[test]
    fn a_page_that_goes_and_comes_again_has_come_late() {
        let mut sharing = Sharing::default();
        let (a, b) = ((1, 0), (2, 0));
        sharing.take(0.0, &[(a, 1), (b, 2)]);
        sharing.take(5.0, &[(b, 2)]);
        sharing.take(6.0, &[(a, 3), (b, 2)]);
        sharing.take(8.0, &[(a, 2), (b, 2)]);
        assert_eq!(sharing.times(&[vec![a, b]]), [2.0, 2.0]);
    }
}

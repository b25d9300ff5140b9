//! Savings of the frames of a domain: their mappings, counted a stretch of ids at a time.
//!
//! # Problem
//! Only the page of each frame has its number of mappings, and a domain can have millions.
//!
//! # Approach
//! One count covers the frames of [`MAX_STEP_IDS`] ids and replaces the earlier count of that
//! stretch, so that a change shows at the next count of its stretch, not at the end of all. A
//! stretch that was never counted saves nothing yet.
//!
//! # Units
//! Pages.

use std::collections::BTreeMap;

use uksm_linux::module::{FramesAnswer, Result, raw};

/// Ids of one stretch.
const MAX_STEP_IDS: u32 = 1 << 16;
/// Frames requested at once when the kernel is short of memory.
const MAX_FRAMES_WHEN_SHORT: u32 = 64;

/// Counts of the frames of a domain.
#[derive(Debug, Default)]
pub(in crate::groups::supervisor) struct FrameCounts {
    /// Savings of each stretch: mappings less frames, which is negative if the frames have no
    /// mappings.
    stretches: BTreeMap<u32, i64>,
    /// The stretch to be counted next.
    next: u32,
}

impl FrameCounts {
    /// Counts the next stretch by `list`, which lists a limited number of frames from an id on. An
    /// interrupted stretch is counted again.
    ///
    /// # Errors
    /// As the module's.
    pub(in crate::groups::supervisor) fn count(
        &mut self,
        list: impl FnMut(u32, u32) -> Result<FramesAnswer>,
    ) -> Result<()> {
        let Some((saved, cursor)) = stretch(self.next, list)? else {
            return Ok(());
        };
        let next = cursor / MAX_STEP_IDS;
        self.stretches.insert(self.next, saved);
        // There are no frames between this stretch and the next one.
        let last = if cursor == 0 { u32::MAX } else { next };
        let own = self.next;
        self.stretches.retain(|&at, _| at <= own || at >= last);
        self.next = next;
        Ok(())
    }

    /// Pages saved.
    pub(super) fn saved(&self) -> u64 {
        u64::try_from(self.stretches.values().sum::<i64>()).unwrap_or(0)
    }
}

/// Savings of a stretch, and the first frame behind it, 0 if there is none. None if the listing was
/// interrupted.
fn stretch(
    at: u32,
    mut list: impl FnMut(u32, u32) -> Result<FramesAnswer>,
) -> Result<Option<(i64, u32)>> {
    let end = at.saturating_add(1).saturating_mul(MAX_STEP_IDS);
    // Never 0, which no frame has: so an answer that repeats the cursor is not the end.
    let mut cursor = (at * MAX_STEP_IDS).max(1);
    let mut most = u32::try_from(raw::UKSM_MAX_FRAMES).unwrap_or(u32::MAX);
    let mut saved = 0;
    loop {
        let listing = match list(cursor, most) {
            Err(error) if error.is_short() && most > MAX_FRAMES_WHEN_SHORT => {
                most /= 2;
                continue;
            }
            answer => answer?,
        };
        let behind = listing.frames.partition_point(|frame| frame.frame.0 < end);
        let (own, behind) = listing.frames.split_at(behind);
        saved += own
            .iter()
            .map(|frame| i64::from(frame.sharers) - 1)
            .sum::<i64>();
        if let Some(first) = behind.first() {
            return Ok(Some((saved, first.frame.0)));
        }
        if listing.cursor == 0 || listing.cursor >= end {
            return Ok(Some((saved, listing.cursor)));
        }
        if listing.cursor == cursor {
            return Ok(None);
        }
        cursor = listing.cursor;
    }
}

#[cfg(test)]
mod tests {
    use uksm_policy::command::{Frame, FrameId};

    use super::*;

    /// A domain of frames: id and sharers.
    fn listing(frames: &BTreeMap<u32, u32>, cursor: u32, most: u32) -> FramesAnswer {
        let mut from = frames.range(cursor..);
        let listed: Vec<Frame> = from
            .by_ref()
            .take(most.min(100) as usize)
            .map(|(&id, &sharers)| Frame {
                frame: FrameId(id),
                sharers,
                node: 0,
                ..frame()
            })
            .collect();
        FramesAnswer {
            frames: listed,
            cursor: from.next().map_or(0, |(&id, _)| id),
            freed: 0,
        }
    }

    fn frame() -> Frame {
        Frame {
            frame: FrameId(0),
            hash: 0,
            sharers: 0,
            node: 0,
        }
    }

    #[test]
    fn a_small_domain_is_counted_at_once_and_each_time() {
        let mut domain: BTreeMap<u32, u32> = (1..=1000).map(|id| (id, 3)).collect();
        let mut frames = FrameCounts::default();
        frames
            .count(|at, most| Ok(listing(&domain, at, most)))
            .unwrap();
        assert_eq!(frames.saved(), 2000);
        domain.retain(|id, _| id % 2 == 0);
        domain.insert(5, 0);
        frames
            .count(|at, most| Ok(listing(&domain, at, most)))
            .unwrap();
        assert_eq!(frames.saved(), 999, "a frame that nobody maps takes a page");
        domain.clear();
        frames
            .count(|at, most| Ok(listing(&domain, at, most)))
            .unwrap();
        assert_eq!(frames.saved(), 0);
    }

    #[test]
    fn a_large_one_is_counted_stretch_by_stretch_and_what_went_is_forgotten() {
        let ids = [
            1,
            2,
            MAX_STEP_IDS - 1,
            MAX_STEP_IDS,
            5 * MAX_STEP_IDS + 7,
            9 * MAX_STEP_IDS,
        ];
        let mut domain: BTreeMap<u32, u32> = ids.into_iter().map(|id| (id, 11)).collect();
        let mut frames = FrameCounts::default();
        let mut saved = |domain: &BTreeMap<u32, u32>| {
            frames
                .count(|at, most| Ok(listing(domain, at, most)))
                .unwrap();
            frames.saved()
        };
        let seen = [(); 6].map(|()| saved(&domain));
        assert_eq!(seen, [30, 40, 50, 60, 60, 60]);
        domain.insert(1, 2);
        domain.remove(&(5 * MAX_STEP_IDS + 7));
        // Two stretches of the second pass are left.
        let seen = [(); 4].map(|()| saved(&domain));
        assert_eq!(seen, [50, 50, 41, 41]);
        domain.clear();
        domain.insert(3, 8);
        let seen = [(); 2].map(|()| saved(&domain));
        assert_eq!(seen, [31, 7], "nothing is left behind the last one");
    }

    #[test]
    fn an_interrupted_count_changes_nothing() {
        let domain: BTreeMap<u32, u32> = (1..=10).map(|id| (id, 3)).collect();
        let mut frames = FrameCounts::default();
        frames
            .count(|at, most| Ok(listing(&domain, at, most)))
            .unwrap();
        let nothing = |cursor, _| {
            Ok(FramesAnswer {
                frames: vec![],
                cursor,
                freed: 0,
            })
        };
        frames.count(nothing).unwrap();
        assert_eq!(frames.saved(), 20);
    }
}

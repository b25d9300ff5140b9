//! Taking an answer in pieces.
//!
//! # Problem
//! A sweep reads whole blocks, and about nearly all of their pages there is nothing to say but what
//! they hold, or that they are merged as was believed. Looking at each by itself took longer than
//! to read it.
//!
//! # Approach
//! Runs of such pages are taken at once; what is left is looked at one by one
//! ([`Engine::look`]).
//!
//! # Units
//! Pages.

use std::ops::Range;

use super::Engine;
use super::sampled::{Candidate, PIECE};
use super::sampling::{Pick, Purpose};
use crate::command::{FrameId, Page, PageFlags, PageState};
use crate::convert;
use crate::lookup::Place;
use crate::region::State;
use crate::region::cow::Permission;
use crate::region::duplication::Scale;

/// A small page of a process's own that nobody holds or locks.
fn is_ordinary(page: &Page) -> bool {
    page.state == PageState::Anon
        && !page
            .flags
            .any(PageFlags::LOCKED | PageFlags::PINNED | PageFlags::HUGE)
}

/// A page that we merged.
pub(super) fn is_merged(page: &Page) -> bool {
    matches!(page.state, PageState::Zero | PageState::Frame)
}

impl Engine {
    /// Takes the next piece of the answer; false at its end.
    pub(super) fn gather(&mut self, scale: &Scale) -> bool {
        self.work.candidates.clear();
        let mut taken = 0;
        while taken < PIECE && self.work.page < self.work.pages.len() {
            let Some(&(address, pick)) = self.work.picks.get(self.work.pick) else {
                break;
            };
            let mut count = self.gather_run(pick, PIECE - taken, scale);
            if count == 0 {
                let page = self.work.pages[self.work.page];
                self.look(address, pick, pick.page + self.work.offset, page, scale);
                count = 1;
            }
            taken += count;
            self.work.page += count;
            self.work.offset += convert::narrow(count as u64);
            if self.work.offset < pick.count {
                continue;
            }
            self.work.pick += 1;
            self.work.offset = 0;
            if pick.purpose != Purpose::SparseMapping {
                self.work.touch(pick.region);
            }
            // A block's finds are judged together, so a piece ends with it.
            if pick.purpose == Purpose::Block {
                break;
            }
        }
        taken > 0
    }

    /// Takes the next pages of a block, at most `room`, as long as each is merged as was believed, or
    /// as there is nothing about each but what it holds: nearly all of a sweep. Does for all at once
    /// what [`Engine::look`] does for one; returns how many.
    fn gather_run(&mut self, pick: Pick, room: usize, scale: &Scale) -> usize {
        if pick.purpose != Purpose::Block {
            return 0;
        }
        let first = pick.page + self.work.offset;
        let Some(region) = self.regions.find(pick.region, first) else {
            return 0;
        };
        if region.state != State::Ranked {
            return 0;
        }
        let end = region.pages.min(pick.page + pick.count);
        let next = self.work.pages[self.work.page..]
            .iter()
            .zip(first..end)
            .take(room);
        let merged = next
            .clone()
            .take_while(|&(page, number)| is_merged(page) && region.is_merged(number))
            .count();
        let count = if merged > 0 {
            if self.permission(pick.region) != Permission::Open {
                return 0;
            }
            merged
        } else {
            let before = self.work.candidates.len();
            self.work.candidates.extend(
                next.take_while(|&(page, number)| is_ordinary(page) && !region.is_merged(number))
                    .map(|(page, number)| Candidate {
                        place: Place {
                            region: pick.region,
                            page: number,
                        },
                        hash: page.hash,
                        huge: false,
                        in_block: true,
                    }),
            );
            self.work.candidates.len() - before
        };
        let pages = convert::narrow(count as u64);
        let region = &mut self.regions[pick.region];
        region.found(pages);
        region.duplication.sampled(pages, scale);
        if merged > 0 {
            self.found_merged(pick.region, first..first + pages);
        }
        count
    }

    /// The next pages of the answer are these of a region, merged as was believed.
    fn found_merged(&mut self, number: u32, pages: Range<u32>) {
        let (now, round) = (self.now, self.round);
        let count = convert::index(pages.end - pages.start);
        self.regions[number].lasted(pages, now, round, self.params.v_cow);
        for at in self.work.page..self.work.page + count {
            let page = self.work.pages[at];
            if page.frame != 0 {
                self.saw_frame(FrameId(page.frame), page.hash);
            }
        }
    }
}

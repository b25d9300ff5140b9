//! Pages whose hash collides are read in full.
//!
//! # Problem
//! See [`crate::merge::collisions`].
//!
//! # Approach
//! A page that differed from its partner, and has no other to be tried with, is given up: its hash
//! collides from then on, and the page and its partner wait to be read. That happens when some
//! hundred wait, or no other work is left. The frames of the hash are hashed in full before. The
//! share of the bottom level pays for the finds of that level, and that of the top for all others;
//! for a control of the strength the cost is the price of false matches.

use super::turn::{Action, Turn};
use super::{Engine, cost_by_space};
use crate::accounts::payer::Payer;
use crate::command::{Command, FoldKind, Frame, FrameId, Lines, Nanos, PAGE_LINES, Page, Run};
use crate::ladder::sampling::MAX_RUNS;
use crate::lookup::RegionPage;
use crate::merge::collisions::{CollidingPage, Finder};
use crate::merge::queue::WaitingPage;

impl Engine {
    /// A page differed from its partner, and there is no other to try.
    pub(super) fn gave_up(&mut self, page: &WaitingPage) {
        if page.is_read_in_full() || self.hash.strength() == PAGE_LINES {
            return;
        }
        let partial = page.entry.hash;
        if self.collisions.collides(partial) {
            let frames = self.lookup.not_known_in_full(partial);
            self.collisions.want_frames(frames);
        }
        self.reads_in_full(page, page.place);
        if matches!(page.entry.kind, FoldKind::Set(_)) {
            self.reads_in_full(page, page.first);
        }
    }

    /// A page, or one that looks like it, waits to be read in full, if their hash collides.
    pub(super) fn reads_in_full(&mut self, page: &WaitingPage, place: RegionPage) {
        let partial = page.entry.hash;
        let finder = Finder::of(page.payer);
        self.collisions
            .wait(CollidingPage { place, partial }, finder);
    }

    /// The finder whose pages are to be read in full now, with or without other work.
    fn finder_due(&mut self, is_anything_else: bool) -> Option<Finder> {
        let now = self.clock.now();
        Finder::ALL.into_iter().find(|&finder| {
            let level = self.level_of(finder);
            self.collisions.waits(finder, is_anything_else)
                && self.ladder.budget(level).is_ready(now)
        })
    }

    /// The time at which that may be due, if pages wait.
    pub(super) fn reading_in_full_due_at(&mut self) -> Option<Nanos> {
        let now = self.clock.now();
        let due = Finder::ALL.map(|finder| {
            let level = self.level_of(finder);
            let waits = self.collisions.waits(finder, false);
            waits.then(|| self.ladder.budget(level).ready_at(now))
        });
        due.into_iter().flatten().min()
    }

    /// The level that pays for the finder.
    fn level_of(&self, finder: Finder) -> usize {
        match finder {
            Finder::Bottom => 0,
            Finder::Other => self.ladder.top(),
        }
    }

    /// The payer for the finder.
    pub(super) fn colliding_payer(&self, finder: Finder) -> Payer {
        Payer::level(self.level_of(finder))
    }

    /// The next call for pages whose hash collides.
    pub(super) fn read_in_full(&mut self, is_anything_else: bool) -> Option<Action> {
        let finder = self.finder_due(is_anything_else)?;
        if let Some((first, ids)) = self.collisions.next_frames() {
            let lines = Lines {
                from: self.hash.strength(),
                to: PAGE_LINES,
            };
            let command = Command::Frames {
                cursor: first.0,
                count: ids,
                lines,
                reap: false,
                check: false,
            };
            return Some(Turn::HashInFull(finder, first, ids).requests(command));
        }
        let mut pages = self.collisions.take(finder, MAX_RUNS);
        pages.retain(|page| {
            let region = self.regions.find_ranked(page.place.region, page.place.page);
            region.is_some_and(|region| !region.is_merged(page.place.page))
        });
        pages.sort_by_cached_key(|page| {
            let run = self.run_of_page(page.place);
            (run.space, run.start)
        });
        let runs: Vec<Run> = pages
            .iter()
            .map(|page| self.run_of_page(page.place))
            .collect();
        if runs.is_empty() {
            return None;
        }
        self.collisions.read(finder, pages);
        let lines = Lines {
            from: 0,
            to: PAGE_LINES,
        };
        Some(Turn::ReadInFull(finder).requests(Command::Sample { runs, lines }))
    }

    fn run_of_page(&self, place: RegionPage) -> Run {
        let region = &self.regions[place.region];
        Run {
            start: region.address(place.page),
            space: self.spaces.id(region.space()),
            count: 1,
            stride: 1,
        }
    }

    /// Frames of a hash that collides were hashed.
    pub(super) fn on_hashed_in_full(&mut self, frames: &[Frame], (first, ids): (FrameId, u32)) {
        let wanted = self.collisions.take_frames(first, ids);
        for frame in frames {
            if wanted.contains(&frame.frame) {
                self.lookup.learn_rest(frame.frame, frame.hash);
            }
        }
    }

    /// Pages whose hash collides were read.
    pub(super) fn on_read_in_full(&mut self, pages: Vec<Page>, cost: Nanos) {
        self.hash.matched_falsely(pages.len() as u64, cost);
        let runs = self.collisions.reading();
        cost_by_space::divide(&self.regions, &mut self.spaces, runs, pages.len(), cost);
        self.collisions.receive(pages);
    }

    /// Looks up the pages read in full, as far as the merge queue has room.
    pub(super) fn look_up_in_full(&mut self) {
        if !self.collisions.is_under_way() {
            return;
        }
        let payer = self.colliding_payer(self.collisions.finder());
        let scale = self.scale();
        while self.merge.room() >= 2 {
            let Some((page, read)) = self.collisions.next() else {
                break;
            };
            if read.is_ordinary() {
                let mut matching = self.matching().0;
                matching.payer = payer;
                matching.look_up_in_full(page, read.hash, &scale);
            }
        }
        if self.merge.len() > 0 {
            self.merge.flush();
        }
    }
}

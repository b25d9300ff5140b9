//! The answer to a sample, which is worked through in pieces.

use crate::accounts::payer::Payer;
use crate::command::{Page, Run};
use crate::convert;
use crate::ids::RegionId;
use crate::ladder::sampling::{Pick, Selection};
use crate::lookup::RegionPage;
use crate::merge::candidates::{Candidate, Finds};

use super::merged_since_read::MergedSinceRead;

/// The requested pages, the answer, and the progress in it.
#[derive(Debug)]
pub(super) struct SampleAnswer {
    level: usize,
    /// The payer: the level, or newcomers.
    payer: Payer,
    picks: Vec<(u64, Pick)>,
    /// Regions whose last block is in this answer.
    swept: Vec<RegionId>,
    /// The level's round ends with this answer.
    is_round_over: bool,
    is_under_way: bool,
    pages: Vec<Page>,
    /// The next page, the pick it belongs to, and its place in that.
    page: usize,
    pick: usize,
    offset: u32,
    /// Pages merged since the answer came, which it still shows as they were before.
    merged_since: MergedSinceRead,
    /// The candidates of the present piece.
    candidates: Vec<Candidate>,
    finds: Finds,
}

impl SampleAnswer {
    /// No pages are requested yet.
    pub(super) fn new() -> SampleAnswer {
        SampleAnswer {
            level: 0,
            payer: Payer::Nobody,
            picks: vec![],
            swept: vec![],
            is_round_over: false,
            is_under_way: false,
            pages: vec![],
            page: 0,
            pick: 0,
            offset: 0,
            merged_since: MergedSinceRead::default(),
            candidates: vec![],
            finds: Finds::default(),
        }
    }

    /// Requests these pages; returns the runs of the command.
    pub(super) fn expect(&mut self, selection: Selection) -> Vec<Run> {
        debug_assert!(
            !self.is_under_way,
            "the answer before was not worked through"
        );
        self.level = selection.level;
        self.payer = selection.payer;
        self.swept = selection.swept;
        self.is_round_over = selection.round_over;
        self.picks.clear();
        let picks = selection.picks.iter();
        self.picks
            .extend(picks.map(|&(run, pick)| (run.start, pick)));
        selection.picks.into_iter().map(|(run, _)| run).collect()
    }

    /// The requested picks, in the order of the pages.
    pub(super) fn picks(&self) -> impl Iterator<Item = Pick> + '_ {
        self.picks.iter().map(|&(_, pick)| pick)
    }

    /// The pages came back: all, or the first of them.
    pub(super) fn receive(&mut self, pages: Vec<Page>) {
        self.pages = pages;
        (self.page, self.pick, self.offset) = (0, 0, 0);
        self.is_under_way = true;
        self.merged_since.clear();
        self.finds.clear();
    }

    /// A page was merged: its state in the answer is out of date.
    pub(super) fn note_merged(&mut self, place: RegionPage) {
        if self.is_under_way {
            self.merged_since.insert(place);
        }
    }

    /// Whether a page was merged after it was read for this answer.
    pub(super) fn is_outdated(&mut self, place: RegionPage) -> bool {
        self.merged_since.contains(place)
    }

    /// The level for which the pages were requested.
    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// The payer for the work on the pages.
    pub(super) fn payer(&self) -> Payer {
        self.payer
    }

    /// Whether pages are left to be worked through.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Whether a sweep or a round ends with this answer.
    pub(super) fn ends_something(&self) -> bool {
        self.is_round_over || !self.swept.is_empty()
    }

    /// The answer has been worked through: returns the swept regions, and whether the round is
    /// over.
    pub(super) fn end(&mut self) -> (Vec<RegionId>, bool) {
        self.is_under_way = false;
        (
            std::mem::take(&mut self.swept),
            std::mem::take(&mut self.is_round_over),
        )
    }

    /// The next page's pick, its address, and its place in the pick.
    pub(super) fn current(&self) -> Option<(Pick, u64, u32)> {
        if self.page >= self.pages.len() {
            return None;
        }
        let &(address, pick) = self.picks.get(self.pick)?;
        Some((pick, address, self.offset))
    }

    /// The pages from the next one on.
    pub(super) fn rest(&self) -> &[Page] {
        &self.pages[self.page..]
    }

    /// The next pages and the candidates of the piece, to which some of them may be added.
    pub(super) fn rest_and_candidates(&mut self) -> (&[Page], &mut Vec<Candidate>) {
        (&self.pages[self.page..], &mut self.candidates)
    }

    /// `pages` of the current pick have been worked through; returns whether these were its last.
    pub(super) fn advance(&mut self, pages: usize) -> bool {
        self.page += pages;
        self.offset += convert::narrow(pages as u64);
        let is_last = self.offset >= self.picks[self.pick].1.count();
        if is_last {
            self.pick += 1;
            self.offset = 0;
        }
        is_last
    }

    /// Whether finds in huge pages wait and their block is complete.
    pub(super) fn has_block_to_decide(&self) -> bool {
        self.finds.has_huge() && self.offset == 0
    }

    /// Another piece begins.
    pub(super) fn clear_candidates(&mut self) {
        self.candidates.clear();
    }

    /// A page of the piece may have partners.
    pub(super) fn add_candidate(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
    }

    /// The candidates of the piece, and the finds of the answer.
    pub(super) fn candidates_and_finds(&mut self) -> (&[Candidate], &mut Finds) {
        (&self.candidates, &mut self.finds)
    }

    /// The finds of the answer.
    pub(super) fn finds(&mut self) -> &mut Finds {
        &mut self.finds
    }
}

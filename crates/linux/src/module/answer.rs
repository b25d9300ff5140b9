//! From the policy's words to the module's structures, and back.
//!
//! # Problem
//! States, statuses and reasons travel as small integers. A module that is newer than this
//! program could send one that has no name yet.
//!
//! # Approach
//! Each conversion is checked, so that an unknown number is an error that names it and not a
//! wrong value.

use uksm_policy::command::{
    FoldEntry, FoldKind, FoldOutcome, Frame, FrameId, Page, PageFlags, PageState, Reason, Run,
    Status,
};

use super::raw::{self, Kind};

pub(super) fn run(run: &Run) -> raw::uksm_run {
    raw::uksm_run {
        start: run.start,
        space: run.space.0,
        count: run.count,
        stride: run.stride,
        pad: 0,
    }
}

pub(super) fn page(page: &raw::uksm_page) -> Option<Page> {
    Some(Page {
        hash: page.hash,
        frame: page.frame,
        state: PageState::from_number(page.state)?,
        flags: PageFlags(page.flags),
    })
}

pub(super) fn entry(entry: &FoldEntry) -> raw::uksm_fold_entry {
    let (kind, frame, set) = match entry.kind {
        FoldKind::Frame(frame) => (Kind::Frame, frame.0, 0),
        FoldKind::Set(set) => (Kind::Set, 0, set),
        FoldKind::Zero => (Kind::Zero, 0, 0),
    };
    raw::uksm_fold_entry {
        address: entry.address,
        hash: entry.hash,
        space: entry.space.0,
        frame,
        set,
        kind: kind as u8,
        ..Default::default()
    }
}

pub(super) fn outcome(entry: &raw::uksm_fold_entry) -> Option<FoldOutcome> {
    Some(FoldOutcome {
        status: Status::from_number(entry.status.into())?,
        reason: Reason::from_number(entry.reason.into())?,
        frame: entry.frame,
    })
}

pub(super) fn frame(frame: &raw::uksm_frame) -> Frame {
    // Nothing can be merged into a frame whose memory has failed: it is as good as gone.
    let poisoned = frame.flags & raw::UKSM_FRAME_POISONED != 0;
    Frame {
        hash: frame.hash,
        frame: FrameId(frame.frame),
        sharers: if poisoned { 0 } else { frame.sharers },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_name_is_no_answer() {
        let page = |state| {
            page(&raw::uksm_page {
                state,
                ..Default::default()
            })
        };
        let known = page(PageState::Frame as u16).map(|page| page.state);
        assert_eq!(known, Some(PageState::Frame));
        assert_eq!(page(u16::MAX), None);
        let outcome = |status, reason| {
            outcome(&raw::uksm_fold_entry {
                status,
                reason,
                ..Default::default()
            })
        };
        let known = outcome(Status::Busy as u8, Reason::Pinned as u8);
        let known = known.map(|outcome| (outcome.status, outcome.reason));
        assert_eq!(known, Some((Status::Busy, Reason::Pinned)));
        assert_eq!(outcome(u8::MAX, Reason::Pinned as u8), None);
        assert_eq!(outcome(Status::Busy as u8, u8::MAX), None);
    }
}

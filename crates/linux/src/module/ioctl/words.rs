//! Converts between the policy's types and the contract's structures.
//!
//! States, statuses and reasons are small integers in the contract. A newer module could send a
//! number that has no name here: that is an error which names it, and not a wrong value.

use uksm_policy::command::{
    FoldEntry, FoldKind, FoldOutcome, Frame, FrameId, Page, PageFlags, PageState, Reason, Run,
    SpaceId, SpaceSize, Status,
};

use super::raw::{self, Kind};

pub(super) fn run_of(run: &Run) -> raw::uksm_run {
    raw::uksm_run {
        start: run.start,
        space: run.space.0,
        count: run.count,
        stride: run.stride,
        pad: 0,
    }
}

pub(super) fn page_of(page: &raw::uksm_page) -> Option<Page> {
    Some(Page {
        hash: page.hash,
        frame: page.frame,
        state: PageState::from_number(page.state)?,
        flags: PageFlags(page.flags),
    })
}

pub(super) fn entry_of(entry: &FoldEntry) -> raw::uksm_fold_entry {
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

pub(super) fn outcome_of(entry: &raw::uksm_fold_entry) -> Option<FoldOutcome> {
    Some(FoldOutcome {
        status: Status::from_number(entry.status.into())?,
        reason: Reason::from_number(entry.reason.into())?,
        frame: entry.frame,
    })
}

pub(super) fn frame_of(frame: &raw::uksm_frame) -> Frame {
    // Nothing can be merged into a frame whose memory has failed: it is as good as gone.
    let poisoned = frame.flags & raw::UKSM_FRAME_POISONED != 0;
    Frame {
        hash: frame.hash,
        frame: FrameId(frame.frame),
        sharers: if poisoned { 0 } else { frame.sharers },
        node: frame.node,
    }
}

pub(super) fn size_of_space(size: &raw::uksm_size) -> SpaceSize {
    SpaceSize {
        space: SpaceId(size.space),
        // A space that the module does not know was detached: it is gone for the caller.
        gone: size.flags != 0,
        mappings: size.mappings,
        pages: size.pages,
        anon_pages: size.anon_pages,
    }
}

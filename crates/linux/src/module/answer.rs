//! From the numbers of the module's answers to the policy's words, and back.
//!
//! # Problem
//! States, statuses and reasons travel as small integers; a module newer than this program could
//! send one that has no word yet.
//!
//! # Approach
//! A checked conversion for each, so that an unknown number is an error that names it and not a
//! wrong word. The numbers of the enums are those of the header, which a test proves.

use uksm_policy::command::{
    FoldEntry, FoldKind, FoldOutcome, Page, PageFlags, PageState, Reason, Run, Status,
};

use super::raw;

/// The word for a page state, if it has one.
#[must_use]
pub fn page_state(number: u16) -> Option<PageState> {
    use PageState as S;
    const ALL: [PageState; 14] = [
        S::None,
        S::Anon,
        S::Frame,
        S::Zero,
        S::Orphan,
        S::Foreign,
        S::Ksm,
        S::Swap,
        S::Other,
        S::Refused,
        S::Unmapped,
        S::Dead,
        S::Retry,
        S::Poisoned,
    ];
    ALL.get(usize::from(number)).copied()
}

/// The word for a fold status, if it has one.
#[must_use]
pub fn status(number: u8) -> Option<Status> {
    use Status as S;
    const ALL: [Status; 9] = [
        S::Untried,
        S::Merged,
        S::Already,
        S::Zeroed,
        S::Differed,
        S::Busy,
        S::Gone,
        S::Full,
        S::Refused,
    ];
    ALL.get(usize::from(number)).copied()
}

/// The word for a fold reason, if it has one.
#[must_use]
pub fn reason(number: u8) -> Option<Reason> {
    use Reason as R;
    const ALL: [Reason; 24] = [
        R::None,
        R::Content,
        R::Stale,
        R::Alone,
        R::Pinned,
        R::Swapcache,
        R::Lock,
        R::Raced,
        R::Unmapped,
        R::Swapped,
        R::Dead,
        R::NoFrame,
        R::Sharers,
        R::Frames,
        R::Memory,
        R::Mapping,
        R::Userfault,
        R::Locked,
        R::Huge,
        R::NotAnon,
        R::Ksm,
        R::Foreign,
        R::Zero,
        R::Poisoned,
    ];
    ALL.get(usize::from(number)).copied()
}

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
        state: page_state(page.state)?,
        flags: PageFlags(page.flags),
    })
}

pub(super) fn entry(entry: &FoldEntry) -> raw::uksm_fold_entry {
    let (kind, frame, set) = match entry.kind {
        FoldKind::Frame(frame) => (raw::UKSM_KIND_FRAME, frame.0, 0),
        FoldKind::Set(set) => (raw::UKSM_KIND_SET, 0, set),
        FoldKind::Zero => (raw::UKSM_KIND_ZERO, 0, 0),
    };
    raw::uksm_fold_entry {
        address: entry.address,
        hash: entry.hash,
        space: entry.space.0,
        frame,
        set,
        kind,
        ..Default::default()
    }
}

pub(super) fn outcome(entry: &raw::uksm_fold_entry) -> Option<FoldOutcome> {
    Some(FoldOutcome {
        status: status(entry.status)?,
        reason: reason(entry.reason)?,
        frame: entry.frame,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_at_its_number() {
        for number in 0..=u16::MAX {
            if let Some(word) = page_state(number) {
                assert_eq!(word as u16, number);
            }
        }
        for number in 0..=u8::MAX {
            if let Some(word) = status(number) {
                assert_eq!(word as u8, number);
            }
            if let Some(word) = reason(number) {
                assert_eq!(word as u8, number);
            }
        }
    }

    #[test]
    fn the_words_end_where_the_header_ends() {
        let last = |prefix: &str| {
            let numbers = raw::CONSTANTS
                .iter()
                .filter(|(name, _)| name.starts_with(prefix));
            numbers.map(|&(_, value)| value).max().unwrap()
        };
        let (state, stat, why) = (
            last("UKSM_STATE_"),
            last("UKSM_STATUS_"),
            last("UKSM_REASON_"),
        );
        assert_eq!(
            page_state(u16::try_from(state).unwrap()),
            Some(PageState::Poisoned)
        );
        assert_eq!(page_state(u16::try_from(state + 1).unwrap()), None);
        assert_eq!(status(u8::try_from(stat).unwrap()), Some(Status::Refused));
        assert_eq!(status(u8::try_from(stat + 1).unwrap()), None);
        assert_eq!(reason(u8::try_from(why).unwrap()), Some(Reason::Poisoned));
        assert_eq!(reason(u8::try_from(why + 1).unwrap()), None);
    }
}

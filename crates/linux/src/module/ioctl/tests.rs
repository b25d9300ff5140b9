//! Numbers that a newer module may send.

use uksm_policy::command::{PageState, Reason, Status};

use super::*;

#[test]
fn a_number_without_a_name_is_no_answer() {
    let page = |state| {
        page_of(&raw::uksm_page {
            state,
            ..Default::default()
        })
    };
    let known = page(PageState::Frame as u16).map(|page| page.state);
    assert_eq!(known, Some(PageState::Frame));
    assert_eq!(page(u16::MAX), None);
    let outcome = |status, reason| {
        outcome_of(&raw::uksm_fold_entry {
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

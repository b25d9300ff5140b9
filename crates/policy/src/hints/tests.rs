//! Hints as a part: the hints taken in, and how their share follows their yield.

use super::*;
use crate::command::HintSource;
use crate::params::Governor;

const SPACE: SpaceId = SpaceId(5);

fn hints() -> Hints {
    Hints::new(&Params::governor(Governor::Full))
}

fn hint(start: u64, length: u64) -> Hint {
    Hint {
        start,
        length,
        space: SPACE,
        source: HintSource::Read,
        place: None,
    }
}

#[test]
fn pages_that_are_touched_in_part_are_hinted_and_what_cannot_be_is_counted() {
    let mut hints = hints();
    let news = [
        hint(4095, 2),
        hint(1 << 30, 0),
        hint(u64::MAX - 10, 100),
        hint(1 << 40, 2 << 30),
    ];
    hints.came(&news, 3, false, 0, SECOND);
    let report = hints.report();
    assert_eq!((report.taken, report.refused, report.lost), (4, 2, 3));
    assert_eq!(report.left_out_pages, MAX_PAGES);
    assert_eq!(report.waiting_pages, 2 + MAX_PAGES);
}

#[test]
fn the_stack_has_room_for_what_can_be_followed_in_twenty_seconds() {
    let mut hints = hints();
    let many: Vec<Hint> = (0..60_000).map(|n| hint(n << 30, 1 << 21)).collect();
    hints.came(&many, 0, false, 0, SECOND);
    let seconds = convert::float(hints.report().waiting_pages) * FIRST_COST / 1e9 / hints.governed;
    assert!((19.0..=20.0).contains(&seconds), "{seconds} s");
    assert_eq!(
        hints.report().aged_pages + hints.report().waiting_pages,
        60_000 * 512
    );
}

#[test]
fn no_page_is_asked_for_where_hints_are_off() {
    let mut params = Params::governor(Governor::Full);
    params.hint_runs = 0;
    let mut hints = Hints::new(&params);
    assert!(!hints.is_on() && !hints.is_take_due(SECOND));
    assert_eq!(hints.hints_wake_from(SECOND), Nanos::MAX);
}

#[test]
fn a_storm_is_taken_in_within_the_share_of_hints() {
    let mut hints = hints();
    let (mut now, mut taking, mut following) = (SECOND, 0, 0);
    while now < 21 * SECOND {
        let ready = hints.hints_wake_from(now);
        if hints.is_take_due(now) {
            hints.taking();
            hints.came(&[hint(now, 4096)], 0, true, 0, now);
            taking += MILLISECOND;
        } else if ready > now {
            now = ready;
            continue;
        } else {
            following += MILLISECOND;
        }
        now += MILLISECOND;
        hints.charge(now, MILLISECOND);
    }
    // Half of the governor's 95 %, and the time saved in half a round.
    let share = convert::ratio(taking + following, 21 * SECOND);
    assert!((0.45..0.5).contains(&share), "{share}");
    let part = convert::ratio(taking, taking + following);
    assert!((0.24..0.26).contains(&part), "{part}");
}

/// A second in which hints had 1000 pages read and `merged` of them merged for 100 ms, and scanning
/// merged as many for ten times as much.
fn pass_a_second(hints: &mut Hints, second: u64, merged: u64) {
    let used = 100 * MILLISECOND;
    hints.sampled(1000);
    hints.charge(second * SECOND, used);
    for page in 0..merged {
        let at = (SPACE, page * PAGE_SIZE);
        hints.merged((None, Payer::Hints), at, second * SECOND);
    }
    hints.judge(2 * merged * second, 11 * used * second, second * SECOND);
}

#[test]
fn while_hints_do_not_pay_their_part_shrinks_to_a_sixteenth_and_comes_back() {
    let mut hints = hints();
    let most = hints.part;
    for second in 1..10 {
        pass_a_second(&mut hints, second, 0);
    }
    assert_eq!(hints.part, most / 16.0);
    for second in 10..20 {
        pass_a_second(&mut hints, second, 500);
    }
    assert_eq!(hints.part, most);
}

#[test]
fn merges_are_counted_by_the_time_since_the_hint() {
    let mut hints = hints();
    let entry = hints.entry(&hint(0, 4096), SECOND).expect("it can be true");
    let ticket = hints.tickets.give(&entry);
    for after in [50, 100, 500, 5000, 20_000] {
        let now = SECOND + after * MILLISECOND;
        hints.merged((Some(ticket), Payer::Hints), (SPACE, 0), now);
    }
    hints.merged((None, Payer::Hints), (SPACE, 0), SECOND);
    let report = hints.report();
    assert_eq!(report.merged_pages, 5);
    assert_eq!(
        [
            report.merged_within_100_ms,
            report.merged_within_1_s,
            report.merged_within_10_s,
            report.merged_after_10_s
        ],
        [2, 1, 1, 1]
    );
}

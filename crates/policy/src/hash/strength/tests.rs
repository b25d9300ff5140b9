//! The control against modelled costs.

use super::*;

/// Nanoseconds of a line, and of a false match.
const LINE: u64 = 12;
const FALSE_MATCH: u64 = 3000;

/// A window at `strength` with this number of false matches.
fn window(strength: u16, false_matches: u64) -> SampleCosts {
    SampleCosts {
        samples: WINDOW,
        reading: WINDOW * LINE * (8 + u64::from(strength)),
        false_matches,
        false_cost: false_matches * FALSE_MATCH,
    }
}

/// The strengths of `windows` windows, each with `false_matches(strength)`.
fn strengths(
    control: &mut StrengthControl,
    windows: usize,
    false_matches: impl Fn(u16) -> u64,
) -> Vec<u16> {
    let mut strengths = vec![];
    for _ in 0..windows {
        let strength = control.strength();
        strengths.push(strength);
        assert!(!control.is_window_over(0));
        control.observe(window(strength, false_matches(strength)));
        assert!(control.is_window_over(0) && !control.is_window_over(WINDOW + 1));
        control.decide();
    }
    strengths
}

fn changes(strengths: &[u16]) -> usize {
    let pairs = strengths.windows(2);
    pairs.filter(|pair| pair[0] != pair[1]).count()
}

#[test]
fn without_false_matches_it_goes_down_by_growing_steps_and_stays_at_one_line() {
    let mut control = StrengthControl::default();
    let walked = strengths(&mut control, 9, |_| 0);
    assert_eq!(walked, [32, 31, 29, 25, 17, 9, 1, 2, 1]);
    let stable = strengths(&mut control, 900, |_| 0);
    assert_eq!(changes(&stable), 0, "nothing is weaker");
}

#[test]
fn it_goes_up_from_the_best_strength_where_weaker_ones_mislead() {
    let mut control = StrengthControl::default();
    // The benefit is largest at 45 lines.
    let walked = strengths(&mut control, 9, |strength| WINDOW * 8 / u64::from(strength));
    assert_eq!(walked, [32, 31, 33, 35, 39, 47, 55, 47, 47]);
}

#[test]
fn after_two_windows_without_a_false_match_a_weaker_hash_is_tried_ever_more_seldom() {
    let false_matches = |strength: u16| if strength < 10 { WINDOW / 4 } else { 0 };
    let mut control = StrengthControl::default();
    let seen = strengths(&mut control, 1000, false_matches);
    assert!(seen.contains(&10), "{seen:?}");
    let (early, late) = seen.split_at(100);
    assert!(
        changes(late) < changes(early),
        "{} {}",
        changes(early),
        changes(late)
    );
    assert!(
        late.iter().filter(|&&strength| strength == 10).count() > 850,
        "{late:?}"
    );
}

#[test]
fn it_searches_again_when_the_benefit_has_moved_by_half() {
    let mut control = StrengthControl::default();
    strengths(&mut control, 100, |_| 0);
    assert_eq!(control.strength(), 1);
    let seen = strengths(&mut control, 9, |strength| WINDOW / 4 / u64::from(strength));
    assert_eq!(seen, [1, 2, 4, 8, 16, 8, 8, 8, 8]);
}

#[test]
fn it_searches_again_after_a_thousand_windows() {
    let mut control = StrengthControl::default();
    strengths(&mut control, 9, |_| 0);
    let seen = strengths(&mut control, 1000, |_| 0);
    assert_eq!(seen.iter().position(|&strength| strength == 2), Some(999));
}

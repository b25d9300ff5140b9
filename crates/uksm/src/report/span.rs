//! The span of a report: the parts that records cover, and its steps.
//!
//! # Problem
//! Records of several groups overlap, leave out stretches in which no daemon ran, and end at any
//! moment. A mean over a step must be over its covered part, otherwise an hour without a daemon
//! looks like an hour without savings.
//!
//! # Approach
//! [`Cover`] is the union of all stretches, ascending and apart. Records follow each other within
//! milliseconds: pieces at most [`MAX_GAP_SECONDS`] apart are joined. Steps begin at round times of
//! UTC.
//!
//! # Units
//! Seconds since 1970; stretches are half-open.

use std::collections::BTreeMap;

/// Maximum distance between consecutive records of one daemon.
const MAX_GAP_SECONDS: f64 = 1.0;

/// Minimum length of a gap that is reported.
const GAP: f64 = 60.0;

/// Maximum number of steps.
const MAX_STEPS: f64 = 120.0;

/// Lengths of steps, in seconds.
const STEPS: [f64; 14] = [
    10.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    2.0 * 3600.0,
    3.0 * 3600.0,
    6.0 * 3600.0,
    12.0 * 3600.0,
    86400.0,
    7.0 * 86400.0,
];

/// A range of time: its beginning, and its end, which is exclusive.
pub(super) type Piece = (f64, f64);

/// The union of stretches.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// The end of each piece, by its beginning in milliseconds, which can be sorted.
    pieces: BTreeMap<i64, f64>,
}

impl Cover {
    /// Adds a time range.
    pub(super) fn add(&mut self, (mut from, mut to): Piece) {
        // Pieces are apart, so those that touch the new one are neighbours.
        while let Some((&begin, &end)) = self.pieces.range(..=key(to + MAX_GAP_SECONDS)).next_back()
        {
            if end + MAX_GAP_SECONDS < from {
                break;
            }
            self.pieces.remove(&begin);
            from = from.min(time(begin));
            to = to.max(end);
        }
        self.pieces.insert(key(from), to);
    }

    /// The beginning of the first piece and the end of the last.
    pub(super) fn ends(&self) -> Option<Piece> {
        let first = self.pieces.keys().next()?;
        let last = self.pieces.values().next_back()?;
        Some((time(*first), *last))
    }

    /// The covered part of a time range, in seconds.
    pub(super) fn within(&self, (from, to): Piece) -> f64 {
        let before = self.pieces.range(..key(to));
        let reach = before.rev().take_while(|(_, end)| **end > from);
        reach
            .map(|(begin, end)| end.min(to) - time(*begin).max(from))
            .filter(|covered| *covered > 0.0)
            // An empty sum would be -0.
            .fold(0.0, |sum, covered| sum + covered)
    }

    /// The parts of this time range that are not covered, if they are at least `GAP` long.
    pub(super) fn gaps(&self, (from, to): Piece) -> Vec<Piece> {
        let mut at = from;
        let mut gaps = Vec::new();
        let pieces = self.pieces.iter().map(|(begin, end)| (time(*begin), *end));
        for (begin, end) in pieces.chain([(to, to)]) {
            let begin = begin.min(to);
            if begin - at >= GAP {
                gaps.push((at, begin));
            }
            at = at.max(end);
        }
        gaps
    }
}

fn key(seconds: f64) -> i64 {
    let milliseconds = (seconds * 1e3).round();
    // A ledger's times are those of a calendar: within 2^43 ms.
    #[allow(clippy::cast_possible_truncation)]
    let key = milliseconds as i64;
    key
}

fn time(key: i64) -> f64 {
    key as f64 / 1e3
}

/// The length of the steps of a span.
pub(super) fn step_length((from, to): Piece) -> f64 {
    let fits = |step: &&f64| (to - from) / **step <= MAX_STEPS;
    let longest = STEPS[STEPS.len() - 1];
    let many = ((to - from) / MAX_STEPS / longest).ceil() * longest;
    STEPS.iter().find(fits).copied().unwrap_or(many)
}

/// The steps of a span that is not empty; the first and the last may be shorter.
pub(super) fn steps((from, to): Piece) -> Vec<Piece> {
    let length = step_length((from, to));
    let mut begin = (from / length).floor() * length;
    let mut steps = Vec::new();
    while begin < to {
        let end = begin + length;
        steps.push((begin.max(from), end.min(to)));
        begin = end;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover(pieces: &[Piece]) -> Cover {
        let mut cover = Cover::default();
        for piece in pieces {
            cover.add(*piece);
        }
        cover
    }

    #[test]
    fn what_overlaps_is_covered_once_in_any_order() {
        let pieces = [(100.0, 160.0), (0.0, 60.0), (400.0, 500.0), (60.002, 120.0)];
        let mut turned = pieces;
        for _ in 0..pieces.len() {
            turned.rotate_left(1);
            let cover = cover(&turned);
            assert_eq!(cover.ends(), Some((0.0, 500.0)));
            assert_eq!(cover.within((0.0, 500.0)), 260.0, "{turned:?}");
            assert_eq!(cover.within((150.0, 410.0)), 20.0);
            assert_eq!(cover.within((200.0, 300.0)), 0.0);
            assert_eq!(cover.gaps((-100.0, 530.0)), [(-100.0, 0.0), (160.0, 400.0)]);
            assert_eq!(cover.gaps((0.0, 560.0)), [(160.0, 400.0), (500.0, 560.0)]);
            assert_eq!(cover.gaps((0.0, 300.0)), [(160.0, 300.0)]);
        }
        assert_eq!(cover(&[]).gaps((0.0, 60.0)), [(0.0, 60.0)]);
    }

    #[test]
    fn steps_begin_at_round_times_and_are_the_span_together() {
        let hours = |n: f64| n * 3600.0;
        for (span, length) in [
            ((0.0, 5.0), 10.0),
            ((7.0, hours(1.0)), 60.0),
            ((100.0, hours(24.0)), 900.0),
            ((100.0, hours(24.0 * 7.0)), hours(2.0)),
            ((100.0, hours(24.0 * 90.0)), hours(24.0)),
            ((0.0, hours(24.0 * 3650.0)), hours(24.0 * 35.0)),
        ] {
            assert_eq!(step_length(span), length, "{span:?}");
            let steps = steps(span);
            assert!(steps.len() <= 121, "{}", steps.len());
            assert_eq!((steps[0].0, steps[steps.len() - 1].1), span);
            for pair in steps.windows(2) {
                assert_eq!(pair[0].1, pair[1].0);
                assert_eq!(pair[1].0 % length, 0.0);
            }
        }
    }
}

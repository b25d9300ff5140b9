//! Lifetimes of pages, for people and for programs.
//!
//! # Approach
//! Pages that were read twice ([`watch`](super::watch)) are counted by their state at the second
//! reading, and [`uksm_sketch::lifetime`] extrapolates to all pages that were read: those that
//! could save memory, whose merging would be lost, and the others. Pages that are swapped out or
//! were not reached count as neither lost nor unchanged. If next to no time passed between the
//! readings, the report has a note instead of a rate.
//!
//! The figures of a minute and of half of the pages assume one constant rate. The counts by time
//! between the readings show whether that fits: pages that are rewritten all the time are lost
//! after a second already, and no more of them after ten.
//!
//! # Units
//! Pages; seconds; shares are parts of one.

use std::fmt;

use serde::Serialize;
use uksm_policy::report::counted;
use uksm_sketch::lifetime::{self, IntervalEstimate};

use super::units::duration;
use super::watch::{PageFate, RereadPage};
use crate::status::table;

/// Minimum mean time between the readings for a figure of a minute.
const MIN_MEAN_SECONDS: f64 = 1.0;

/// Ends of the bands of time between readings, in seconds; the last has none.
const BANDS: [f64; 5] = [1.0, 10.0, 60.0, 600.0, f64::INFINITY];

/// A part of the pages, and its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ShareEstimate {
    /// As a part of one.
    pub(super) part: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// A time, and its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Time {
    /// Null if no page was lost.
    pub(super) seconds: Option<f64>,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end; null if nothing bounds it.
    pub(super) high: Option<f64>,
}

/// Pages by their state at the second reading.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Lives {
    /// Pages whose state is known.
    pub(super) pages: u64,
    /// With the same contents.
    pub(super) unchanged: u64,
    /// With other contents.
    pub(super) changed: u64,
    /// No longer there.
    pub(super) gone: u64,
    /// Changed or gone between the readings; null if there are no pages.
    pub(super) lost: Option<ShareEstimate>,
    /// Changed or gone within a minute, at one constant rate; null if too little time passed.
    pub(super) lost_in_a_minute: Option<ShareEstimate>,
    /// Time for which half of them live, at one constant rate; null if too little time passed.
    pub(super) half_live: Option<Time>,
}

/// Pages by the time between their readings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Band {
    /// This time or longer.
    pub(super) from_seconds: f64,
    /// Shorter than this; null for the last.
    pub(super) to_seconds: Option<f64>,
    /// Pages whose state is known.
    pub(super) pages: u64,
    /// Changed pages.
    pub(super) changed: u64,
    /// Gone pages.
    pub(super) gone: u64,
    /// Both, as a part of the pages.
    pub(super) lost: ShareEstimate,
}

/// Lifetimes of pages, estimated from some of those that were read.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Lifetimes {
    /// Pages that were to be read again.
    pub(super) chosen: u64,
    /// Of these, swapped out meanwhile, and so not touched.
    pub(super) swapped_out: u64,
    /// Of these, not reached within the budget.
    pub(super) not_reached: u64,
    /// Of these, not read because the right was lost.
    pub(super) refused: u64,
    /// Minimum time between the two readings of a page; null if none was read again.
    pub(super) shortest_seconds: Option<f64>,
    /// Maximum time between the two readings of a page.
    pub(super) longest_seconds: Option<f64>,
    /// Pages of zeros, and pages of which a copy was read.
    pub(super) zeros_and_copies: Lives,
    /// The others.
    pub(super) others: Lives,
    /// All.
    pub(super) all: Lives,
    /// All, by the time between the readings.
    pub(super) by_time: Vec<Band>,
}

impl From<IntervalEstimate> for ShareEstimate {
    fn from(share: IntervalEstimate) -> ShareEstimate {
        let IntervalEstimate { value, low, high } = share;
        ShareEstimate {
            part: value,
            low,
            high,
        }
    }
}

impl Lives {
    /// From pages; `is_long` if enough time passed between their readings for a rate.
    fn of(pages: &[&RereadPage], is_long: bool) -> Lives {
        let count = |fate| pages.iter().filter(|page| page.fate == fate).count() as u64;
        let seconds: Vec<f64> = pages.iter().map(|page| page.seconds).collect();
        let (changed, gone) = (count(PageFate::Changed), count(PageFate::Gone));
        let number = pages.len() as u64;
        let lost = lifetime::share(changed + gone, number);
        let share = lost.filter(|_| is_long);
        let rate = share.and_then(|share| lifetime::rate(share, &seconds));
        let finite = |seconds: f64| seconds.is_finite().then_some(seconds);
        let half = rate.map(lifetime::half_life);
        Lives {
            pages: number,
            unchanged: count(PageFate::Unchanged),
            changed,
            gone,
            lost: lost.map(ShareEstimate::from),
            lost_in_a_minute: rate.map(|rate| lifetime::lost_within(rate, 60.0).into()),
            half_live: half.map(|IntervalEstimate { value, low, high }| Time {
                seconds: finite(value),
                low,
                high: finite(high),
            }),
        }
    }

    fn cells(&self, name: &str) -> [String; 8] {
        let none = || "-".to_owned();
        let percent = |part: f64| format!("{:.2}", part * 100.0);
        let in_a_minute = self.lost_in_a_minute;
        let half = self.half_live;
        [
            name.to_owned(),
            self.pages.to_string(),
            self.changed.to_string(),
            self.gone.to_string(),
            in_a_minute.map_or_else(none, |lost| percent(lost.part)),
            in_a_minute.map_or_else(none, |lost| {
                format!("{} to {}", percent(lost.low), percent(lost.high))
            }),
            half.and_then(|half| half.seconds)
                .map_or_else(none, duration),
            half.map_or_else(none, |half| duration(half.low)),
        ]
    }
}

impl Lifetimes {
    /// From pages that were read twice, or were to be.
    pub(super) fn of(pages: &[RereadPage]) -> Lifetimes {
        let count = |fate| pages.iter().filter(|page| page.fate == fate).count() as u64;
        let is_known = |page: &&RereadPage| {
            use PageFate::{Changed, Gone, Unchanged};
            matches!(page.fate, Unchanged | Changed | Gone)
        };
        let all: Vec<&RereadPage> = pages.iter().filter(is_known).collect();
        let (saving, others): (Vec<&RereadPage>, Vec<&RereadPage>) =
            all.iter().partition(|page| page.can_be_saved);
        let seconds = all.iter().map(|page| page.seconds);
        let is_long = seconds.clone().sum::<f64>() >= MIN_MEAN_SECONDS * all.len() as f64;
        Lifetimes {
            chosen: pages.len() as u64,
            swapped_out: count(PageFate::SwappedOut),
            not_reached: count(PageFate::NotReached),
            refused: count(PageFate::Refused),
            shortest_seconds: seconds.clone().reduce(f64::min),
            longest_seconds: seconds.reduce(f64::max),
            zeros_and_copies: Lives::of(&saving, is_long),
            others: Lives::of(&others, is_long),
            all: Lives::of(&all, is_long),
            by_time: bands(&all),
        }
    }

    /// The number of pages that were read again, and the times, in a line.
    pub(super) fn headline(&self) -> String {
        let times = self.shortest_seconds.zip(self.longest_seconds);
        let Some((shortest, longest)) = times else {
            let why = match (self.chosen, self.not_reached, self.refused) {
                (0, ..) => "none was read, or a tenth of the budget does not suffice for one",
                (_, 1.., _) => "the budget was used up before: raise --budget",
                (_, 0, 1..) => "the right to read is gone",
                (_, 0, 0) => "those chosen were swapped out meanwhile",
            };
            return format!("no page was read again to estimate how long pages live: {why}");
        };
        let besides = [
            (self.swapped_out, "swapped out"),
            (self.not_reached, "not reached within the budget"),
            (self.refused, "refused"),
        ];
        let besides = besides.into_iter().filter(|&(pages, _)| pages > 0);
        let besides: String = besides
            .map(|(pages, what)| format!(", {pages} more {what}"))
            .collect();
        let too_soon = match self.all.lost_in_a_minute {
            Some(_) => "",
            None => {
                ": too soon to estimate how long pages live; a smaller --cpu or a larger \
                 --budget lets more time pass"
            }
        };
        format!(
            "{} read again after {} to {}{besides}{too_soon}",
            counted(self.all.pages, "page was", "pages were"),
            duration(shortest),
            duration(longest),
        )
    }

    /// Names of the columns of [`Lifetimes::rows`].
    pub(super) const HEAD: [&'static str; 8] = [
        "",
        "read again",
        "changed",
        "gone",
        "lost in a minute, %",
        "95 % interval, %",
        "half live for",
        "at least",
    ];

    /// States of the pages, in rows; none if none was read again.
    pub(super) fn rows(&self) -> Vec<[String; 8]> {
        if self.all.pages == 0 {
            return Vec::new();
        }
        let rows = [
            ("zeros and copies", &self.zeros_and_copies),
            ("other pages", &self.others),
            ("all", &self.all),
        ];
        rows.map(|(name, lives)| lives.cells(name)).into()
    }

    /// Pages lost by the time between their readings, in rows.
    pub(super) fn rows_by_time(&self) -> Vec<[String; 5]> {
        let row = |band: &Band| {
            let from = duration(band.from_seconds);
            let ShareEstimate { low, high, .. } = band.lost;
            [
                match band.to_seconds {
                    Some(to) => format!("{from} to {}", duration(to)),
                    None => format!("{from} or more"),
                },
                band.pages.to_string(),
                band.changed.to_string(),
                band.gone.to_string(),
                format!("{:.2} to {:.2}", low * 100.0, high * 100.0),
            ]
        };
        self.by_time.iter().map(row).collect()
    }
}

/// Pages by the time between their readings, without empty bands.
fn bands(all: &[&RereadPage]) -> Vec<Band> {
    let from = std::iter::once(0.0).chain(BANDS);
    let band = |(from, to): (f64, f64)| {
        let inside = all.iter().filter(|page| (from..to).contains(&page.seconds));
        let inside: Vec<&RereadPage> = inside.copied().collect();
        let count = |fate| inside.iter().filter(|page| page.fate == fate).count() as u64;
        let (changed, gone) = (count(PageFate::Changed), count(PageFate::Gone));
        let pages = inside.len() as u64;
        Some(Band {
            from_seconds: from,
            to_seconds: to.is_finite().then_some(to),
            pages,
            changed,
            gone,
            lost: lifetime::share(changed + gone, pages)?.into(),
        })
    };
    from.zip(BANDS).filter_map(band).collect()
}

impl fmt::Display for Lifetimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        let rows = self.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let head = std::iter::once(Lifetimes::HEAD.map(str::to_owned));
        table::write(f, &head.chain(rows).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(fate: PageFate, can_be_saved: bool, seconds: f64) -> RereadPage {
        RereadPage {
            fate,
            can_be_saved,
            seconds,
        }
    }

    #[test]
    fn pages_are_counted_by_what_has_become_of_them_and_by_time() {
        let mut pages = vec![twice(PageFate::Unchanged, true, 60.0); 90];
        pages.extend(vec![twice(PageFate::Changed, true, 60.0); 10]);
        pages.extend(vec![twice(PageFate::Unchanged, false, 5.0); 40]);
        pages.extend([
            twice(PageFate::Gone, false, 0.5),
            twice(PageFate::SwappedOut, true, 60.0),
            twice(PageFate::NotReached, false, 0.0),
        ]);
        let found = Lifetimes::of(&pages);
        let of = |lives: &Lives| (lives.pages, lives.unchanged, lives.changed, lives.gone);
        assert_eq!(of(&found.zeros_and_copies), (100, 90, 10, 0));
        assert_eq!(of(&found.others), (41, 40, 0, 1));
        assert_eq!(of(&found.all), (141, 130, 10, 1));
        let counts = (found.chosen, found.swapped_out, found.not_reached);
        assert_eq!(counts, (143, 1, 1));
        // A tenth within the minute that passed: half in 60 s * ln 2 / -ln 0.9.
        let lost = found.zeros_and_copies.lost_in_a_minute.unwrap();
        assert!((lost.part - 0.1).abs() < 1e-6 && lost.low > 0.045 && lost.high < 0.19);
        let half = found.zeros_and_copies.half_live.unwrap();
        assert!((half.seconds.unwrap() - 394.7).abs() < 0.1, "{half:?}");
        assert!(half.low < 394.0 && half.high.unwrap() > 395.0);
        let bands = found.by_time.iter();
        let bands: Vec<_> = bands
            .map(|band| (band.from_seconds, band.to_seconds, band.pages, band.gone))
            .collect();
        assert_eq!(
            bands,
            [
                (0.0, Some(1.0), 1, 1),
                (1.0, Some(10.0), 40, 0),
                (60.0, Some(600.0), 100, 0)
            ]
        );
        let text = found.to_string();
        let line = "141 pages were read again after 0.5 s to 60.0 s, 1 more swapped out, 1 more not reached within the budget\n";
        assert!(text.starts_with(line), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn unknown_lifetimes_are_reported_without_a_number() {
        for (pages, says) in [
            (
                vec![],
                "none was read, or a tenth of the budget does not suffice for one",
            ),
            (
                vec![twice(PageFate::NotReached, true, 0.0)],
                "the budget was used up before: raise --budget",
            ),
            (
                vec![twice(PageFate::Refused, true, 0.0)],
                "the right to read is gone",
            ),
            (
                vec![twice(PageFate::SwappedOut, true, 9.0)],
                "those chosen were swapped out meanwhile",
            ),
        ] {
            let found = Lifetimes::of(&pages);
            let line = "no page was read again to estimate how long pages live: ";
            assert_eq!(found.to_string(), format!("{line}{says}\n"));
            assert_eq!((found.all.lost, found.by_time.len()), (None, 0));
        }
        let soon = Lifetimes::of(&[twice(PageFate::Unchanged, true, 0.2); 50]);
        assert!(soon.headline().contains(": too soon to estimate"));
        assert_eq!((soon.all.pages, soon.all.half_live), (50, None));
        assert!(soon.all.lost.is_some());
    }

    #[test]
    fn pages_that_were_not_seen_to_change_have_a_lower_bound_only() {
        let still = Lifetimes::of(&[twice(PageFate::Unchanged, false, 30.0); 1000]);
        let half = still.all.half_live.unwrap();
        assert_eq!((half.seconds, half.high), (None, None));
        assert!(half.low > 1000.0);
        let cells = &still.rows()[2];
        assert_eq!(
            cells[1..6],
            ["1000", "0", "0", "0.00", "0.00 to 0.74"].map(str::to_owned)
        );
        assert_eq!(cells[6], "-");
        // No page could save memory.
        assert_eq!(still.rows()[0][1..], ["0", "0", "0", "-", "-", "-", "-"]);
    }
}

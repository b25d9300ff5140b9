//! The times at which chances to share are taken, and their durations (XLH §5.2, Figures 8, 11 and
//! 13).
//!
//! A chance is taken when both its pages are in one frame at a look; so its time is that of the
//! look, up to an interval too late, and a chance that comes and goes between two looks is not
//! seen.

use std::collections::BTreeMap;

use uksm_results::timeline::median;

use crate::disk_machines::sharing::Chance;

/// Bounds of the histograms, in seconds.
const BOUNDS: [f64; 11] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];

/// The results of all chances.
pub(super) struct Merges<'a> {
    chances: &'a [Chance],
    /// Chances that have begun and not ended.
    open: Vec<usize>,
    begun: usize,
    /// The time at which each was taken.
    taken: Vec<Option<f64>>,
}

impl Merges<'_> {
    /// These chances, none of which is taken yet.
    pub(super) fn of(chances: &[Chance]) -> Merges<'_> {
        Merges {
            chances,
            open: Vec::new(),
            begun: 0,
            taken: vec![None; chances.len()],
        }
    }

    /// Looks, `seconds` after the machines began, at the frame of each page of each machine.
    pub(super) fn look(&mut self, seconds: f64, frames: [&[u64]; 2]) {
        while self
            .chances
            .get(self.begun)
            .is_some_and(|chance| chance.from <= seconds)
        {
            self.open.push(self.begun);
            self.begun += 1;
        }
        let (chances, taken) = (self.chances, &mut self.taken);
        self.open.retain(|&index| {
            let chance = chances[index];
            if chance.until <= seconds {
                return false;
            }
            let [own, other] = chance.pages;
            let is_shared = frames[0][own] != 0 && frames[0][own] == frames[1][other];
            if is_shared {
                taken[index] = Some(seconds);
            }
            !is_shared
        });
    }

    /// Chances that were taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.iter().flatten().count()
    }

    /// The median time from the beginning of a chance until it was taken: infinite for those that
    /// were not.
    pub(super) fn median_seconds(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.times().collect();
        seconds.resize(self.chances.len(), f64::INFINITY);
        median(&seconds).filter(|seconds| seconds.is_finite())
    }

    fn times(&self) -> impl Iterator<Item = f64> {
        let pairs = self.chances.iter().zip(&self.taken);
        pairs.filter_map(|(chance, taken)| Some((*taken)? - chance.from))
    }

    /// Histograms: seconds until chances were taken, and seconds of sharing after that. A shared
    /// page is assumed to stay so until a machine drops it.
    pub(super) fn histograms(&self) -> BTreeMap<String, Vec<(f64, usize)>> {
        let pairs = self.chances.iter().zip(&self.taken);
        let shared = pairs.filter_map(|(chance, taken)| Some(chance.until - (*taken)?));
        BTreeMap::from([
            ("seconds_to_merge".to_owned(), histogram(self.times())),
            ("seconds_shared".to_owned(), histogram(shared)),
        ])
    }
}

/// The number of values up to each bound and above the one before; the last bound is infinite.
fn histogram(values: impl Iterator<Item = f64>) -> Vec<(f64, usize)> {
    let mut counts: Vec<(f64, usize)> = BOUNDS.iter().map(|&bound| (bound, 0)).collect();
    counts.push((f64::MAX, 0));
    for value in values {
        let place = counts.iter_mut().find(|(bound, _)| value <= *bound);
        if let Some((_, count)) = place {
            *count += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(page: usize, from: f64, until: f64) -> Chance {
        Chance {
            pages: [page, page],
            from,
            until,
        }
    }

    #[test]
    fn a_chance_is_taken_when_both_pages_are_in_one_frame_and_never_after_its_end() {
        let chances = [
            chance(0, 0.0, 9.0),
            chance(1, 1.0, 3.0),
            chance(2, 1.0, 9.0),
        ];
        let mut merges = Merges::of(&chances);
        merges.look(2.0, [&[7, 8, 0], &[7, 9, 0]]);
        merges.look(4.0, [&[7, 8, 5], &[7, 8, 5]]);
        assert_eq!(merges.taken, [Some(2.0), None, Some(4.0)]);
        assert_eq!(merges.median_seconds(), Some(3.0));
        let shared = &merges.histograms()["seconds_shared"];
        assert_eq!(shared.iter().map(|(_, count)| count).sum::<usize>(), 2);
    }

    #[test]
    fn where_most_chances_are_lost_there_is_no_median() {
        let chances = [
            chance(0, 0.0, 1.0),
            chance(1, 0.0, 1.0),
            chance(2, 0.0, 5.0),
        ];
        let mut merges = Merges::of(&chances);
        merges.look(2.0, [&[1, 2, 3], &[1, 2, 3]]);
        assert_eq!((merges.taken(), merges.median_seconds()), (1, None));
    }
}

//! SAMPLE on the simulated host.
//!
//! A page without mergeable content has the state that the module would return, and no hash.

use uksm_policy::command::{Lines, Nanos, Observation, PAGE_SIZE, Page, PageFlags, PageState, Run};

use uksm_policy::mix::mix;

use super::Host;
use crate::fault::{Canary, Fault};
use crate::memory::Area;

/// The answer for a page without contents.
fn in_state(state: PageState) -> Page {
    Page {
        hash: 0,
        frame: 0,
        state,
        flags: PageFlags(0),
    }
}

impl Host {
    pub(super) fn sample(&mut self, runs: &[Run], lines: Lines) -> (Observation, Nanos) {
        assert!(
            !runs.is_empty() && runs.len() <= 4096,
            "{} runs",
            runs.len()
        );
        let sorted = runs.is_sorted_by_key(|run| (run.space, run.start));
        assert!(sorted, "runs are to be sorted");
        let asked: usize = runs.iter().map(|run| run.count as usize).sum();
        let answered = if self.faults.strikes(Fault::PartialSample) {
            usize::try_from(self.faults.below(asked as u64)).expect("less than was asked for")
        } else {
            asked
        };
        let (mut pages, mut reads) = (vec![], 0);
        let costs = self.costs;
        let mut cost = costs.call + costs.run * runs.len() as u64;
        for run in runs {
            let is_locked = self.faults.strikes(Fault::Locked);
            assert!(run.count > 0 && run.stride > 0 && run.start.is_multiple_of(PAGE_SIZE));
            let process = self.processes.get(run.space);
            let mut place = None;
            for at in 0..u64::from(run.count) {
                let address = run.start + at * u64::from(run.stride) * PAGE_SIZE;
                let page = match process {
                    None => in_state(PageState::Dead),
                    Some(_) if is_locked => in_state(PageState::Retry),
                    Some(process) => {
                        // Nearly all runs lie in one mapping.
                        let is_in = |area: &&Area| area.start <= address && address < area.end();
                        let last = place.map(|at: usize| &process.areas[at]);
                        let area = last.filter(is_in).or_else(|| {
                            place = process.area(address);
                            place.map(|at| &process.areas[at])
                        });
                        area.map_or_else(
                            || in_state(PageState::Unmapped),
                            |area| self.read(area, address, lines),
                        )
                    }
                };
                cost += if page.state == PageState::Frame {
                    costs.page_merged
                } else {
                    costs.page
                };
                if matches!(page.state, PageState::Anon | PageState::Frame) {
                    cost += costs.line * u64::from(lines.to - lines.from);
                    reads += 1;
                }
                pages.push(page);
            }
        }
        self.reads += reads;
        self.spoil(&mut pages);
        pages.truncate(answered);
        assert!(pages.len() <= 16384, "{} pages", pages.len());
        (Observation::Sampled(pages), cost)
    }

    /// Answers that are not, or no longer, true.
    fn spoil(&mut self, pages: &mut [Page]) {
        let is_wrong = self.canary == Some(Canary::WrongHash);
        if !is_wrong && !self.faults.may_strike(Fault::StaleSample) {
            return;
        }
        for (page, at) in pages.iter_mut().zip(1..) {
            let has_hash = matches!(page.state, PageState::Anon);
            if has_hash && (is_wrong || self.faults.strikes(Fault::StaleSample)) {
                page.hash ^= mix(page.hash ^ self.now ^ at);
            }
        }
    }

    fn read(&self, area: &Area, address: u64, lines: Lines) -> Page {
        if area.refused {
            return in_state(PageState::Refused);
        }
        let slot = area.get(area.page(address));
        if !matches!(slot.state, PageState::Anon | PageState::Frame) {
            return in_state(slot.state);
        }
        let flags = [
            (area.large_at(address).is_some(), PageFlags::HUGE),
            (area.locked, PageFlags::LOCKED),
            (slot.pinned && self.report_pins, PageFlags::PINNED),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        Page {
            hash: slot
                .content
                .hash_on(self.node_of(&slot, address), lines, &self.hash),
            frame: slot.frame,
            state: slot.state,
            flags: PageFlags(flags.fold(0, |all, (_, flag)| all | flag)),
        }
    }
}

//! SAMPLE on the simulated host.
//!
//! A page without a content that can be merged has the state that the module would give, and no hash.

use uksm_policy::command::{Lines, Nanos, Observation, PAGE_SIZE, Page, PageFlags, PageState, Run};

use super::Host;
use crate::memory::Process;

impl Host {
    pub(super) fn sample(&mut self, runs: &[Run], lines: Lines) -> (Observation, Nanos) {
        assert!(
            !runs.is_empty() && runs.len() <= 4096,
            "{} runs",
            runs.len()
        );
        let sorted = runs.is_sorted_by_key(|run| (run.space, run.start));
        assert!(sorted, "runs are to be sorted");
        let mut pages = vec![];
        let costs = self.costs;
        let mut cost = costs.call + costs.run * runs.len() as u64;
        for run in runs {
            assert!(run.count > 0 && run.stride > 0 && run.start.is_multiple_of(PAGE_SIZE));
            let process = self.processes.get(&run.space);
            for at in 0..u64::from(run.count) {
                let address = run.start + at * u64::from(run.stride) * PAGE_SIZE;
                let page = self.read(process, address, lines);
                cost += costs.page;
                if matches!(page.state, PageState::Anon | PageState::Frame) {
                    cost += costs.line * u64::from(lines.to - lines.from);
                }
                pages.push(page);
            }
        }
        assert!(pages.len() <= 16384, "{} pages", pages.len());
        (Observation::Sampled(pages), cost)
    }

    fn read(&self, process: Option<&Process>, address: u64, lines: Lines) -> Page {
        let in_state = |state| Page {
            hash: 0,
            frame: 0,
            state,
            flags: PageFlags(0),
        };
        let Some(process) = process else {
            return in_state(PageState::Dead);
        };
        let Some(at) = process.area(address) else {
            return in_state(PageState::Unmapped);
        };
        let area = &process.areas[at];
        if area.refused {
            return in_state(PageState::Refused);
        }
        let slot = area.get((address - area.start) / PAGE_SIZE);
        if !matches!(slot.state, PageState::Anon | PageState::Frame) {
            return in_state(slot.state);
        }
        let huge = if area.huge_at(address).is_some() {
            PageFlags::HUGE
        } else {
            0
        };
        Page {
            hash: slot.content.hash(lines, &self.hash),
            frame: slot.frame,
            state: slot.state,
            flags: PageFlags(
                huge | if slot.pinned && self.report_pins {
                    PageFlags::PINNED
                } else {
                    0
                },
            ),
        }
    }
}

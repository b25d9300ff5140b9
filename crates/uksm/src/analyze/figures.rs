//! From the sample to the figures of the report.
//!
//! # Approach
//! Anonymous memory, huge pages, pages offered to in-kernel KSM and pages merged by it are counts
//! of the kernel. All else is estimated from the sample: own pages and pages of zeros by the rate,
//! copies by [`uksm_sketch::occupancy`]. Copies within groups are those of all groups minus those
//! of all processes, and so on, so that the parts add up to the whole.
//!
//! In-kernel KSM would find the copies among own pages that are offered to it. It merges pages of
//! zeros like others (unless `use_zero_pages` is set): all but one are saved.
//!
//! Reading all own pages once takes this run's processor time for a page, times their number. A
//! governor reads with its share of a core, which takes that time divided by the share.
//!
//! # Units
//! Pages; seconds.

use std::cmp::Reverse;

use uksm_policy::params::{Governor, Params};
use uksm_sketch::occupancy::{Occupancy, Range};
use uksm_sketch::redundancy::{Part, Redundancy};

use super::report::{AnalysisReport, GovernorTime, MemoryRow, PageEstimate};
use super::sampling::{SampledMemory, SampledProcess};

/// The report on a sample, with at most `top` groups and `top` processes.
pub(super) fn report(reading: SampledMemory, top: usize) -> AnalysisReport {
    let SampledMemory {
        processes,
        groups,
        pages,
        rate,
        page_nanos,
        missed,
    } = reading;
    let occupancy = Occupancy::new(rate);
    let of_process: Vec<u32> = processes.iter().map(|process| process.group).collect();
    let read_pages = pages.len() as u64;
    let found = Redundancy::of(pages, &of_process);
    let sum = |of: &dyn Fn(&SampledProcess) -> u64| processes.iter().map(of).sum::<u64>();
    let zeros = sum(&|process| process.zero);
    let zero = occupancy.pages(zeros);
    let [in_processes, in_groups, in_all] = Range::nested([
        occupancy.copies(&found.in_processes),
        occupancy.copies(&found.in_groups),
        occupancy.copies(&found.in_all),
    ]);
    let own = occupancy.pages(read_pages + zeros);
    let anonymous = sum(&|process| process.survey.anonymous) as f64;
    let offered = occupancy.copies(&found.offered);
    let zero_offered = occupancy.pages(sum(&|process| process.zero_offered));
    let [by_ksm, saved] = Range::nested([offered.and(all_but_one(zero_offered)), zero.and(in_all)]);
    let seconds = own.pages * page_nanos / 1e9;
    let governors = Governor::ALL.map(|governor| {
        let share = Params::governor(governor).cpu;
        GovernorTime {
            name: governor.name(),
            share,
            seconds: seconds / share,
        }
    });
    let rows = Rows {
        occupancy: &occupancy,
        processes: &processes,
        top,
    };
    AnalysisReport {
        processes: processes.len() as u64,
        groups: groups.len() as u64,
        cut_processes: sum(&|process| u64::from(process.survey.is_cut)),
        read_pages: read_pages + zeros,
        rate,
        anonymous_pages: anonymous,
        own: own.into(),
        shared_already: shared(anonymous, own).into(),
        ksm_merged_pages: ksm_merged(&processes),
        huge_pages: sum(&|process| process.survey.huge) as f64,
        offered_pages: sum(&|process| process.survey.offered) as f64,
        zero: zero.into(),
        within_processes: in_processes.into(),
        within_groups: in_groups.beyond(in_processes).into(),
        across_groups: in_all.beyond(in_groups).into(),
        saved: saved.into(),
        ksm_would_find: by_ksm.into(),
        ksm_cannot_find: saved.beyond(by_ksm).into(),
        page_seconds: page_nanos / 1e9,
        all_seconds: seconds,
        governors: governors.into(),
        by_group: rows.of_groups(&groups, &found),
        by_process: rows.of_processes(&found),
        left_out: missed,
        ..AnalysisReport::default()
    }
}

/// Anonymous pages that are not a process's own.
fn shared(anonymous: f64, own: Range) -> Range {
    Range::exact(anonymous).beyond(own)
}

fn all_but_one(pages: Range) -> Range {
    let but_one = |pages: f64| (pages - 1.0).max(0.0);
    Range {
        pages: but_one(pages.pages),
        low: but_one(pages.low),
        high: but_one(pages.high),
    }
}

/// Pages merged by in-kernel KSM; none if the kernel reports them for no process.
fn ksm_merged(processes: &[SampledProcess]) -> Option<u64> {
    let merged = processes.iter().filter_map(|process| process.survey.merged);
    merged.fold(None, |all, merged| Some(all.unwrap_or(0) + merged))
}

/// Makes rows of the groups and processes with most memory.
struct Rows<'a> {
    occupancy: &'a Occupancy,
    processes: &'a [SampledProcess],
    top: usize,
}

impl Rows<'_> {
    fn of_groups(&self, groups: &[String], found: &Redundancy) -> Vec<MemoryRow> {
        let rows = groups.iter().enumerate().zip(&found.by_group);
        let mut rows: Vec<(u64, String, Vec<&SampledProcess>, &Part)> = rows
            .map(|((number, name), part)| {
                let inside = self.processes.iter();
                let inside = inside.filter(|process| process.group as usize == number);
                let inside: Vec<&SampledProcess> = inside.collect();
                let anonymous = inside.iter().map(|process| process.survey.anonymous).sum();
                (anonymous, name.clone(), inside, part)
            })
            .collect();
        rows.sort_by(|one, other| (Reverse(one.0), &one.1).cmp(&(Reverse(other.0), &other.1)));
        let rows = rows.into_iter().take(self.top);
        rows.map(|(_, name, inside, part)| self.row(name, None, &inside, part))
            .collect()
    }

    fn of_processes(&self, found: &Redundancy) -> Vec<MemoryRow> {
        let mut rows: Vec<(&SampledProcess, &Part)> =
            self.processes.iter().zip(&found.by_process).collect();
        rows.sort_by_key(|(process, _)| (Reverse(process.survey.anonymous), process.pid));
        let rows = rows.into_iter().take(self.top);
        rows.map(|(process, part)| {
            self.row(process.comm.clone(), Some(process.pid), &[process], part)
        })
        .collect()
    }

    fn row(
        &self,
        name: String,
        pid: Option<u32>,
        of: &[&SampledProcess],
        part: &Part,
    ) -> MemoryRow {
        let sum = |count: fn(&SampledProcess) -> u64| {
            of.iter().map(|&process| count(process)).sum::<u64>()
        };
        let elsewhere = part.elsewhere as f64 / self.occupancy.rate();
        let anonymous = sum(|process| process.survey.anonymous) as f64;
        MemoryRow {
            name,
            pid,
            processes: of.len() as u64,
            anonymous_pages: anonymous,
            zero: PageEstimate::from(self.occupancy.pages(sum(|process| process.zero))),
            within: PageEstimate::from(self.occupancy.copies(&part.met)),
            elsewhere_least: elsewhere.round().min(anonymous),
            huge_pages: sum(|process| process.survey.huge) as f64,
        }
    }
}

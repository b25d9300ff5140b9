//! The report of `uksm analyze`, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use uksm_policy::report::counted;
use uksm_sketch::occupancy::Range;

use super::lifetimes::Lifetimes;
use super::sampling::UnreadProcess;
use super::units::{duration, mib};
use crate::status::table;

/// Number of processes that are named among those left out for one reason.
const NAMED: usize = 3;

/// Maximum length of a control group's name in the text.
const MAX_NAME_CHARS: usize = 44;

/// An estimate in whole pages, and its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct PageEstimate {
    /// Pages.
    pub(super) pages: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

impl From<Range> for PageEstimate {
    fn from(range: Range) -> PageEstimate {
        PageEstimate {
            pages: range.pages.round(),
            low: range.low.floor(),
            high: range.high.ceil(),
        }
    }
}

/// The whole report. Pages are 4 KiB.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct AnalysisReport {
    /// Processes that were read.
    pub(super) processes: u64,
    /// Units or control groups that they are in.
    pub(super) groups: u64,
    /// Processes with more mappings or address space than was checked.
    pub(super) cut_processes: u64,
    /// Pages that were read.
    pub(super) read_pages: u64,
    /// The probability with which each page was read.
    pub(super) rate: f64,
    /// The seed of the choice.
    pub(super) seed: u64,
    /// Duration.
    pub(super) seconds: f64,
    /// Processor time used.
    pub(super) cpu_seconds: f64,
    /// The budget of processor time.
    pub(super) budget_seconds: f64,
    /// The allowed share of a core.
    pub(super) cpu_share: f64,
    /// Private anonymous pages, by the kernel. A page that several processes map counts for each.
    pub(super) anonymous_pages: f64,
    /// Those that only one process maps.
    pub(super) own: PageEstimate,
    /// Those that several processes map, by fork or because they were merged.
    pub(super) shared_already: PageEstimate,
    /// Those that in-kernel KSM has merged, by the kernel; null if it does not report them.
    pub(super) ksm_merged_pages: Option<u64>,
    /// Those in huge pages, by the kernel.
    pub(super) huge_pages: f64,
    /// Those that in-kernel KSM may merge, by the kernel.
    pub(super) offered_pages: f64,
    /// Own pages of zeros.
    pub(super) zero: PageEstimate,
    /// Own pages that are copies within one process: beyond the first of each content.
    pub(super) within_processes: PageEstimate,
    /// Further ones that are copies within one unit or control group.
    pub(super) within_groups: PageEstimate,
    /// Further ones that are copies across these.
    pub(super) across_groups: PageEstimate,
    /// The sum of these: pages that merging could free.
    pub(super) saved: PageEstimate,
    /// The part of it that in-kernel KSM would find: it may only compare pages that are offered to
    /// it.
    pub(super) ksm_would_find: PageEstimate,
    /// The part of it that in-kernel KSM cannot find.
    pub(super) ksm_cannot_find: PageEstimate,
    /// Processor time to read one page, measured by this run.
    pub(super) page_seconds: f64,
    /// Processor time to read all own pages once, by that.
    pub(super) all_seconds: f64,
    /// Time for that with each governor's share of a core.
    pub(super) governors: Vec<GovernorTime>,
    /// Lifetimes of pages.
    pub(super) lifetimes: Lifetimes,
    /// Units or control groups with the most memory.
    pub(super) by_group: Vec<MemoryRow>,
    /// Processes with the most memory.
    pub(super) by_process: Vec<MemoryRow>,
    /// Processes that were named and not read.
    pub(super) left_out: Vec<UnreadProcess>,
}

/// Time of a governor for reading all own pages once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GovernorTime {
    /// Its name.
    pub(super) name: &'static str,
    /// Its share of a core.
    pub(super) share: f64,
    /// The time.
    pub(super) seconds: f64,
}

/// A control group, unit or process.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct MemoryRow {
    /// Path, or name of the program.
    pub(super) name: String,
    /// The id of a process; null for a group.
    pub(super) pid: Option<u32>,
    /// Processes in it.
    pub(super) processes: u64,
    /// Its private anonymous pages, by the kernel.
    pub(super) anonymous_pages: f64,
    /// Its own pages of zeros.
    pub(super) zero: PageEstimate,
    /// Its own pages that are copies within it.
    pub(super) within: PageEstimate,
    /// Minimum number of its own pages that have copies elsewhere.
    pub(super) elsewhere_least: f64,
    /// Its pages in huge pages, by the kernel.
    pub(super) huge_pages: f64,
}

/// The end of a name that is too long.
fn shortened(name: &str) -> String {
    let name = name.escape_debug().to_string();
    match name.char_indices().rev().nth(MAX_NAME_CHARS - 1) {
        Some((from, _)) if from > 0 => format!("..{}", &name[from..]),
        _ => name,
    }
}

impl AnalysisReport {
    /// A part of all memory, in percent.
    fn percent(&self, pages: f64) -> String {
        format!("{:.1}", pages / self.anonymous_pages.max(1.0) * 100.0)
    }

    /// The places of memory, and their amounts.
    pub(super) fn lines(&self) -> [(&'static str, PageEstimate); 8] {
        [
            ("zeros", self.zero),
            ("copies within a process", self.within_processes),
            ("copies within a control group", self.within_groups),
            ("copies across control groups", self.across_groups),
            ("could be saved", self.saved),
            ("of that, offered to KSM", self.ksm_would_find),
            ("of that, not offered to KSM", self.ksm_cannot_find),
            ("shared already", self.shared_already),
        ]
    }

    /// The memory that was read, in a line.
    pub(super) fn headline(&self) -> String {
        format!(
            "{} in {}: {} MiB of private memory, {} MiB of it in huge pages",
            counted(self.processes, "process", "processes"),
            counted(self.groups, "control group", "control groups"),
            mib(self.anonymous_pages),
            mib(self.huge_pages)
        )
    }

    /// The reading, in a line.
    pub(super) fn effort(&self) -> String {
        let how = match self.rate {
            1.0.. => "all own pages were read".to_owned(),
            rate => format!("{:.2} % of the own pages were read", rate * 100.0),
        };
        format!(
            "{how}: {} in {:.1} s, with {:.2} s of processor time (seed {})",
            counted(self.read_pages, "page", "pages"),
            self.seconds,
            self.cpu_seconds,
            self.seed
        )
    }

    /// The present state of in-kernel KSM, in a line.
    pub(super) fn ksm(&self) -> String {
        let merged = match self.ksm_merged_pages {
            Some(pages) => format!("has merged {} MiB of this", mib(pages as f64)),
            None => "does not report what it has merged".to_owned(),
        };
        format!(
            "in-kernel KSM {merged}; {} MiB are offered to it (madvise)",
            mib(self.offered_pages)
        )
    }

    /// The cost of finding all, in a line.
    pub(super) fn cost(&self) -> String {
        let times = self.governors.iter().map(
            |GovernorTime {
                 name,
                 share,
                 seconds,
             }| { format!("{name} ({} %) {}", share * 100.0, duration(*seconds)) },
        );
        format!(
            "to read all own pages once takes {} of a core, at {:.1} us a page as in this run: {}",
            duration(self.all_seconds),
            self.page_seconds * 1e6,
            times.collect::<Vec<_>>().join(", ")
        )
    }

    /// Processes that were left out: a line for each reason.
    pub(super) fn left_out(&self) -> Vec<String> {
        let mut reasons: BTreeMap<&str, Vec<&UnreadProcess>> = BTreeMap::new();
        for left_out in &self.left_out {
            reasons.entry(&left_out.why).or_default().push(left_out);
        }
        let line = |(why, of): (&str, Vec<&UnreadProcess>)| {
            let pages: u64 = of.iter().map(|one| one.pages).sum();
            let names = of.iter().take(NAMED);
            let names = names.map(|one| format!("{} ({})", one.pid, one.comm.escape_debug()));
            let more = if of.len() > NAMED { ", ..." } else { "" };
            format!(
                "left out {} with {} MiB: {why}: {}{more}",
                counted(of.len() as u64, "process", "processes"),
                mib(pages as f64),
                names.collect::<Vec<_>>().join(", ")
            )
        };
        let mut lines: Vec<String> = reasons.into_iter().map(line).collect();
        if self.cut_processes > 0 {
            lines.push(format!(
                "{} too many mappings, or more than 256 GiB of address space",
                counted(
                    self.cut_processes,
                    "process was read in part: it has",
                    "processes were read in part: they have"
                )
            ));
        }
        lines
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "MiB", "%", "95 % interval, MiB"].map(str::to_owned);
        let rows = self
            .lines()
            .map(|(name, PageEstimate { pages, low, high })| {
                [
                    name.to_owned(),
                    mib(pages),
                    self.percent(pages),
                    format!("{} to {}", mib(low), mib(high)),
                ]
            });
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        table::write(f, &rows)
    }

    fn rows(&self, f: &mut fmt::Formatter<'_>, what: &str, rows: &[MemoryRow]) -> fmt::Result {
        if rows.is_empty() {
            return Ok(());
        }
        let head = [
            what,
            "processes",
            "MiB",
            "zeros",
            "copies within",
            "at most",
            "elsewhere too",
            "huge",
        ];
        let rows = rows.iter().map(|row| {
            let pid = row.pid.map_or(String::new(), |pid| format!("{pid} "));
            let least = if self.rate < 1.0 { ">= " } else { "" };
            [
                pid + &shortened(&row.name),
                row.processes.to_string(),
                mib(row.anonymous_pages),
                mib(row.zero.pages),
                mib(row.within.pages),
                mib(row.within.high),
                format!("{least}{}", mib(row.elsewhere_least)),
                mib(row.huge_pages),
            ]
        });
        let head = std::iter::once(head.map(str::to_owned));
        writeln!(f)?;
        table::write(f, &head.chain(rows).collect::<Vec<_>>())
    }
}

impl fmt::Display for AnalysisReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n", self.headline(), self.effort())?;
        self.table(f)?;
        writeln!(f, "\n{}\n{}\n", self.ksm(), self.cost())?;
        write!(f, "{}", self.lifetimes)?;
        self.rows(f, "control group", &self.by_group)?;
        self.rows(f, "process", &self.by_process)?;
        let left_out = self.left_out();
        if !left_out.is_empty() {
            writeln!(f)?;
        }
        left_out.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

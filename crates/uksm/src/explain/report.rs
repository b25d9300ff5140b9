//! The report of `uksm explain`, for people and for programs.
//!
//! # Units
//! Pages are 4 KiB; MiB are 256 of them.

use std::fmt;

use serde::Serialize;

use super::estimate::Estimate;
use super::reasons::{Reason, percent, time};
use super::why_unmerged::Breakdown;
use crate::status::evidence::{Evidence, ProcessStanding, Region, Terms};

/// Reasons for fewer pages are not printed, unless there are no others: 64 KiB.
const MIN_SHOWN_PAGES: f64 = 16.0;
/// Maximum number of processes that are listed for people.
const MAX_LISTED: usize = 30;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct ExplainReport {
    /// The processes.
    pub(crate) processes: Vec<ProcessReport>,
    /// All of them together.
    pub(crate) sum: MemoryReport,
    /// Selected processes that are not among them, because time ran out.
    pub(crate) not_looked_at: u64,
    /// Whether regions are listed for people.
    #[serde(skip)]
    pub(crate) lists_regions: bool,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ProcessReport {
    /// Its id.
    pub(crate) pid: u32,
    /// Name of its program.
    pub(crate) comm: String,
    /// Its state for the daemon.
    pub(crate) place: ProcessStanding,
    /// Its group.
    pub(crate) group: Option<String>,
    /// Parts that could not be read, and the consequences; each one line.
    pub(crate) faults: Vec<String>,
    /// Settings and circumstances.
    pub(crate) terms: Option<Terms>,
    /// Its memory.
    #[serde(flatten)]
    pub(crate) memory: MemoryReport,
    /// Its regions.
    pub(crate) regions: Vec<Region>,
}

/// Memory, and why it is not merged.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct MemoryReport {
    /// In memory, of any kind.
    pub(crate) resident_pages: u64,
    /// Of these, the processes' own.
    pub(crate) own_pages: u64,
    /// In regions of which a page was read for a decision.
    pub(crate) looked_at_pages: u64,
    /// In regions that were read in full.
    pub(crate) read_in_full_pages: u64,
    /// Merged with frames.
    pub(crate) merged_pages: u64,
    /// Merged with the zero page, which is no longer resident.
    pub(crate) zero_pages: u64,
    /// Share of merged pages that is written in a round.
    pub(crate) broken_share: f64,
    /// Regions that are left alone because of these writes.
    pub(crate) left_alone_regions: u64,
    /// Not merged, in regions.
    pub(crate) unmerged_pages: u64,
    /// Of these, read for this answer.
    pub(crate) read_pages: u64,
    /// Of these, those with partners; none where partners are not searched for.
    pub(crate) partners: Option<Estimate>,
    /// Unmerged memory by reason, largest amount first.
    pub(crate) reasons: Vec<Why>,
}

/// A reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Why {
    /// Its name.
    pub(crate) reason: Reason,
    /// Pages that it concerns.
    pub(crate) pages: u64,
    /// Its meaning.
    pub(crate) means: &'static str,
    /// Details of the example.
    pub(crate) details: Option<String>,
    /// A change that would remove the reason.
    pub(crate) changed_by: &'static str,
    /// The place with most of it.
    pub(crate) example: Option<String>,
}

impl MemoryReport {
    /// From classified memory.
    pub(crate) fn of(breakdown: &Breakdown) -> MemoryReport {
        let why = |(reason, amount): (Reason, &super::why_unmerged::Amount)| Why {
            reason,
            pages: whole(amount.pages),
            means: reason.means(),
            details: amount.details.clone(),
            changed_by: reason.changed_by(),
            example: amount.example.as_ref().map(|(start, end, name)| {
                let range = format!("{start:x}-{end:x} {}", name.escape_debug());
                range.trim_end().to_owned()
            }),
        };
        MemoryReport {
            resident_pages: whole(breakdown.resident),
            own_pages: whole(breakdown.own),
            looked_at_pages: whole(breakdown.looked_at),
            read_in_full_pages: whole(breakdown.read_in_full),
            merged_pages: whole(breakdown.merged),
            zero_pages: whole(breakdown.zeros),
            broken_share: breakdown.broken,
            left_alone_regions: breakdown.left_alone,
            unmerged_pages: whole(breakdown.unmerged),
            read_pages: whole(breakdown.read),
            partners: breakdown.partners,
            reasons: breakdown.by_amount().into_iter().map(why).collect(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of pages, which are not negative"
)]
fn whole(pages: f64) -> u64 {
    pages.round().max(0.0) as u64
}

impl ProcessReport {
    /// A process, with its evidence and its classified memory.
    pub(crate) fn of(
        (pid, comm): (u32, String),
        evidence: Evidence,
        faults: Vec<String>,
        breakdown: &Breakdown,
    ) -> ProcessReport {
        ProcessReport {
            pid,
            comm,
            place: evidence.place,
            group: evidence.group,
            faults,
            terms: evidence.terms,
            memory: MemoryReport::of(breakdown),
            regions: evidence.regions,
        }
    }

    fn title(&self) -> String {
        let group = self.group.as_ref();
        let group = group.map_or_else(String::new, |name| format!(", group {name}"));
        format!("{} ({}){group}", self.comm.escape_debug(), self.pid)
    }
}

fn mib(pages: u64) -> String {
    format!("{:.1} MiB", pages as f64 / 256.0)
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_others = self.resident_pages.saturating_sub(self.own_pages);
        writeln!(
            f,
            "  resident    {}: {} of its own, {} of files or shared",
            mib(self.resident_pages),
            mib(self.own_pages),
            mib(of_others)
        )?;
        writeln!(
            f,
            "  looked at   {}, of these {} read in full",
            mib(self.looked_at_pages),
            mib(self.read_in_full_pages)
        )?;
        let zeros = match self.zero_pages {
            0 => String::new(),
            pages => format!(", and {} map the zero page", mib(pages)),
        };
        writeln!(f, "  merged      {}{zeros}", mib(self.merged_pages))?;
        if self.merged_pages > 0 || self.left_alone_regions > 0 {
            let alone = match self.left_alone_regions {
                0 => String::new(),
                1 => ", a region is left alone for that".to_owned(),
                many => format!(", {many} regions are left alone for that"),
            };
            writeln!(
                f,
                "  broken      {} of what is merged is written again in a round{alone}",
                percent(self.broken_share)
            )?;
        }
        if let Some(partners) = &self.partners {
            let range = format!(
                "{} to {} at 95 %",
                mib(whole(partners.low)),
                mib(whole(partners.high))
            );
            writeln!(
                f,
                "  partners    {} of {} that are not merged ({range}; {} of these pages were read just now)",
                mib(whole(partners.pages)),
                mib(self.unmerged_pages),
                self.read_pages
            )?;
        }
        self.write_reasons(f)
    }
}

impl MemoryReport {
    fn write_reasons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_much = |why: &&Why| why.pages as f64 >= MIN_SHOWN_PAGES;
        let has_much = self.reasons.iter().any(|why| is_much(&why));
        let shown = self.reasons.iter().filter(|why| !has_much || is_much(why));
        for (number, why) in shown.enumerate() {
            if number == 0 {
                writeln!(f, "  not merged, and why:")?;
            }
            let details = why.details.as_ref();
            let details = details.map_or_else(String::new, |text| format!(" ({text})"));
            writeln!(
                f,
                "{:>12}  {}: {}{details}",
                mib(why.pages),
                why.reason.name(),
                why.means
            )?;
            let example = why.example.as_ref();
            let example = example.map_or_else(String::new, |place| format!("; most in {place}"));
            writeln!(f, "{:14}changed by: {}{example}", "", why.changed_by)?;
        }
        Ok(())
    }
}

impl fmt::Display for ProcessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        for fault in &self.faults {
            writeln!(f, "  in part     {fault}")?;
        }
        if self.place == ProcessStanding::Followed {
            if let Some(terms) = &self.terms {
                writeln!(
                    f,
                    "  governor    {} of a core allowed, {} used lately; a round has {}",
                    percent(terms.cpu),
                    percent(terms.cpu_recent),
                    time(terms.round_seconds)
                )?;
            }
            write!(f, "{}", self.memory)
        } else {
            self.memory.write_reasons(f)
        }
    }
}

/// The regions of a process, one a line.
fn write_regions(f: &mut fmt::Formatter<'_>, regions: &[Region]) -> fmt::Result {
    let cells = |region: &Region| {
        let pages = |what: &dyn Fn(&crate::status::evidence::Sighting) -> bool| -> u64 {
            let seen = region.seen.iter().filter(|sighting| what(sighting));
            seen.map(|sighting| sighting.pages).sum()
        };
        use crate::status::evidence::{PageKind, Partner};
        let standing = serde_json::to_value(region.standing).unwrap_or_default();
        let left = region.left_seconds.map_or_else(String::new, time);
        [
            format!("{:x}-{:x}", region.start, region.end),
            ((region.end - region.start) / uksm_policy::command::PAGE_SIZE).to_string(),
            region.level.to_string(),
            standing.as_str().unwrap_or_default().to_owned(),
            left,
            region.merged.to_string(),
            region.read.to_string(),
            pages(&|seen| matches!(seen.what, PageKind::Own | PageKind::Huge)).to_string(),
            pages(&|seen| seen.partner != Partner::Unknown).to_string(),
        ]
    };
    let head = [
        "region", "pages", "level", "standing", "for", "merged", "read now", "unmerged", "partners",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(regions.iter().map(cells));
    crate::status::table::write(f, &rows)
}

impl fmt::Display for ExplainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [process] = &self.processes[..] {
            write!(f, "{process}")?;
        } else {
            writeln!(f, "{} processes", self.processes.len())?;
            write!(f, "{}", self.sum)?;
            writeln!(f)?;
            let mut rows = vec![
                ["process", "resident", "own", "merged", "most of the rest"].map(str::to_owned),
            ];
            let mut processes: Vec<&ProcessReport> = self.processes.iter().collect();
            processes.sort_by_key(|process| std::cmp::Reverse(process.memory.own_pages));
            rows.extend(processes.iter().take(MAX_LISTED).map(|process| {
                let memory = &process.memory;
                let most = memory.reasons.first().map_or("", |why| why.reason.name());
                [
                    process.title(),
                    mib(memory.resident_pages),
                    mib(memory.own_pages),
                    mib(memory.merged_pages),
                    most.to_owned(),
                ]
            }));
            crate::status::table::write(f, &rows)?;
            if let Some(rest) = processes.len().checked_sub(MAX_LISTED).filter(|&n| n > 0) {
                writeln!(f, "and {rest} more, which --json lists")?;
            }
        }
        if self.not_looked_at > 0 {
            writeln!(
                f,
                "{} more processes were not looked at: time ran out",
                self.not_looked_at
            )?;
        }
        if self.lists_regions {
            for process in &self.processes {
                writeln!(f, "\n{}", process.title())?;
                write_regions(f, &process.regions)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

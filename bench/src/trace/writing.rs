//! From the snapshots of processes to a trace.
//!
//! Mappings that overlap at different moments are one: a heap grows, and a stack downwards.
//! Contents are numbered in the order of their first appearance, in ascending order of addresses,
//! so that contents that were never elsewhere become one run.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use anyhow::Result;

use super::{ASCENDING, CapturedProcess, Change, FORMAT, GONE, Header, PageContent, SAME};

/// A page as it was read: a salted hash, 0 for the page of zeros, and the lines that are zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapturedPage {
    pub hash: u64,
    pub zero_lines: u64,
}

/// A process at a moment: its mappings and pages, by number of the page.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub mappings: Vec<(u64, u64)>,
    pub pages: BTreeMap<u64, CapturedPage>,
}

/// All snapshots.
#[derive(Debug)]
pub(super) struct Recording {
    pub source: String,
    pub every_ms: u64,
    /// Names of the processes.
    pub names: Vec<String>,
    /// Snapshots by moment, then by process.
    pub moments: Vec<Vec<Snapshot>>,
}

impl Recording {
    /// The text of its trace.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(super) fn text(&self) -> Result<String> {
        let of_processes: Vec<Vec<(u64, u64)>> = (0..self.names.len())
            .map(|process| {
                let snapshots = self.moments.iter().map(|moment| &moment[process]);
                with_pages(snapshots)
            })
            .collect();
        let in_pages = |&(start, end): &(u64, u64)| Ok((start, usize::try_from(end - start)?));
        let captured = self.names.iter().zip(&of_processes);
        let processes = captured.map(|(name, mappings)| {
            Ok(CapturedProcess {
                name: name.clone(),
                mappings: mappings.iter().map(in_pages).collect::<Result<_>>()?,
            })
        });
        let header = Header {
            format: FORMAT,
            source: self.source.clone(),
            every_ms: self.every_ms,
            moments: self.moments.len(),
            processes: processes.collect::<Result<_>>()?,
        };
        let mut text = serde_json::to_string(&header)?;
        text.push('\n');
        let mut numbers = ContentNumbers::default();
        let nothing = vec![Snapshot::default(); self.names.len()];
        for (at, moment) in self.moments.iter().enumerate() {
            let before = at.checked_sub(1).map_or(&nothing, |at| &self.moments[at]);
            let mut mapping = 0;
            for (process, mappings) in of_processes.iter().enumerate() {
                for &range in mappings {
                    let [was, is] = [&before[process], &moment[process]];
                    let runs = runs(range, was, is, &mut numbers);
                    if !runs.is_empty() {
                        let line = serde_json::to_string(&Change(at, mapping, runs))?;
                        writeln!(text, "{line}")?;
                    }
                    mapping += 1;
                }
            }
        }
        Ok(text)
    }
}

/// The mappings that had a page at some moment, those that overlap as one.
fn with_pages<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = snapshots
        .flat_map(|snapshot| {
            let has_pages =
                |&&(start, end): &&(u64, u64)| snapshot.pages.range(start..end).next().is_some();
            snapshot.mappings.iter().filter(has_pages).copied()
        })
        .collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match joined.last_mut() {
            Some(last) if start < last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Numbers of contents.
#[derive(Debug, Default)]
struct ContentNumbers(HashMap<u64, u64>);

impl ContentNumbers {
    fn held(&mut self, seen: CapturedPage) -> PageContent {
        if seen.hash == 0 {
            return PageContent::ZEROS;
        }
        let next = self.0.len() as u64 + 1;
        let number = *self.0.entry(seen.hash).or_insert(next);
        PageContent {
            number,
            zero_lines: seen.zero_lines,
        }
    }
}

/// The changes since the last moment, in runs.
fn runs(
    (start, end): (u64, u64),
    was: &Snapshot,
    is: &Snapshot,
    numbers: &mut ContentNumbers,
) -> Vec<u64> {
    let mut runs: Vec<[u64; super::FIELDS]> = Vec::new();
    for page in start..end {
        let [before, now] = [was, is].map(|snapshot| snapshot.pages.get(&page).copied());
        if before == now {
            continue;
        }
        let page = page - start;
        let held = now.map(|seen| numbers.held(seen));
        if !runs.last_mut().is_some_and(|run| extend(run, page, held)) {
            runs.push(match held {
                Some(held) => [page, 1, held.number, SAME, held.zero_lines],
                None => [page, 1, 0, GONE, 0],
            });
        }
    }
    runs.concat()
}

/// Extends a run by a page, if the page continues it.
fn extend(run: &mut [u64; super::FIELDS], page: u64, held: Option<PageContent>) -> bool {
    let [first, count, number, on, zero_lines] = run;
    if *first + *count != page {
        return false;
    }
    let goes_on = match held {
        None => *on == GONE,
        Some(held) if *on == GONE || held.zero_lines != *zero_lines => false,
        Some(held) if *on == ASCENDING || *count == 1 && held.number == *number + 1 => {
            *on = ASCENDING;
            held.number == *number + *count
        }
        Some(held) => held.number == *number,
    };
    *count += u64::from(goes_on);
    goes_on
}

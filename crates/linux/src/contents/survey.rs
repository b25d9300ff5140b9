//! The kernel's figures on a process's memory, before any page of it is read.
//!
//! # Problem
//! The kernel knows for each mapping how much memory it has, how much of that lies in huge pages,
//! and how much is offered to in-kernel KSM. A process can have tens of thousands of mappings, for
//! each of which the kernel writes some 700 bytes.
//!
//! # Approach
//! `/proc/PID/smaps` is read mapping by mapping. After every few dozen the caller may end it: then
//! the survey has the mappings up to there, and is marked as cut. Mappings without anonymous pages
//! are dropped, so that reserved address space costs nothing later. The number of pages that the
//! kernel has merged is in `/proc/PID/ksm_stat` (since 6.1) or `/proc/PID/ksm_merging_pages` (since
//! 5.19).
//!
//! # Units
//! Counts in pages of 4 KiB, addresses in bytes.
//!
//! # Source
//! proc(5); `Documentation/filesystems/proc.rst` of the kernel: `Anonymous`, `AnonHugePages`,
//! `VmFlags` (`mg`: mergeable).

use std::io::{BufReader, Read as _};

use uksm_policy::command::PAGE_SIZE;

use super::{MAX_EXAMINED_PAGES, holds_pages, unreadable};
use crate::proc::{self, Proc};
use crate::smaps::{SmapsEntries, SmapsEntry};

/// Mappings between two calls that ask whether to go on.
const MAPPINGS_PER_CHECK: usize = 64;

/// A mapping that has anonymous pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SurveyedMapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether in-kernel KSM may merge pages of it.
    pub(super) is_offered: bool,
}

/// The kernel's figures on a process's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    pub(super) mappings: Vec<SurveyedMapping>,
    /// Anonymous pages in memory, including shared ones.
    pub anonymous: u64,
    /// The number of these that lie in huge pages.
    pub huge: u64,
    /// The number of these that in-kernel KSM may merge.
    pub offered: u64,
    /// The number of these that in-kernel KSM has merged; none if the kernel does not report it.
    pub merged: Option<u64>,
    /// Whether there are more mappings, or more address space, than this.
    pub is_cut: bool,
}

impl Survey {
    /// The survey of a process. After some mappings it calls back to ask whether to go on.
    ///
    /// # Errors
    /// Gone, no right, or malformed.
    pub(super) fn of(
        proc: &Proc,
        pid: u32,
        go_on: &mut dyn FnMut() -> bool,
    ) -> proc::Result<Survey> {
        let mut survey = Survey {
            merged: merged(proc, pid),
            ..Survey::default()
        };
        let file = BufReader::new(proc.open(pid, "smaps")?);
        for (number, entry) in SmapsEntries::of(file).enumerate() {
            let entry = entry.map_err(|fault| unreadable(proc, pid, "smaps", fault))?;
            let is_asked = number > 0 && number % MAPPINGS_PER_CHECK == 0;
            if is_asked && (survey.page_slots() >= MAX_EXAMINED_PAGES || !go_on()) {
                survey.is_cut = true;
                break;
            }
            if holds_pages(&entry) {
                survey.add(&entry);
            }
        }
        Ok(survey)
    }

    fn add(&mut self, entry: &SmapsEntry) {
        if entry.anonymous == 0 {
            return;
        }
        let is_offered = entry.has_flag(&["mg"]);
        self.anonymous += entry.anonymous;
        self.huge += entry.huge;
        self.offered += if is_offered { entry.anonymous } else { 0 };
        self.mappings.push(SurveyedMapping {
            start: entry.start,
            end: entry.end,
            is_offered,
        });
    }

    /// Number of pages that its mappings have room for: at least the number of pages.
    #[must_use]
    pub fn page_slots(&self) -> u64 {
        let pages = |mapping: &SurveyedMapping| (mapping.end - mapping.start) / PAGE_SIZE;
        self.mappings.iter().map(pages).sum()
    }

    /// Its first mappings, at most `most`; their time is used to estimate the time for the others.
    #[must_use]
    pub fn first(&self, most: u64) -> Survey {
        let mut left = most;
        let mut mappings = Vec::new();
        for &mapping in &self.mappings {
            let pages = ((mapping.end - mapping.start) / PAGE_SIZE).min(left);
            left -= pages;
            if pages > 0 {
                let end = mapping.start + pages * PAGE_SIZE;
                mappings.push(SurveyedMapping { end, ..mapping });
            }
        }
        Survey {
            mappings,
            ..Survey::default()
        }
    }
}

/// Pages of a process that in-kernel KSM has merged.
fn merged(proc: &Proc, pid: u32) -> Option<u64> {
    let text = |file| {
        let mut text = String::new();
        let mut file = proc.open(pid, file).ok()?;
        file.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let line = |text: String| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("ksm_merging_pages ")?.trim().parse().ok())
    };
    let alone = || text("ksm_merging_pages")?.trim().parse().ok();
    text("ksm_stat").and_then(line).or_else(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mappings of 16 pages, with this number of anonymous KiB.
    fn smaps(mappings: &[(&str, u64, &str)]) -> String {
        let text = (1u64..).zip(mappings).map(|(number, (kind, kib, flags))| {
            format!(
                "{:x}-{:x} {kind}\nSize: 64 kB\nAnonymous: {kib} kB\nAnonHugePages: {kib} kB\nVmFlags: {flags}\n",
                number << 20,
                (number << 20) + (16 << 12)
            )
        });
        text.collect()
    }

    #[test]
    fn a_file_whose_name_is_no_text_is_a_file_like_others() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        let smaps = b"1000-3000 rw-p 0 08:01 9 /\xff\xfe\nAnonymous: 8 kB\nVmFlags: rd wr\n";
        std::fs::write(folder.join("smaps"), smaps).unwrap();
        let survey = Survey::of(&Proc::at(root.path()), 7, &mut || true).unwrap();
        assert_eq!((survey.anonymous, survey.page_slots()), (2, 2));
    }

    fn of(
        smaps: &str,
        files: &[(&str, &str)],
        go_on: &mut dyn FnMut() -> bool,
    ) -> proc::Result<Survey> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("smaps"), smaps).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Survey::of(&Proc::at(root.path()), 7, go_on)
    }

    const HEAP: &str = "rw-p 00000000 00:00 0 [heap]";

    #[test]
    fn private_mappings_with_pages_are_counted_and_no_others() {
        let text = smaps(&[
            (HEAP, 8, "rd wr mg"),
            (HEAP, 0, "rd wr mg"),
            ("rw-s 00000000 00:01 3 /dev/zero", 64, "rd wr sh"),
            ("r-xp 00000000 08:01 7 /bin/x", 4, "rd ex"),
            ("rw-p 00000000 00:00 0 [anon: Go: heap]", 32, "rd wr"),
            ("rw-p 00000000 00:00 0 ", 32, "rd wr"),
            ("r--p 00000000 00:01 9 /SYSV1", 64, "rd"),
            ("rw-s 00000000 00:01 9 /SYSV", 64, "rd wr sh"),
        ]);
        let survey = of(
            &text,
            &[("ksm_stat", "ksm_rmap_items 9\nksm_merging_pages 5\n")],
            &mut || true,
        );
        let survey = survey.unwrap();
        let counts = (survey.anonymous, survey.huge, survey.offered, survey.merged);
        assert_eq!(counts, (18, 18, 2, Some(5)));
        assert_eq!((survey.page_slots(), survey.is_cut), (48, false));
        let part = survey.first(20);
        assert_eq!(part.page_slots(), 20);
        assert_eq!(part.mappings[1].end - part.mappings[1].start, 4 * PAGE_SIZE);
        let old = of(&text, &[("ksm_merging_pages", "3\n")], &mut || true).unwrap();
        assert_eq!(old.merged, Some(3));
        assert_eq!(of("", &[], &mut || true).unwrap(), Survey::default());
    }

    #[test]
    fn a_survey_that_is_ended_has_what_it_read_and_says_so() {
        let text = smaps(&vec![(HEAP, 4, "rd wr"); 300]);
        let whole = of(&text, &[], &mut || true).unwrap();
        assert_eq!((whole.anonymous, whole.is_cut), (300, false));
        let mut asked = 0;
        let part = of(&text, &[], &mut || {
            asked += 1;
            asked < 2
        });
        let part = part.unwrap();
        assert_eq!((part.anonymous, part.is_cut), (128, true));
    }

    #[test]
    fn what_is_malformed_is_named() {
        let error = of("nonsense\n", &[], &mut || true).unwrap_err().to_string();
        assert!(error.contains("/7/smaps:1: "), "{error}");
    }
}

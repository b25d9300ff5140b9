//! The report of `uksm group suggest`, for people and for programs.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use uksm_policy::report::counted;
use uksm_sketch::estimate::Estimate;

use super::configuration;
use super::members::MemberName;
use crate::status::table;

/// Maximum length of the boundary's part in a group's name.
const MAX_STEM: usize = 48;

/// The whole report.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct SuggestReport {
    /// The rule of boundaries.
    pub(super) rule: String,
    /// Duration.
    pub(super) seconds: f64,
    /// Processor time used.
    pub(super) cpu_seconds: f64,
    /// Each boundary, by name.
    pub(super) boundaries: Vec<BoundaryReport>,
    /// Named processes that could not be read.
    pub(super) left_out: Vec<LeftOutProcess>,
    /// The groups as a part of a configuration file; empty if there are none.
    pub(super) configuration: String,
}

/// The proposal for one boundary.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct BoundaryReport {
    /// Its name by the rule.
    pub(super) name: String,
    /// Processes that were read.
    pub(super) processes: u64,
    /// Those of which not all pages were read.
    pub(super) read_in_part: u64,
    /// Pages that were read.
    pub(super) read_pages: u64,
    /// Their private pages, without those of zeros.
    pub(super) pages: f64,
    /// Private pages of zeros, which need no group.
    pub(super) zero_pages: f64,
    /// The groups, the largest savings first.
    pub(super) groups: Vec<GroupReport>,
    /// Processes that are in no group.
    pub(super) alone: Vec<MemberName>,
    /// Additional savings of one group of all processes.
    pub(super) lost: Pages,
}

/// A group that is proposed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct GroupReport {
    /// A name for it.
    pub(super) name: String,
    /// Number of its processes.
    pub(super) processes: u64,
    /// Its processes.
    pub(super) members: Vec<MemberName>,
    /// Their pages, without those of zeros.
    pub(super) pages: f64,
    /// Savings of the group in total.
    pub(super) saved: Pages,
    /// Part of the savings by copies within single processes.
    pub(super) within: Pages,
    /// Part of the savings that is shared already, by fork or because it was merged.
    pub(super) shared_already: Pages,
}

/// An estimate in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Pages {
    /// Pages.
    pages: f64,
    /// Standard error in pages.
    error: f64,
}

impl From<Estimate> for Pages {
    fn from(estimate: Estimate) -> Pages {
        Pages {
            pages: estimate.pages.round(),
            error: estimate.error.ceil(),
        }
    }
}

/// A process that was not read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct LeftOutProcess {
    /// Its id.
    pub(super) pid: u32,
    /// Name of its program.
    pub(super) comm: String,
    /// The reason.
    pub(super) why: String,
}

/// Makes unique names for groups.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// A name for one more group of a boundary.
    pub(super) fn next(&mut self, boundary: &str) -> String {
        let words = boundary
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| !w.is_empty());
        let mut stem = words.collect::<Vec<_>>().join("-");
        stem.truncate(MAX_STEM);
        let mut names = (1..).map(|number: u64| format!("{stem}-{number}"));
        let name = names.find(|name| !self.0.contains(name));
        let name = name.unwrap_or(stem);
        self.0.insert(name.clone());
        name
    }
}

impl SuggestReport {
    /// Adds a boundary.
    pub(super) fn add(&mut self, boundary: BoundaryReport) {
        self.boundaries.push(boundary);
        let groups = self.boundaries.iter().flat_map(|boundary| &boundary.groups);
        self.configuration =
            configuration::text(groups.map(|group| (&*group.name, &group.members[..])));
    }
}

fn mib(pages: f64) -> String {
    format!("{:.1}", pages / 256.0)
}

impl fmt::Display for SuggestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&BoundaryReport) -> u64| self.boundaries.iter().map(of).sum::<u64>();
        writeln!(
            f,
            "{} in {} (by {}): {} read in {:.1} s, with {:.2} s of processor time",
            counted(sum(|boundary| boundary.processes), "process", "processes"),
            counted(self.boundaries.len() as u64, "boundary", "boundaries"),
            self.rule,
            counted(sum(|boundary| boundary.read_pages), "page", "pages"),
            self.seconds,
            self.cpu_seconds
        )?;
        self.table(f)?;
        for boundary in &self.boundaries {
            write!(f, "{boundary}")?;
        }
        for LeftOutProcess { pid, comm, why } in &self.left_out {
            writeln!(f, "process {pid} ({}): {why}", comm.escape_debug())?;
        }
        if self.configuration.is_empty() {
            return writeln!(f, "\nno group would save enough to be proposed");
        }
        write!(f, "\n{}", self.configuration)
    }
}

impl SuggestReport {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "group",
            "processes",
            "memory MiB",
            "saves MiB",
            "error MiB",
            "saves %",
            "within MiB",
            "shared already MiB",
        ];
        let groups = self.boundaries.iter().flat_map(|boundary| &boundary.groups);
        let rows = groups.map(GroupReport::cells);
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned))
            .chain(rows)
            .collect();
        if rows.len() == 1 {
            return Ok(());
        }
        table::write(f, &rows)
    }
}

impl GroupReport {
    fn cells(&self) -> [String; 8] {
        [
            self.name.clone(),
            self.processes.to_string(),
            mib(self.pages),
            mib(self.saved.pages),
            mib(self.saved.error),
            format!("{:.1}", self.saved.pages / self.pages.max(1.0) * 100.0),
            mib(self.within.pages),
            mib(self.shared_already.pages),
        ]
    }
}

impl fmt::Display for BoundaryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{}: {}, {} MiB, and {} MiB of zeros",
            self.name,
            counted(self.processes, "process", "processes"),
            mib(self.pages),
            mib(self.zero_pages)
        )?;
        for group in &self.groups {
            writeln!(f, "  {}", group.name)?;
            for member in &group.members {
                match member {
                    MemberName::Cgroup { cgroup, processes } => {
                        let processes = counted(*processes, "process", "processes");
                        writeln!(f, "    {} ({processes})", cgroup.escape_debug())?;
                    }
                    MemberName::Process { pid, comm, .. } => {
                        writeln!(f, "    {pid} {}", comm.escape_debug())?;
                    }
                }
            }
        }
        writeln!(
            f,
            "  {} in no group; one group of all would save {} MiB more (error {} MiB)",
            counted(self.alone.len() as u64, "process", "processes"),
            mib(self.lost.pages),
            mib(self.lost.error)
        )?;
        if self.read_in_part > 0 {
            let processes = counted(self.read_in_part, "process was", "processes were");
            writeln!(f, "  {processes} read in part: see --pages-per-process")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_a_line_with_the_loss_of_its_boundary() {
        let pages = |pages, error| Pages { pages, error };
        let group = GroupReport {
            name: "user-33-1".to_owned(),
            processes: 3,
            members: vec![
                MemberName::Cgroup {
                    cgroup: "/web".to_owned(),
                    processes: 2,
                },
                MemberName::Process {
                    pid: 71,
                    start_ticks: 9,
                    comm: "red\nis".to_owned(),
                },
            ],
            pages: 2560.0,
            saved: pages(1024.0, 25.6),
            within: pages(256.0, 0.0),
            shared_already: pages(512.0, 0.0),
        };
        let mut report = SuggestReport {
            rule: "user".to_owned(),
            left_out: vec![LeftOutProcess {
                pid: 9,
                comm: "x".to_owned(),
                why: "ended".to_owned(),
            }],
            ..SuggestReport::default()
        };
        report.add(BoundaryReport {
            name: "user 33".to_owned(),
            processes: 4,
            read_in_part: 1,
            pages: 5120.0,
            zero_pages: 256.0,
            groups: vec![group],
            alone: vec![MemberName::Process {
                pid: 72,
                start_ticks: 9,
                comm: "sh".to_owned(),
            }],
            lost: pages(64.0, 2.0),
            ..BoundaryReport::default()
        });
        let text = report.to_string();
        for line in [
            "4 processes in 1 boundary (by user): 0 pages read in 0.0 s, with 0.00 s of processor time",
            "group      processes  memory MiB  saves MiB  error MiB  saves %  within MiB  shared already MiB",
            "user-33-1          3        10.0        4.0        0.1     40.0         1.0                 2.0",
            "user 33: 4 processes, 20.0 MiB, and 1.0 MiB of zeros",
            "    /web (2 processes)",
            "    71 red\\nis",
            "  1 process in no group; one group of all would save 0.2 MiB more (error 0.0 MiB)",
            "  1 process was read in part: see --pages-per-process",
            "process 9 (x): ended",
            "[group.user-33-1]",
            "    \"71@9\", # red\\nis",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        report.boundaries.clear();
        report.add(BoundaryReport::default());
        let text = report.to_string();
        assert!(
            text.ends_with("\nno group would save enough to be proposed\n"),
            "{text}"
        );
    }

    #[test]
    fn names_are_plain_short_and_never_twice() {
        let mut names = Names::default();
        assert_eq!(names.next("user 33"), "user-33-1");
        assert_eq!(names.next("user 33"), "user-33-2");
        assert_eq!(names.next("/user/33"), "user-33-3");
        let long = names.next(&"/é.x".repeat(100));
        assert!(long.len() < 64 && long.starts_with("x-x-x"), "{long}");
        assert_eq!(names.next("//"), "-1");
        for name in names.0 {
            let origin = crate::setting::Origin::Option("x".to_owned());
            crate::config::group::Group::new(&name, origin).unwrap();
        }
    }
}

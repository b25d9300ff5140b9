//! The status of groups: a line for each, and a sum.

use std::fmt;

use serde::{Deserialize, Serialize};
use uksm_policy::report::counted;
use uksm_redistribution::rates::RateStatus as Rate;
use uksm_redistribution::status::RedistributionStatus as Redistribution;

use super::{Status, mib, net_pages, print, redistribution, table};
use uksm_input::plain::plain;

/// The status of a daemon with groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct GroupsStatus {
    /// Version of the daemon.
    pub(crate) version: String,
    /// The supervisor's process id.
    pub(crate) pid: u32,
    /// Uptime of the supervisor.
    pub(crate) uptime_seconds: f64,
    /// Memory of the supervisor itself.
    pub(crate) supervisor_bytes: u64,
    /// Savings of all groups, net of workers and supervisor, in MiB.
    pub(crate) net_mib: f64,
    /// Merged pages that processes of the whole host wrote since the daemon started, by the
    /// kernel's count of copies; null where KSM merges too.
    pub(crate) written_on_host: Option<u64>,
    /// Whether events report moves between control groups.
    pub(crate) moves_told: bool,
    /// Number of losses of such events; each time all processes were checked.
    pub(crate) moves_lost: u64,
    /// The groups, by name.
    pub(crate) groups: Vec<GroupStatus>,
    /// Redistribution of memory that groups freed; null if there is none.
    pub(crate) redistribution: Option<Redistribution>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct GroupStatus {
    /// Its name.
    pub(crate) name: String,
    /// Its origin: file and line, the rule that formed it, or the command that added it.
    pub(crate) origin: String,
    /// Why its worker does not run, or does not answer; null if it answers.
    pub(crate) fault: Option<String>,
    /// The worker's process id, if it runs.
    pub(crate) pid: Option<u32>,
    /// Number of restarts after the worker died.
    pub(crate) restarts: u64,
    /// The control group that pays, if not the daemon's own.
    pub(crate) book: Option<String>,
    /// Its share of a core, and why; null if that is fixed.
    pub(crate) rate: Option<Rate>,
    /// Its worker's status, if it answers: as `uksm status` of a daemon without groups.
    pub(crate) status: Option<Box<Status>>,
}

impl GroupsStatus {
    /// Adds up savings.
    pub(crate) fn sum_up(mut self) -> GroupsStatus {
        let workers = self.groups.iter().filter_map(|group| group.status.as_ref());
        let pages: i64 = workers.map(|status| status.saved.net_pages).sum();
        self.net_mib = mib(net_pages(pages, self.supervisor_bytes));
        self
    }
}

impl fmt::Display for GroupsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "uksm {}, process {}", self.version, self.pid)?;
        writeln!(f, "{:<10} {:.0} s", "running", self.uptime_seconds)?;
        writeln!(
            f,
            "{:<10} {:.1} MiB net, of all groups",
            "saved", self.net_mib
        )?;
        if let Some(pages) = self.written_on_host {
            let text = print::written(pages, self.uptime_seconds);
            writeln!(f, "{:<10} {text}", "written")?;
        }
        let head = [
            "group",
            "worker",
            "governor",
            "processes",
            "net MiB",
            "merged",
            "written",
            "left",
            "cpu %",
            "worker MiB",
            "from",
        ];
        let rows = self.groups.iter().map(GroupStatus::cells);
        let rows = std::iter::once(head.map(str::to_owned)).chain(rows);
        table::write(f, &rows.collect::<Vec<_>>())?;
        for group in &self.groups {
            if let Some(fault) = &group.fault {
                writeln!(f, "{}: {}", plain(&group.name), plain(fault))?;
            }
            if let Some(rate) = &group.rate {
                writeln!(f, "{}: {}", group.name, rate_line(rate))?;
            }
            if group.restarts > 0 {
                writeln!(
                    f,
                    "{}: its worker was replaced {}",
                    group.name,
                    counted(group.restarts, "time", "times")
                )?;
            }
        }
        let given = self.redistribution.iter().flat_map(redistribution::lines);
        given.into_iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The share of a core that a group may use, and why.
fn rate_line(rate: &Rate) -> String {
    let percent = |share: f64| share * 100.0;
    format!(
        "may use {:.1} % of a core ({:.1} to {:.1}), because of: {}; frees {:.0} pages for a second of it, its tasks wait \
         for processors {:.0} % of the time and for memory {:.0} %",
        percent(rate.share),
        percent(rate.least),
        percent(rate.most),
        rate.reason,
        rate.freed_per_second,
        percent(rate.cpu_waited),
        percent(rate.memory_waited),
    )
}

impl GroupStatus {
    fn cells(&self) -> [String; 11] {
        let none = || "-".to_owned();
        let pid = self.pid.map_or_else(none, |pid| pid.to_string());
        let Some(status) = &self.status else {
            let name = plain(&self.name);
            return [
                name,
                pid,
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                plain(&self.origin),
            ];
        };
        [
            plain(&self.name),
            pid,
            plain(&status.daemon.governor),
            status.targets.processes.to_string(),
            format!("{:.1}", status.saved.net_mib),
            status.merged.pages.now.to_string(),
            status.merged.pages.written.to_string(),
            status.merged.duplicates.left.to_string(),
            format!("{:.2}", status.cpu.policy.recent_share * 100.0),
            format!(
                "{:.1}",
                mib(i64::try_from(status.memory.resident_bytes / 4096).unwrap_or(0))
            ),
            plain(&self.origin),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_taken_over_adds_no_line() {
        let mut status = Status::default();
        status.daemon.governor = "low\nuksm: forged\u{1b}[2J".to_owned();
        let group = GroupStatus {
            status: Some(Box::new(status)),
            ..GroupStatus::default()
        };
        let status = GroupsStatus {
            groups: vec![group],
            ..GroupsStatus::default()
        };
        let text = status.to_string();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_group_is_a_line_and_its_fault_another() {
        let mut status = Status::default();
        status.saved.net_pages = 512;
        status.saved.net_mib = 2.0;
        status.daemon.governor = "low".to_owned();
        let status = GroupsStatus {
            supervisor_bytes: 1 << 20,
            groups: vec![
                GroupStatus {
                    name: "a".to_owned(),
                    origin: "/x:3: a".to_owned(),
                    pid: Some(7),
                    rate: Some(Rate {
                        share: 0.125,
                        least: 0.01,
                        most: 0.95,
                        freed_per_second: 1234.4,
                        ..Rate::default()
                    }),
                    status: Some(Box::new(status)),
                    ..GroupStatus::default()
                },
                GroupStatus {
                    name: "web".to_owned(),
                    origin: "rule r, user 7".to_owned(),
                    fault: Some("/sys/fs/cgroup/x: no such control group yet".to_owned()),
                    restarts: 2,
                    ..GroupStatus::default()
                },
            ],
            ..GroupsStatus::default()
        };
        let text = status.sum_up().to_string();
        for line in [
            "saved      1.0 MiB net, of all groups",
            "group  worker  governor  processes  net MiB  merged  written  left  cpu %  worker MiB            from",
            "a           7       low          0      2.0       0        0     0   0.00         0.0         /x:3: a",
            "web         -         -          -        -       -        -     -      -           -  rule r, user 7",
            "a: may use 12.5 % of a core (1.0 to 95.0), because of: nothing is known yet; frees 1234 pages for a second of it, \
             its tasks wait for processors 0 % of the time and for memory 0 %",
            "web: /sys/fs/cgroup/x: no such control group yet",
            "web: its worker was replaced 2 times",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}

//! A status for people: one line a section, named as in JSON, and a table of the levels.

use std::fmt;

use uksm_policy::report::{Counters, counted};

use super::{Status, mib};
use uksm_input::plain::plain;

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(f)?;
        self.line_of_savings(f)?;
        let lines = [
            ("merged", self.merged.sentence()),
            ("frames", self.frames.sentence()),
            ("cpu", self.cpu.sentence()),
            ("memory", self.memory.sentence()),
            ("targets", self.targets.sentence()),
            ("strength", self.strength.sentence()),
            ("huge", self.huge.sentence()),
            ("promotions", self.promotions.sentence()),
            ("hints", self.hints.sentence()),
        ];
        for (name, sentence) in lines {
            writeln!(f, "{name:<10} {sentence}")?;
            if name == "merged"
                && let Some(pages) = self.merged.written_on_host
            {
                writeln!(
                    f,
                    "{:<10} {}",
                    "",
                    written(pages, self.daemon.uptime_seconds)
                )?;
            }
            if name == "frames"
                && let [_, _, ..] = self.frames.by_node[..]
            {
                let nodes = self.frames.by_node.iter().enumerate();
                let nodes: Vec<String> = nodes
                    .map(|(node, frames)| format!("{frames} on node {node}"))
                    .collect();
                writeln!(f, "{:<10} {}", "", nodes.join(", "))?;
            }
            if name == "targets" {
                let events = if self.targets.told {
                    "new processes are reported by events"
                } else {
                    "new processes are found by listing /proc"
                };
                writeln!(f, "{:<10} {events}", "")?;
                for failed in &self.targets.failed {
                    writeln!(
                        f,
                        "{:<10} process {}: {}",
                        "",
                        failed.pid,
                        plain(&failed.error)
                    )?;
                }
                for locked in &self.targets.locked {
                    let (pid, seconds) = (locked.pid, locked.seconds);
                    writeln!(
                        f,
                        "{:<10} process {pid}: has held its own locks for {seconds:.0} s, so its \
                         memory cannot be examined",
                        ""
                    )?;
                }
            }
            if name == "hints" {
                writeln!(f, "{:<10} source: {}", "", plain(&self.hints.source))?;
            }
        }
        self.table_of_levels(f)?;
        self.equation(f)?;
        write!(f, "{:<10} {}", "", self.kernel.sentence())
    }
}

/// The number of merged pages written on the host since the start, and their rate.
pub(super) fn written(pages: u64, seconds: f64) -> String {
    let counted = counted(pages, "merged page was", "merged pages were");
    let rate = mib(i64::try_from(pages).unwrap_or(i64::MAX)) / seconds.max(1.0);
    format!("{counted} written on the host, {rate:.3} MiB a second on average")
}

impl Status {
    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let daemon = &self.daemon;
        let dry = if daemon.dry_run {
            ", dry run: nothing is merged"
        } else {
            ""
        };
        writeln!(
            f,
            "uksm {}, process {}, governor {}{dry}",
            plain(&daemon.version),
            daemon.pid,
            plain(&daemon.governor)
        )?;
        writeln!(f, "{:<10} {:.0} s", "running", daemon.uptime_seconds)
    }

    fn line_of_savings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |pages: u64| mib(i64::try_from(pages).unwrap_or(i64::MAX));
        let saved = &self.saved;
        writeln!(
            f,
            "{:<10} {:.1} MiB net = {:.1} by frames + {:.1} by zero pages - {:.1} daemon",
            "saved",
            saved.net_mib,
            mib(saved.frames_pages),
            signed(saved.zero_pages),
            signed(saved.daemon_pages)
        )
    }

    /// A column for each counter of a level.
    fn table_of_levels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.levels.iter().map(Counters::cells).collect();
        let Some(first) = rows.first() else {
            return Ok(());
        };
        // Names and values of a column are as wide as the widest of them.
        let widths: Vec<usize> = (0..first.len())
            .map(|column| {
                let values = rows.iter().map(|row| row[column].value.len());
                values.fold(first[column].name.len(), usize::max)
            })
            .collect();
        let write = |f: &mut fmt::Formatter<'_>, texts: Vec<&str>| {
            let columns = texts.iter().zip(&widths);
            let padded: Vec<String> = columns
                .map(|(text, &width)| format!("{text:>width$}"))
                .collect();
            writeln!(f, "{}", padded.join("  "))
        };
        write(f, first.iter().map(|cell| cell.name).collect())?;
        for row in &rows {
            write(f, row.iter().map(|cell| cell.value.as_str()).collect())?;
        }
        Ok(())
    }

    fn equation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.kernel.equation_holds {
            "="
        } else {
            "IS NOT"
        };
        let mut cells = self.kernel.outcomes.cells().into_iter();
        let tried = cells.next().map(|cell| cell.value).unwrap_or_default();
        let parts: Vec<String> = cells
            .map(|cell| format!("{} {}", cell.name, cell.value))
            .collect();
        writeln!(
            f,
            "{:<10} tried {tried} {sign} {}",
            "kernel",
            parts.join(" + ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::report::LevelReport;

    #[test]
    fn a_count_of_one_is_singular() {
        let mut status = Status::default();
        status.targets.processes = 1;
        status.targets.spaces.spaces = 1;
        status.targets.regions.regions = 1;
        status.frames.sharers = 1;
        status.memory.shortages = 1;
        status.hints.policy.waiting_pages = 1;
        status.kernel.counts.changed = 1;
        let text = status.to_string();
        for says in [
            "targets    1 process, 1 address space, 0 sparse mappings, 1 region, 0 too young",
            "1 mapping, ",
            "1 call that had to wait for memory",
            "1 page waits",
            "1 frame whose contents changed",
        ] {
            assert!(text.contains(says), "{says}\n{text}");
        }
    }

    #[test]
    fn frames_by_node_are_shown_if_some_lie_elsewhere_than_on_node_0() {
        let mut status = Status::default();
        status.frames.by_node = vec![7];
        assert!(!status.to_string().contains("on node"));
        status.frames.by_node = vec![7, 0, 2];
        let text = status.to_string();
        assert!(
            text.contains("7 on node 0, 0 on node 1, 2 on node 2"),
            "{text}"
        );
    }

    #[test]
    fn a_worker_that_is_taken_over_adds_no_line_and_steers_no_terminal() {
        let lines = Status::default().to_string().lines().count();
        let forged = "x\nuksm: error: forged\u{1b}[2J";
        let mut status = Status::default();
        status.daemon.version = forged.to_owned();
        status.daemon.governor = forged.to_owned();
        status.hints.source = forged.to_owned();
        let text = status.to_string();
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(
            !text.contains('\u{1b}') && text.contains(r"x\nuksm"),
            "{text}"
        );
    }

    #[test]
    fn a_status_is_a_line_a_section() {
        let mut status = Status {
            levels: vec![
                LevelReport {
                    level: 1,
                    share: 0.002,
                    round_seconds: 0.5,
                    regions: 1234,
                    ..LevelReport::default()
                };
                2
            ],
            ..Status::default()
        };
        status.saved.net_mib = 1.5;
        status.memory.resident_bytes = 3 << 20;
        status.cpu.policy.recent_share = 0.02;
        status.targets.failed.push(crate::status::FailedProcess {
            pid: 9,
            error: "no memory".to_owned(),
        });
        let text = status.to_string();
        for line in [
            "saved      1.5 MiB net = 0.0 by frames + 0.0 by zero pages - 0.0 daemon",
            "merged     0 zero, 0 same process, 0 cross process, 0 now, 0 written again, 0 left",
            "frames     0 held, 0 at most, 0 mappings, 0 with one mapping, 0 unmapped, \
             0 on the machine, 0 at most there",
            "cpu        0.00 % on average, 2.00 % lately, 0.00 % allowed, 0.00 s used, \
             0.00 s for discovery",
            "memory     3.0 MiB resident, 0.0 MiB for indexes, 0 index entries, 0.0 MiB for regions",
            "targets    0 processes, 0 address spaces, 0 sparse mappings, 0 regions, 0 too young",
            "           new processes are found by listing /proc",
            "           process 9: no memory",
            "level   share  round_seconds  regions  pages  rounds  sampled  used_seconds",
            "    1  0.20 %         0.50 s     1234      0       0        0        0.00 s",
            "kernel     tried 0 IS NOT merged 0 + already 0 + zeroed 0 + differed 0 + busy 0 + \
             gone 0 + full 0 + refused 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}

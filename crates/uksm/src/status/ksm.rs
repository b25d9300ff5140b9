//! The answer to `uksm status` of a daemon that drives in-kernel KSM.
//!
//! The kernel counts savings for the whole host, and the merged pages of each process. The savings
//! of uksm alone are unknown where other processes have mergeable memory, so both figures are in
//! the status.

use std::fmt;

use serde::{Deserialize, Serialize};
use uksm_policy::report::Counters as _;

/// What it cannot do, for people.
pub(crate) const LIMITS: [&str; 4] = [
    "global: ksmd also merges all other mergeable memory of this host, and its time counts here",
    "one tree: nothing is isolated; any two processes with mergeable memory may share pages",
    "only processes that cooperate: started by `uksm exec`, or that offer their memory themselves",
    "ranges, not pages: ksmd reads sampled memory again, and each burst scans all offered memory",
];

uksm_policy::counters! {
    /// The daemon.
    pub(crate) struct KsmDaemonStatus {
        /// Version of the daemon.
        version: String,
        /// Its process id.
        pid: u32,
        /// How long it has run.
        uptime_seconds: f64,
        /// Its governor.
        governor: String,
    }

    /// Processes that were named.
    pub(crate) struct KsmProcessStatus {
        /// Those that take advice: started by `uksm exec`.
        advised: u64 = "take advice" or "takes advice",
        /// Processes that have offered their memory themselves: by `prctl`, `madvise`,
        /// `mem-merge=on`.
        offered: u64 = "have offered their memory themselves" or "has offered its memory itself",
        /// Processes that do not cooperate: none of their memory is merged.
        silent: u64 = "do not cooperate" or "does not cooperate" unless "0",
        /// Processes that were not named, but have mergeable memory, which KSM merges too.
        others: u64 = "not named, but mergeable" unless "0",
        /// Processes of the host that hold the lock of their own mappings, so that they cannot be
        /// looked at.
        #[serde(default)]
        locked: u64 = "hold the lock of their own mappings" or "holds the lock of its own mappings" unless "0",
    }

    /// What was sampled, and offered.
    pub(crate) struct KsmOfferStatus {
        /// Blocks of 2 MiB, or parts of them, that are looked at.
        blocks: u64 = "blocks" or "block",
        /// Pages of blocks that are offered.
        offered_pages: u64 = "pages offered" or "page offered",
        /// Pages of blocks that are not.
        other_pages: u64 = "not",
        /// Pages read so far.
        sampled: u64 = "sampled",
        /// Blocks withdrawn because next to nothing of them was merged.
        withdrawn: u64 = "blocks withdrawn" or "block withdrawn" unless "0",
        /// Blocks not offered because a process has as many ranges as it may.
        left_out: u64 = "blocks beyond the bound of ranges" or "block beyond the bound of ranges" unless "0",
        /// Advice that a process did not take.
        refused: u64 = "pieces of advice not taken" or "piece of advice not taken" unless "0",
    }

    /// What is saved, by the kernel's counts.
    pub(crate) struct KsmSavingsStatus {
        /// Pages saved on this host, by whomever they were offered.
        host_pages: u64 = "pages on this host" or "page on this host",
        /// Of those, as many as there were when the daemon started.
        before_pages: u64 = "before this daemon" unless "0",
        /// Pages of named processes that map merged ones; the merged ones themselves included.
        merged_pages: u64 = "merged in named processes",
    }

    /// ksmd.
    pub(crate) struct Ksmd {
        /// Series of scans that have ended.
        series: u64 = "series",
        /// Full scans since the start.
        full_scans: u64 = "full scans" or "full scan",
        /// Whether it runs now.
        is_running: bool,
        /// Whether a series is under way.
        is_scanning: bool,
    }

    /// Processor time.
    pub(crate) struct KsmCpuStatus {
        /// Share of a core allowed to both.
        budget_share: f64 = "allowed",
        /// Used by ksmd since the start.
        ksmd_seconds: f64 = "of ksmd",
        /// Used by the daemon.
        own_seconds: f64 = "of the daemon",
    }
}

/// The status of a daemon that drives in-kernel KSM.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct KsmStatus {
    /// `ksm`: distinguishes it from a status of a daemon with the module.
    pub(crate) backend: String,
    #[serde(flatten)]
    pub(crate) daemon: KsmDaemonStatus,
    /// Features that it lacks.
    pub(crate) limits: Vec<String>,
    pub(crate) processes: KsmProcessStatus,
    pub(crate) offered: KsmOfferStatus,
    pub(crate) saved: KsmSavingsStatus,
    pub(crate) ksmd: Ksmd,
    pub(crate) cpu: KsmCpuStatus,
}

impl fmt::Display for KsmStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let daemon = &self.daemon;
        writeln!(
            f,
            "uksm {}, process {}, governor {}, in-kernel KSM",
            daemon.version, daemon.pid, daemon.governor
        )?;
        writeln!(f, "{:<10} {:.0} s", "running", daemon.uptime_seconds)?;
        let runs = match (self.ksmd.is_running, self.ksmd.is_scanning) {
            (true, _) => "runs",
            (false, true) => "rests within a series",
            (false, false) => "is stopped",
        };
        let lines = [
            ("saved", self.saved.sentence()),
            ("processes", self.processes.sentence()),
            ("offered", self.offered.sentence()),
            ("ksmd", format!("{runs}, {}", self.ksmd.sentence())),
            ("cpu", self.cpu.sentence()),
        ];
        for (name, sentence) in lines {
            writeln!(f, "{name:<10} {sentence}")?;
        }
        for (number, limit) in self.limits.iter().enumerate() {
            let name = if number == 0 { "limits" } else { "" };
            writeln!(f, "{name:<10} {limit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_the_back_end_and_its_limits() {
        let mut status = KsmStatus {
            backend: "ksm".to_owned(),
            limits: LIMITS.map(str::to_owned).to_vec(),
            ..KsmStatus::default()
        };
        status.saved.host_pages = 512;
        status.ksmd.is_scanning = true;
        status.cpu.budget_share = 0.95;
        let text = status.to_string();
        for line in [
            "saved      512 pages on this host, 0 merged in named processes",
            "processes  0 take advice, 0 have offered their memory themselves",
            "ksmd       rests within a series, 0 series, 0 full scans",
            "cpu        95.00 % allowed, 0.00 s of ksmd, 0.00 s of the daemon",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for limit in [
            "global: ",
            "one tree: ",
            "only processes that cooperate: ",
            "ranges, not pages: ",
        ] {
            assert!(text.contains(limit), "{limit}\n{text}");
        }
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["backend"], "ksm");
        assert_eq!(serde_json::from_value::<KsmStatus>(json).unwrap(), status);
    }
}

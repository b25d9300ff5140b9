//! One record of the ledger: a group, a time range, and the amounts in it.
//!
//! # Problem
//! Sums over any span must be right although daemons and workers end and start in between, and a
//! reader of the ledger must understand it without the program that wrote it.
//!
//! # Approach
//! A record has differences and no totals: [`Amounts`] of its time range, which add up, and beside
//! them the [`Levels`] at its end, which do not. It is one JSON object on one line. Names end with
//! their units. Fields may be added; a change of meaning is another [`VERSION`].
//!
//! # Units
//! Seconds, bytes, pages of 4 KiB, byte-seconds.

use std::time::Duration;

use jiff::Timestamp;
use uksm_linux::module::Info;

use crate::status::Status;
pub(crate) use crate::status::ledger::Amounts;

/// Version of the form of records and bills.
pub(crate) const VERSION: u32 = 1;

uksm_policy::counters! {
    /// A record of the ledger, which is a line of a file DAY.jsonl.
    pub(crate) struct Record {
        /// Version of this form: 1.
        version: u32,
        /// The end of the covered time, in UTC (RFC 3339).
        time: String,
        /// The same in seconds since 1970.
        unix_seconds: f64,
        /// The group; `all` of a daemon without groups.
        group: String,
        /// The worker's process id, or the daemon's; 0 if none has run.
        worker: u32,
        /// Merged pages that processes of the whole host wrote since the record before, in any
        /// group; null if in-kernel KSM has merged too, or the kernel does not count
        /// them.
        #[serde(default)]
        host_written_pages: Option<u64>,
    }
    with {
        /// What was added.
        amounts: Amounts,
        /// How things stood at its end.
        levels: Levels,
    }

    /// What goes up and down.
    #[derive(Copy, Eq)]
    pub(crate) struct Levels {
        /// Bytes saved at the end.
        saved_bytes: i64,
        /// Bytes of the worker's memory at the end; 0 in records of earlier versions.
        #[serde(default)]
        worker_bytes: u64,
        /// Bytes of the worker's indexes at the end.
        index_bytes: u64,
        /// Bytes of frames at the end.
        frame_bytes: u64,
        /// Freed bytes that members hold at the end.
        #[serde(default)]
        held_bytes: u64,
    }
}

impl Record {
    /// The time that it covers.
    ///
    /// # Errors
    /// The first fault of the record, in one line.
    pub(super) fn time_range(&self) -> Result<TimeRange, String> {
        if self.version != VERSION {
            let version = self.version;
            return Err(format!("version {version}: this program reads {VERSION}"));
        }
        let (time, seconds) = (&self.time, self.amounts.seconds);
        let to = time
            .parse::<Timestamp>()
            .map_err(|_| format!("time '{time}': must be RFC 3339"))?;
        let covered = Duration::try_from_secs_f64(seconds).ok();
        let from = covered.and_then(|covered| to.checked_sub(covered).ok());
        match from {
            Some(from) => Ok(TimeRange { from, to }),
            None => Err(format!("seconds {seconds}: must be 0 or more")),
        }
    }
}

/// A range of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeRange {
    /// Its beginning.
    pub(crate) from: Timestamp,
    /// Its end.
    pub(crate) to: Timestamp,
}

impl TimeRange {
    /// Its length in nanoseconds; 0 if it ends before it begins.
    pub(super) fn nanos(&self) -> u64 {
        let length = self.to.as_nanosecond() - self.from.as_nanosecond();
        u64::try_from(length.max(0)).unwrap_or(u64::MAX)
    }
}

impl Levels {
    /// Bytes saved net of the worker's memory.
    pub(crate) fn net_bytes(&self) -> i64 {
        self.saved_bytes.saturating_sub_unsigned(self.worker_bytes)
    }

    /// The levels in a status.
    fn of(status: &Status) -> Levels {
        let page = uksm_policy::command::PAGE_SIZE;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Levels {
            saved_bytes: status.saved.saved_pages().saturating_mul(signed(page)),
            worker_bytes: status.memory.resident_bytes,
            index_bytes: status.memory.index.index_bytes,
            frame_bytes: status.frames.held * page,
            held_bytes: 0,
        }
    }
}

/// Counts of a domain, which only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pages merged with a frame or with the zero page.
    pub(super) merged: u64,
    /// Pages given their own copy by BREAK.
    pub(super) broken: u64,
    /// Frames freed.
    pub(super) freed: u64,
}

impl Counts {
    /// The module's counts.
    pub(crate) fn of(info: &Info) -> Counts {
        Counts {
            merged: info.merged + info.zeroed,
            broken: info.broken,
            freed: info.frames_freed,
        }
    }

    /// The counts in a status.
    pub(super) fn of_status(status: &Status) -> Counts {
        let kernel = &status.kernel;
        Counts {
            merged: kernel.outcomes.merged + kernel.outcomes.zeroed,
            broken: kernel.counts.broken,
            freed: kernel.counts.frames_freed,
        }
    }
}

/// Pages that a worker merged because of a hint, by how soon after it. They only grow while it
/// lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HintMerges {
    /// Within 0.1 s.
    pub(super) within_100_ms: u64,
    /// Within a second, but not within 0.1 s.
    pub(super) within_1_s: u64,
    /// Within 10 s, but not within a second.
    pub(super) within_10_s: u64,
    /// Later.
    pub(super) after_10_s: u64,
}

impl HintMerges {
    /// The counts in a status.
    fn of(status: &Status) -> HintMerges {
        let hints = &status.hints.policy;
        HintMerges {
            within_100_ms: hints.merged_within_100_ms,
            within_1_s: hints.merged_within_1_s,
            within_10_s: hints.merged_within_10_s,
            after_10_s: hints.merged_after_10_s,
        }
    }
}

/// Figures of a group from its worker's status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerFigures {
    /// Levels.
    pub(super) levels: Levels,
    /// Pages merged because of hints.
    pub(super) hinted: HintMerges,
    /// Merged pages that processes wrote or unmapped, since the worker started.
    pub(super) written: u64,
}

impl WorkerFigures {
    /// The figures in this status.
    pub(crate) fn of(status: &Status) -> WorkerFigures {
        WorkerFigures {
            levels: Levels::of(status),
            hinted: HintMerges::of(status),
            written: status.merged.pages.written,
        }
    }
}

/// A time in the form of records and bills, with milliseconds.
pub(crate) fn written(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// The same in seconds since 1970.
pub(super) fn unix_seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{FrameStatus, KernelStatus, SavingsStatus};

    #[test]
    fn status_and_module_have_the_same_counts_and_zero_pages_are_saved() {
        let info = Info {
            merged: 5,
            zeroed: 2,
            broken: 3,
            frames_freed: 1,
            ..Info::default()
        };
        let frames = FrameStatus {
            held: 10,
            sharers: 30,
            ..FrameStatus::default()
        };
        let mut status = Status {
            kernel: KernelStatus::new(&info),
            saved: SavingsStatus::new(&frames, 2, 1 << 30),
            frames,
            ..Status::default()
        };
        status.memory.index.index_bytes = 77;
        status.memory.resident_bytes = 3 << 12;
        assert_eq!(Counts::of_status(&status), Counts::of(&info));
        assert_eq!(Counts::of(&info).merged, 7);
        let levels = Levels {
            saved_bytes: 22 * 4096,
            worker_bytes: 3 * 4096,
            index_bytes: 77,
            frame_bytes: 10 * 4096,
            held_bytes: 0,
        };
        assert_eq!(Levels::of(&status), levels);
        assert_eq!(levels.net_bytes(), 19 * 4096);
    }

    #[test]
    fn both_forms_of_a_time_are_the_same() {
        let time = Timestamp::new(1_767_225_600, 250_999_999).unwrap();
        assert_eq!(written(time), "2026-01-01T00:00:00.250Z");
        assert_eq!(unix_seconds(time), 1_767_225_600.25);
    }
}

//! One record of the ledger: a group, a stretch of time, and what was added in it.
//!
//! # Problem
//! Sums over any span must be right although daemons and workers end and start in between, and whoever reads the ledger must
//! understand it without the program that wrote it.
//!
//! # Approach
//! A record has differences and no totals: [`Amounts`] of its stretch, which add up, and beside them the [`Levels`] at its end,
//! which do not. It is one JSON object on one line. Names end with their units. Fields may be added; a change of meaning is
//! another [`VERSION`].
//!
//! # Units
//! Seconds, bytes, pages of 4 KiB, byte-seconds.

use std::time::Duration;

use jiff::Timestamp;
use uksm_linux::module::Info;

use crate::status::Status;

/// Version of the form of records and bills.
pub(crate) const VERSION: u32 = 1;

uksm_policy::counters! {
    /// A record of the ledger, which is a line of a file DAY.jsonl.
    pub(crate) struct Record {
        /// Version of this form: 1.
        version: u32,
        /// The end of what it covers, in UTC (RFC 3339).
        time: String,
        /// The same in seconds since 1970.
        unix_seconds: f64,
        /// The group; `all` of a daemon without groups.
        group: String,
        /// The worker's process id, or the daemon's; 0 if none has run.
        worker: u32,
        /// Merged pages that processes of the whole host wrote since the record before, of
        /// whichever group; null if in-kernel KSM has merged too, or the kernel does not count them.
        #[serde(default)]
        host_written_pages: Option<u64>,
    }
    with {
        /// What was added.
        amounts: Amounts,
        /// How things stood at its end.
        levels: Levels,
    }

    /// What adds up over time.
    #[derive(Copy)]
    pub(crate) struct Amounts {
        /// How long that was.
        seconds: f64,
        /// CPU time of the worker with all its threads, user and system, as `cpu.stat` of its control group counts it.
        cpu_seconds: f64,
        /// Pages merged, with frames or with the zero page.
        merged_pages: u64,
        /// Pages that the daemon gave their own copies again; those that processes wrote are not known.
        broken_pages: u64,
        /// Frames freed.
        freed_frames: u64,
        /// Bytes saved, times seconds: mappings of frames and of the zero page that merging made, less frames.
        saved_byte_seconds: f64,
        /// Bytes of the worker's indexes, times seconds.
        index_byte_seconds: f64,
        /// Bytes of frames, times seconds.
        frame_byte_seconds: f64,
        /// Workers that had died and were replaced.
        restarts: u64,
        /// Bytes that members held of what was freed, times seconds.
        #[serde(default)]
        held_byte_seconds: f64,
        /// Bytes by which members were made larger.
        #[serde(default)]
        given_bytes: u64,
        /// Bytes by which members were made smaller again.
        #[serde(default)]
        taken_back_bytes: u64,
        /// Pages merged within 0.1 s of the I/O that a hint told of, which read a file into them or wrote them to one.
        #[serde(default)]
        hint_merged_within_100_ms: u64,
        /// The same within a second, but not within 0.1 s.
        #[serde(default)]
        hint_merged_within_1_s: u64,
        /// The same within 10 s, but not within a second.
        #[serde(default)]
        hint_merged_within_10_s: u64,
        /// The same later.
        #[serde(default)]
        hint_merged_after_10_s: u64,
    }

    /// What goes up and down.
    #[derive(Copy, Eq)]
    pub(crate) struct Levels {
        /// Bytes saved at the end.
        saved_bytes: i64,
        /// Bytes of the worker's indexes at the end.
        index_bytes: u64,
        /// Bytes of frames at the end.
        frame_bytes: u64,
        /// Bytes that members hold of what was freed, at the end.
        #[serde(default)]
        held_bytes: u64,
    }
}

impl Record {
    /// The time that it covers.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub(super) fn stretch(&self) -> Result<Stretch, String> {
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
            Some(from) => Ok(Stretch { from, to }),
            None => Err(format!("seconds {seconds}: must be 0 or more")),
        }
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Its beginning.
    pub(crate) from: Timestamp,
    /// Its end.
    pub(crate) to: Timestamp,
}

impl Stretch {
    /// How long it is, in nanoseconds; 0 if it ends before it begins.
    pub(super) fn nanos(&self) -> u64 {
        let length = self.to.as_nanosecond() - self.from.as_nanosecond();
        u64::try_from(length.max(0)).unwrap_or(u64::MAX)
    }
}

impl Amounts {
    /// Adds these up.
    pub(crate) fn add(&mut self, more: &Amounts) {
        // A ledger that says what cannot be has no sum, and ends nobody.
        let sum = |of: &mut u64, more: u64| *of = of.saturating_add(more);
        self.seconds += more.seconds;
        self.cpu_seconds += more.cpu_seconds;
        sum(&mut self.merged_pages, more.merged_pages);
        sum(&mut self.broken_pages, more.broken_pages);
        sum(&mut self.freed_frames, more.freed_frames);
        self.saved_byte_seconds += more.saved_byte_seconds;
        self.index_byte_seconds += more.index_byte_seconds;
        self.frame_byte_seconds += more.frame_byte_seconds;
        sum(&mut self.restarts, more.restarts);
        self.held_byte_seconds += more.held_byte_seconds;
        sum(&mut self.given_bytes, more.given_bytes);
        sum(&mut self.taken_back_bytes, more.taken_back_bytes);
        sum(
            &mut self.hint_merged_within_100_ms,
            more.hint_merged_within_100_ms,
        );
        sum(
            &mut self.hint_merged_within_1_s,
            more.hint_merged_within_1_s,
        );
        sum(
            &mut self.hint_merged_within_10_s,
            more.hint_merged_within_10_s,
        );
        sum(
            &mut self.hint_merged_after_10_s,
            more.hint_merged_after_10_s,
        );
    }

    /// `part` of `whole` of it. Whole numbers are rounded down.
    pub(super) fn share(&self, part: u64, whole: u64) -> Amounts {
        let ratio = part as f64 / whole.max(1) as f64;
        let of = |n: u64| {
            let share = u128::from(n) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(share).unwrap_or(n)
        };
        Amounts {
            seconds: self.seconds * ratio,
            cpu_seconds: self.cpu_seconds * ratio,
            merged_pages: of(self.merged_pages),
            broken_pages: of(self.broken_pages),
            freed_frames: of(self.freed_frames),
            saved_byte_seconds: self.saved_byte_seconds * ratio,
            index_byte_seconds: self.index_byte_seconds * ratio,
            frame_byte_seconds: self.frame_byte_seconds * ratio,
            restarts: of(self.restarts),
            held_byte_seconds: self.held_byte_seconds * ratio,
            given_bytes: of(self.given_bytes),
            taken_back_bytes: of(self.taken_back_bytes),
            hint_merged_within_100_ms: of(self.hint_merged_within_100_ms),
            hint_merged_within_1_s: of(self.hint_merged_within_1_s),
            hint_merged_within_10_s: of(self.hint_merged_within_10_s),
            hint_merged_after_10_s: of(self.hint_merged_after_10_s),
        }
    }
}

impl Levels {
    /// Those that a status tells.
    fn of(status: &Status) -> Levels {
        let page = uksm_policy::command::PAGE_SIZE;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let saved = &status.saved;
        Levels {
            saved_bytes: (saved.frames_pages + signed(saved.zero_pages)) * signed(page),
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
    /// Those of the module.
    pub(crate) fn of(info: &Info) -> Counts {
        Counts {
            merged: info.merged + info.zeroed,
            broken: info.broken,
            freed: info.frames_freed,
        }
    }

    /// Those that a status tells.
    pub(super) fn of_status(status: &Status) -> Counts {
        let kernel = &status.kernel;
        Counts {
            merged: kernel.outcomes.merged + kernel.outcomes.zeroed,
            broken: kernel.counts.broken,
            freed: kernel.counts.frames_freed,
        }
    }
}

/// Pages that a worker merged because of a hint, by how soon after it. They only grow while it lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Hinted {
    /// Within 0.1 s.
    pub(super) within_100_ms: u64,
    /// Within a second, but not within 0.1 s.
    pub(super) within_1_s: u64,
    /// Within 10 s, but not within a second.
    pub(super) within_10_s: u64,
    /// Later.
    pub(super) after_10_s: u64,
}

impl Hinted {
    /// Those that a status tells.
    fn of(status: &Status) -> Hinted {
        let hints = &status.hints.policy;
        Hinted {
            within_100_ms: hints.merged_within_100_ms,
            within_1_s: hints.merged_within_1_s,
            within_10_s: hints.merged_within_10_s,
            after_10_s: hints.merged_after_10_s,
        }
    }
}

/// What a worker's status tells of its group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Levels.
    pub(super) levels: Levels,
    /// What it merged because of hints.
    pub(super) hinted: Hinted,
}

impl Told {
    /// What this one tells.
    pub(crate) fn of(status: &Status) -> Told {
        Told {
            levels: Levels::of(status),
            hinted: Hinted::of(status),
        }
    }
}

/// A time as records and bills have it, with milliseconds.
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
    use crate::status::{Frames, Kernel, Saved};

    #[test]
    fn a_share_is_in_proportion_and_two_shares_are_the_whole_or_a_page_less() {
        let whole = Amounts {
            seconds: 60.0,
            merged_pages: 7,
            saved_byte_seconds: 90.0,
            ..Amounts::default()
        };
        let third = whole.share(1, 3);
        assert_eq!(
            (third.seconds, third.merged_pages, third.saved_byte_seconds),
            (20.0, 2, 30.0)
        );
        let mut sum = third;
        sum.add(&whole.share(2, 3));
        assert_eq!((sum.seconds, sum.merged_pages), (60.0, 6));
        assert_eq!(whole.share(3, 3), whole);
    }

    #[test]
    fn a_status_and_the_module_tell_the_same_counts_and_zero_pages_are_saved() {
        let info = Info {
            merged: 5,
            zeroed: 2,
            broken: 3,
            frames_freed: 1,
            ..Info::default()
        };
        let frames = Frames {
            held: 10,
            sharers: 30,
            ..Frames::default()
        };
        let mut status = Status {
            kernel: Kernel::new(&info),
            saved: Saved::new(&frames, 2, 1 << 30),
            frames,
            ..Status::default()
        };
        status.memory.index.index_bytes = 77;
        assert_eq!(Counts::of_status(&status), Counts::of(&info));
        assert_eq!(Counts::of(&info).merged, 7);
        let levels = Levels {
            saved_bytes: 22 * 4096,
            index_bytes: 77,
            frame_bytes: 10 * 4096,
            held_bytes: 0,
        };
        assert_eq!(Levels::of(&status), levels);
    }

    #[test]
    fn both_forms_of_a_time_are_the_same() {
        let time = Timestamp::new(1_767_225_600, 250_999_999).unwrap();
        assert_eq!(written(time), "2026-01-01T00:00:00.250Z");
        assert_eq!(unix_seconds(time), 1_767_225_600.25);
    }
}

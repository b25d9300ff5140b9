//! Costs and savings of a group over time: in a status, and in records of the ledger.
//!
//! # Units
//! Seconds, bytes, pages of 4 KiB, byte-seconds.

uksm_policy::counters! {
    /// Amounts added up over time.
    #[derive(Copy)]
    pub(crate) struct Amounts {
        /// Length of that time.
        seconds: f64,
        /// CPU time of the worker with all its threads, user and system, as `cpu.stat` of its
        /// control group counts it.
        cpu_seconds: f64,
        /// Pages merged, with frames or with the zero page.
        merged_pages: u64,
        /// Pages that the daemon gave their own copies, those given back included.
        broken_pages: u64,
        /// Pages that were merged, and that their processes wrote or unmapped since: a lower bound.
        #[serde(default)]
        written_pages: u64,
        /// Frames freed.
        freed_frames: u64,
        /// Bytes saved, times seconds: mappings of frames and of the zero page that merging made,
        /// less frames.
        saved_byte_seconds: f64,
        /// Bytes of the worker's memory, times seconds; 0 in records of earlier versions.
        #[serde(default)]
        worker_byte_seconds: f64,
        /// Bytes of the worker's indexes, times seconds.
        index_byte_seconds: f64,
        /// Bytes of frames, times seconds.
        frame_byte_seconds: f64,
        /// Workers that had died and were replaced.
        restarts: u64,
        /// Freed bytes that members held, times seconds.
        #[serde(default)]
        held_byte_seconds: f64,
        /// Bytes by which members were made larger.
        #[serde(default)]
        given_bytes: u64,
        /// Bytes by which members were made smaller again.
        #[serde(default)]
        taken_back_bytes: u64,
        /// Pages merged within 0.1 s of the I/O of a hint, which read a file into them or
        /// wrote them to one.
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
}

impl Amounts {
    /// Bytes saved net of the worker's memory, times seconds.
    pub(crate) fn net_byte_seconds(&self) -> f64 {
        self.saved_byte_seconds - self.worker_byte_seconds
    }

    /// Adds these amounts.
    pub(crate) fn add(&mut self, more: &Amounts) {
        // An impossible ledger has a wrong sum, but does not end the daemon.
        let sum = |of: &mut u64, more: u64| *of = of.saturating_add(more);
        self.seconds += more.seconds;
        self.cpu_seconds += more.cpu_seconds;
        sum(&mut self.merged_pages, more.merged_pages);
        sum(&mut self.broken_pages, more.broken_pages);
        sum(&mut self.written_pages, more.written_pages);
        sum(&mut self.freed_frames, more.freed_frames);
        self.saved_byte_seconds += more.saved_byte_seconds;
        self.worker_byte_seconds += more.worker_byte_seconds;
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
    pub(crate) fn share(&self, part: u64, whole: u64) -> Amounts {
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
            written_pages: of(self.written_pages),
            freed_frames: of(self.freed_frames),
            saved_byte_seconds: self.saved_byte_seconds * ratio,
            worker_byte_seconds: self.worker_byte_seconds * ratio,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_proportion_and_two_shares_are_the_whole_or_a_page_less() {
        let whole = Amounts {
            seconds: 60.0,
            merged_pages: 7,
            written_pages: 6,
            saved_byte_seconds: 90.0,
            worker_byte_seconds: 15.0,
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
        assert_eq!((sum.written_pages, sum.net_byte_seconds()), (6, 75.0));
        assert_eq!(whole.share(3, 3), whole);
    }
}

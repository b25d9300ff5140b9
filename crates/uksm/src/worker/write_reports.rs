//! Reports of written pages to a supervisor, which its dynamic rates need.
//!
//! A report is sent when the number has grown, at most once an [`INTERVAL_NS`]: an idle worker
//! sends none.

use std::fmt;

use uksm_policy::command::Nanos;

/// Minimum time between two reports.
const INTERVAL_NS: Nanos = 1_000_000_000;

/// Sends the number of written pages.
pub(crate) struct WriteReports {
    send: Box<dyn FnMut(u64)>,
    sent: u64,
    due: Nanos,
}

impl WriteReports {
    /// Reports that `send` sends.
    pub(crate) fn by(send: impl FnMut(u64) + 'static) -> WriteReports {
        WriteReports {
            send: Box::new(send),
            sent: 0,
            due: 0,
        }
    }

    /// Sends the number of pages `written` at `now`, if that is due.
    pub(super) fn report(&mut self, written: u64, now: Nanos) {
        if written > self.sent && now >= self.due {
            self.sent = written;
            self.due = now.saturating_add(INTERVAL_NS);
            (self.send)(written);
        }
    }
}

impl fmt::Debug for WriteReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteReports")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn growth_is_reported_once_a_second() {
        let (sender, sent) = mpsc::channel();
        let mut reports = WriteReports::by(move |written| sender.send(written).unwrap());
        for (written, tenths) in [(0, 0), (3, 1), (5, 2), (6, 10), (6, 11), (6, 30), (7, 31)] {
            reports.report(written, tenths * INTERVAL_NS / 10);
        }
        assert_eq!(sent.try_iter().collect::<Vec<u64>>(), [3, 6, 7]);
    }
}

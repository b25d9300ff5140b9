//! The pause before a worker that died is started again.
//!
//! # Approach
//! The pause doubles with each end, from [`MIN_PAUSE`] to [`MAX_PAUSE`], so that a worker that dies
//! at once does not use the processor for starts. A worker that ran for [`STEADY_AFTER`] sets it
//! back.

use std::time::Duration;

const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A worker that ran for longer is restarted after the shortest pause if it dies.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// The next pause.
#[derive(Debug)]
pub(super) struct RestartPause(Duration);

impl Default for RestartPause {
    fn default() -> RestartPause {
        RestartPause(MIN_PAUSE)
    }
}

impl RestartPause {
    /// The pause before the next start; the one after it is twice as long.
    pub(super) fn take(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(MAX_PAUSE);
        pause
    }

    /// A worker ended after running for this time.
    pub(super) fn note_run(&mut self, time: Duration) {
        if time > STEADY_AFTER {
            *self = RestartPause::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_a_long_run_sets_them_back() {
        let mut pause = RestartPause::default();
        let taken: Vec<Duration> = (0..12).map(|_| pause.take()).collect();
        assert_eq!(taken[..3], [1, 2, 4].map(|part| part * MIN_PAUSE));
        assert_eq!(taken[11], MAX_PAUSE);
        pause.note_run(STEADY_AFTER);
        assert_eq!(pause.take(), MAX_PAUSE);
        pause.note_run(STEADY_AFTER + MIN_PAUSE);
        assert_eq!(pause.take(), MIN_PAUSE);
    }
}

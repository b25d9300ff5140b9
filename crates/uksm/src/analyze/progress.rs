//! The progress of reading, on a terminal.
//!
//! # Approach
//! One line of standard error that is overwritten a few times a second, and erased with blanks at
//! the end: any terminal can do that. If standard error is no terminal, nothing is printed. The
//! time left is extrapolated from the beginning of the step.
//!
//! # Units
//! Nanoseconds.

use std::io::{IsTerminal as _, Write as _};

use uksm_linux::clock;
use uksm_policy::command::Nanos;

/// Time between two updates of the line.
const UPDATE_INTERVAL_NS: Nanos = 200_000_000;

/// Prints the progress.
#[derive(Debug)]
pub(super) struct ProgressLine {
    is_shown: bool,
    step: &'static str,
    began: Nanos,
    shown_at: Nanos,
    /// Columns of the current line.
    width: usize,
}

impl ProgressLine {
    /// For standard error, if that is a terminal.
    pub(super) fn new() -> ProgressLine {
        ProgressLine {
            is_shown: std::io::stderr().is_terminal(),
            step: "",
            began: 0,
            shown_at: 0,
            width: 0,
        }
    }

    /// Prints that this part of a step is done.
    pub(super) fn show(&mut self, step: &'static str, part: f64) {
        if !self.is_shown {
            return;
        }
        let now = clock::now();
        if step != self.step {
            (self.step, self.began) = (step, now);
        }
        if now - self.shown_at < UPDATE_INTERVAL_NS {
            return;
        }
        self.shown_at = now;
        let text = line(step, part, now - self.began);
        let _closed = write!(std::io::stderr(), "\r{text:<0$}", self.width);
        self.width = text.chars().count();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.width > 0 {
            let _closed = write!(std::io::stderr(), "\r{:1$}\r", "", self.width);
        }
    }
}

fn line(step: &str, part: f64, passed: Nanos) -> String {
    // A process can have grown since the survey.
    let part = part.min(1.0);
    let percent = part * 100.0;
    // With next to no progress, no time can be estimated.
    if part < 0.01 {
        return format!("uksm: {step}: {percent:.0} %");
    }
    let left = passed as f64 / 1e9 * (1.0 - part) / part;
    format!("uksm: {step}: {percent:.0} %, {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_as_what_was_done() {
        assert_eq!(
            line("reading", 0.25, 10_000_000_000),
            "uksm: reading: 25 %, 30 s left"
        );
        assert_eq!(line("reading", 0.0, 5), "uksm: reading: 0 %");
    }
}

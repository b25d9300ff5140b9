//! Shows the guest's events to people: bars that move on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::Event;

/// Cells of a bar.
const WIDTH: usize = 32;
/// Without a terminal, at most one line of progress in this time.
const QUIET: Duration = Duration::from_secs(2);

/// A display on standard error.
pub(crate) struct Display {
    terminal: bool,
    open_line: bool,
    last: Option<Instant>,
}

impl Display {
    /// A display for the target of standard error.
    pub(crate) fn new() -> Display {
        Display {
            terminal: std::io::stderr().is_terminal(),
            open_line: false,
            last: None,
        }
    }

    /// Shows one line of the guest's output: an event, or any other line unchanged.
    pub(crate) fn show(&mut self, line: &str) {
        match Event::read(line) {
            None => self.full_line(line.trim_end()),
            Some(Event::Stage { text }) => self.full_line(&format!("-- {text}")),
            Some(Event::Proved {
                variant,
                pages,
                servers,
            }) => self.full_line(&format!(
                "{variant}: no byte changed: {pages} pages checked, {servers} redis-servers have the digests that they had before"
            )),
            Some(Event::Progress {
                variant,
                look,
                mergeable_mib,
                limit_seconds,
            }) => {
                let share = (look.saved_mib / mergeable_mib.max(1.0)).clamp(0.0, 1.0);
                let text = format!(
                    "{variant:<14} {} {:>6.1} of {:.0} MiB saved  {:>5.2} s CPU  {:>5.1} s (at most {:.0})",
                    bar(share),
                    look.saved_mib,
                    mergeable_mib,
                    look.cpu_seconds,
                    look.seconds,
                    limit_seconds
                );
                self.progress(&text);
            }
        }
    }

    /// Ends a line that is still being rewritten.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.open_line) {
            eprintln!();
        }
        self.last = None;
    }

    fn full_line(&mut self, text: &str) {
        self.finish();
        eprintln!("{text}");
    }

    fn progress(&mut self, text: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
            self.open_line = true;
        } else if self.last.is_none_or(|last| last.elapsed() >= QUIET) {
            eprintln!("{text}");
            self.last = Some(Instant::now());
        }
    }
}

/// A bar, this part full.
fn bar(share: f64) -> String {
    let cells = (0..WIDTH).map(|cell| {
        let full = (cell as f64 + 0.5) / WIDTH as f64 <= share;
        if full { '#' } else { '.' }
    });
    format!("[{}]", cells.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_its_share() {
        let full = |share| bar(share).matches('#').count();
        assert_eq!(full(0.0), 0);
        assert_eq!(full(0.5), WIDTH / 2);
        assert_eq!(full(1.0), WIDTH);
    }
}

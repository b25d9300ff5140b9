//! The protocol of a child and its parent: a line each way, on standard input and output.

use std::io::{BufRead, Write};
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result};

/// Answers its parent.
pub(crate) fn answer(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").context("workload: cannot answer")?;
    out.flush().context("workload: cannot answer")
}

/// Commands as they arrive; disconnected when the input ends.
pub(crate) fn commands() -> Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

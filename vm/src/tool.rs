//! Running the machine's own tools.
//!
//! Approach: every command runs in the C locale without a terminal to ask on;
//! if it fails, the error names the command and shows the last lines of its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Number of last lines of a failed tool's output in the error.
const MAX_ERROR_LINES: usize = 25;

/// A command in the C locale, without standard input.
#[must_use]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    command
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

/// Runs a command and gives its standard output.
///
/// # Errors
/// It is not installed, or it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| {
        format!(
            "{}: cannot be started; run scripts/setup",
            command.get_program().to_string_lossy()
        )
    })?;
    if !output.status.success() {
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        bail!(
            "{shown}: {}\n{}",
            output.status,
            last_lines(&text, MAX_ERROR_LINES)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a user would type it.
#[must_use]
pub fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The last lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Root of the source tree this program was built from.
#[must_use]
pub fn tree() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir
        .ancestors()
        .nth(1)
        .unwrap_or(crate_dir)
        .to_path_buf()
}

//! Output: messages go to standard error, answers of commands to standard output.
//!
//! Either may be closed or full, as after its reader has ended. The macros of the standard library
//! panic then, which would end a daemon; the functions here do not.
//!
//! Under systemd each line begins with its priority in the form of journald, without a time, which
//! journald adds; otherwise it begins with its level. A worker writes to its supervisor, in the
//! form of journald. A message is one line, even if names in it have line ends ([`plain`]).

use std::fmt;
use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use uksm_input::plain::plain;

use crate::own_program::JOURNAL_STREAM;

struct Line {
    /// A line begins with its priority.
    has_priority: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.has_priority {
            // sd-daemon(3)
            let priority = match level {
                Level::ERROR => 3,
                Level::WARN => 4,
                Level::INFO => 6,
                _ => 7,
            };
            write!(writer, "<{priority}>")?;
        } else {
            write!(writer, "uksm: {}: ", level.as_str().to_lowercase())?;
        }
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        writeln!(writer, "{}", plain(&message))
    }
}

/// Logs messages of `level` and more severe ones to standard error from now on.
pub(crate) fn start(level: Level) {
    begin(level, std::env::var_os(JOURNAL_STREAM).is_some());
}

/// The same in a worker, whose supervisor reads priorities, and adds the name of the group.
pub(crate) fn start_worker(level: Level) {
    begin(level, true);
}

fn begin(level: Level, has_priority: bool) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // Otherwise the library reports a closed or full standard error by a macro that panics.
        .log_internal_errors(false)
        .event_format(Line { has_priority })
        .init();
}

/// Writes a line for people to standard error.
pub(crate) fn print_line(line: &str) {
    let line = format!("uksm: {}\n", plain(&line.replace('\n', " ")));
    let _closed = std::io::stderr().write_all(line.as_bytes());
}

/// Writes the answer of a command to standard output, with one end of line behind it.
///
/// # Errors
/// As [`print_exactly`].
pub(crate) fn print_answer(text: &str) -> anyhow::Result<()> {
    print_exactly(&format!("{}\n", text.trim_end()))
}

/// Writes the answer of a command, as JSON or for people.
///
/// # Errors
/// As [`print_exactly`].
pub(crate) fn print_report<T: Serialize + fmt::Display>(
    report: &T,
    as_json: bool,
) -> anyhow::Result<()> {
    let text = match as_json {
        true => {
            serde_json::to_string_pretty(report).context("the result cannot be written as JSON")?
        }
        false => report.to_string(),
    };
    print_answer(&text)
}

/// Writes a text to standard output as it is.
///
/// # Errors
/// It cannot be written, as on a full disk. A reader that has ended wants no more: no error.
pub(crate) fn print_exactly(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

//! All verdicts together: for people, and as one JSON object.
//!
//! The lines for people fit a terminal of 80 columns, and have no colours. Good results are a list
//! of names; the worst findings are last, where the eye is. Names of programs are written with
//! control characters escaped.

use std::fmt;

use serde::Serialize;
use uksm_policy::report::counted;

use super::check::{Check, Severity};
use super::checks::{self, catalogue};
use super::host::Host;
use uksm_input::plain::plain;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Version of the JSON object: grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// The results of all checks.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    /// Version of this object.
    version: u32,
    /// The worst of all.
    worst: Severity,
    /// One for each check, in the order of the catalogue.
    checks: Vec<CheckResult>,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct CheckResult {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// Whether the host has the object of the check.
    applies: bool,
    pub(super) what: String,
    /// The files that the check reads.
    reads: &'static str,
    /// None if all is right, or the facts are unknown.
    cost: Option<&'static str>,
    /// The remedy in words; none in the same cases as `cost`.
    pub(super) mend: Option<&'static str>,
    pub(super) commands: Vec<String>,
    pub(super) details: Vec<String>,
    /// Why the facts, or some of them, are unknown.
    pub(super) unread: Option<String>,
}

impl DoctorReport {
    /// The results of all checks on a host.
    pub(super) fn of(host: &Host) -> DoctorReport {
        let checks: Vec<CheckResult> = catalogue()
            .map(|check| CheckResult::of(check, host))
            .collect();
        let worst = checks.iter().map(|row| row.severity).max();
        DoctorReport {
            version: VERSION,
            worst: worst.unwrap_or(Severity::Ok),
            checks,
        }
    }

    /// The checks.
    #[cfg(test)]
    pub(super) fn rows(&self) -> &[CheckResult] {
        &self.checks
    }

    /// Why the exit status is a failure, if the worst finding is `least` or worse.
    pub(super) fn refusal(&self, least: Severity) -> Option<String> {
        let of = |severity| {
            let rows = self.checks.iter().filter(|row| row.severity == severity);
            let names: Vec<&str> = rows.map(|row| row.name).collect();
            (!names.is_empty() && severity >= least).then(|| names.join(", "))
        };
        match (of(Severity::Error), of(Severity::Warning)) {
            (Some(errors), _) => Some(format!("doctor: uksm cannot merge here: {errors}")),
            (None, Some(warnings)) => Some(format!("doctor: warnings: {warnings}")),
            (None, None) => None,
        }
    }
}

impl CheckResult {
    fn of(check: &'static Check, host: &Host) -> CheckResult {
        let verdict = checks::judge(check, host);
        let is_shown = verdict.severity > Severity::Ok
            && (verdict.severity > Severity::Note || verdict.unread.is_none());
        CheckResult {
            name: check.name,
            severity: verdict.severity,
            applies: verdict.applies,
            what: plain(&verdict.what),
            reads: check.reads,
            cost: is_shown.then_some(check.cost),
            mend: is_shown.then_some(check.mend),
            commands: verdict.commands,
            details: verdict.details.iter().map(|line| plain(line)).collect(),
            unread: verdict.unread.as_deref().map(plain),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrapped(f, "  ", "      ", &format!("{}: {}", self.name, self.what))?;
        for detail in &self.details {
            wrapped(f, "      - ", "        ", detail)?;
        }
        if let Some(why) = self
            .unread
            .as_ref()
            .filter(|why| !self.what.contains(why.as_str()))
        {
            wrapped(f, "      in part: ", "        ", why)?;
        }
        if let Some(cost) = self.cost {
            wrapped(f, "      cost: ", "        ", cost)?;
        }
        if let Some(mend) = self.mend.filter(|_| self.commands.is_empty()) {
            wrapped(f, "      mend: ", "        ", mend)?;
        }
        self.commands
            .iter()
            .try_for_each(|command| command_lines(f, command))
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |severity| -> Vec<&CheckResult> {
            let rows = self.checks.iter();
            rows.filter(|row| row.severity == severity).collect()
        };
        let (right, idle): (Vec<&CheckResult>, Vec<&CheckResult>) =
            of(Severity::Ok).into_iter().partition(|row| row.applies);
        for (title, rows) in [("ok: ", &right), ("not applicable: ", &idle)] {
            let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
            if !names.is_empty() {
                wrapped(f, title, "    ", &names.join(", "))?;
            }
        }
        for (severity, title) in [
            (Severity::Note, "notes"),
            (
                Severity::Warning,
                "warnings: uksm does less here, or costs more, than it could",
            ),
            (Severity::Error, "errors: uksm cannot merge here"),
        ] {
            let rows = of(severity);
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "\n{title}")?;
            for row in rows {
                row.write(f)?;
            }
        }
        let count = |severity| of(severity).len() as u64;
        writeln!(
            f,
            "\n{}: {} ok, {} not applicable, {}, {}, {}",
            counted(self.checks.len() as u64, "check", "checks"),
            right.len(),
            idle.len(),
            counted(count(Severity::Note), "note", "notes"),
            counted(count(Severity::Warning), "warning", "warnings"),
            counted(count(Severity::Error), "error", "errors")
        )
    }
}

fn wrapped(f: &mut fmt::Formatter<'_>, first: &str, rest: &str, text: &str) -> fmt::Result {
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(first)
        .subsequent_indent(rest)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    for line in textwrap::wrap(text, options) {
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A line for a shell; a long one is continued, so that it can still be pasted. Words are never
/// broken.
fn command_lines(f: &mut fmt::Formatter<'_>, command: &str) -> fmt::Result {
    let options = textwrap::Options::new(WIDTH - 2)
        .initial_indent("      $ ")
        .subsequent_indent("          ")
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(command, options);
    let last = lines.len().saturating_sub(1);
    for (at, line) in lines.iter().enumerate() {
        let more = if at < last { " \\" } else { "" };
        writeln!(f, "{}{more}", line.trim_end())?;
    }
    Ok(())
}

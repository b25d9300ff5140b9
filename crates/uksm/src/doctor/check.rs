//! A row of the catalogue of checks, and the verdict that it gives.

use std::fmt;

use serde::Serialize;

use super::host::Host;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or unknown.
    Note,
    /// uksm runs, and does less or costs more than it could.
    Warning,
    /// uksm cannot merge here.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(in crate::doctor) severity: Severity,
    /// The finding, without a full stop.
    pub(in crate::doctor) what: String,
    /// The remedy, each a line of a shell.
    pub(in crate::doctor) commands: Vec<String>,
    /// The objects of the finding, largest first.
    pub(in crate::doctor) details: Vec<String>,
    /// Why the facts, or some of them, are unknown.
    pub(in crate::doctor) unread: Option<String>,
    /// Whether the host has the object of the check. Without it the severity is `Ok`.
    pub(in crate::doctor) applies: bool,
}

impl Verdict {
    pub(in crate::doctor) fn new(severity: Severity, what: impl Into<String>) -> Verdict {
        Verdict {
            severity,
            what: what.into(),
            commands: Vec::new(),
            details: Vec::new(),
            unread: None,
            applies: true,
        }
    }

    pub(in crate::doctor) fn ok(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Ok, what)
    }

    /// The host lacks the object of the check, and which.
    pub(in crate::doctor) fn not_applicable(what: impl Into<String>) -> Verdict {
        Verdict {
            applies: false,
            ..Verdict::ok(what)
        }
    }

    pub(in crate::doctor) fn note(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Note, what)
    }

    pub(in crate::doctor) fn warning(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Warning, what)
    }

    pub(in crate::doctor) fn error(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Error, what)
    }

    /// An error that keeps the module from being loaded, or a warning where it is loaded already.
    pub(in crate::doctor) fn load_obstacle(is_loaded: bool, what: impl Into<String>) -> Verdict {
        let severity = if is_loaded {
            Severity::Warning
        } else {
            Severity::Error
        };
        Verdict::new(severity, what)
    }

    /// The facts are unknown, and why.
    pub(in crate::doctor) fn unknown(why: impl Into<String>) -> Verdict {
        let why = why.into();
        Verdict {
            unread: Some(why.clone()),
            ..Verdict::note(format!("cannot be determined: {why}"))
        }
    }

    /// Adds a command of the remedy.
    pub(in crate::doctor) fn mend(mut self, command: impl Into<String>) -> Verdict {
        self.commands.push(command.into());
        self
    }

    /// Adds commands of the remedy.
    pub(in crate::doctor) fn mend_all(mut self, commands: Vec<String>) -> Verdict {
        self.commands.extend(commands);
        self
    }

    /// Sets the objects of the finding.
    pub(in crate::doctor) fn about(mut self, details: Vec<String>) -> Verdict {
        self.details = details;
        self
    }

    /// Marks a finding that is based on some of the facts only.
    pub(in crate::doctor) fn in_part(mut self, why: Option<String>) -> Verdict {
        self.unread = why;
        self
    }
}

/// A row of the catalogue. A table of `docs/doctor.md` has name, severity, finding and remedy, and
/// a test compares them.
pub(crate) struct Check {
    /// Its name, which is stable: scripts use it.
    pub(in crate::doctor) name: &'static str,
    /// The bad finding.
    pub(in crate::doctor) finds: &'static str,
    /// The files that it reads.
    pub(in crate::doctor) reads: &'static str,
    /// The worst possible severity.
    pub(in crate::doctor) worst: Severity,
    /// The cost of leaving things as they are.
    pub(in crate::doctor) cost: &'static str,
    /// The remedy in words; the verdict has the command.
    pub(in crate::doctor) mend: &'static str,
    /// Judges the host.
    pub(in crate::doctor) judge: fn(&Host) -> Verdict,
}

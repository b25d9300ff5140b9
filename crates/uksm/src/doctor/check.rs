//! A row of the catalogue of checks, and the verdict that it gives.

use std::fmt;

use serde::Serialize;

use super::host::Host;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or could not be told.
    Note,
    /// uksm runs, and does less or costs more than it could.
    Warning,
    /// uksm cannot run here.
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

/// What a check found.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(in crate::doctor) severity: Severity,
    /// What it is, without a full stop.
    pub(in crate::doctor) what: String,
    /// What mends it, each a line of a shell.
    pub(in crate::doctor) commands: Vec<String>,
    /// The things that it is about, largest first.
    pub(in crate::doctor) details: Vec<String>,
    /// Why it could not be told, or not of all.
    pub(in crate::doctor) unread: Option<String>,
}

impl Verdict {
    pub(in crate::doctor) fn new(severity: Severity, what: impl Into<String>) -> Verdict {
        Verdict {
            severity,
            what: what.into(),
            commands: Vec::new(),
            details: Vec::new(),
            unread: None,
        }
    }

    pub(in crate::doctor) fn ok(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Ok, what)
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

    /// It cannot be told, and why not.
    pub(in crate::doctor) fn unknown(why: impl Into<String>) -> Verdict {
        let why = why.into();
        Verdict {
            unread: Some(why.clone()),
            ..Verdict::note(format!("cannot be told: {why}"))
        }
    }

    /// Mended by this.
    pub(in crate::doctor) fn mend(mut self, command: impl Into<String>) -> Verdict {
        self.commands.push(command.into());
        self
    }

    /// About these.
    pub(in crate::doctor) fn about(mut self, details: Vec<String>) -> Verdict {
        self.details = details;
        self
    }

    /// Told of a part only.
    pub(in crate::doctor) fn in_part(mut self, why: Option<String>) -> Verdict {
        self.unread = why;
        self
    }
}

/// A row of the catalogue. `docs/doctor.md` has the same table for people, and a test compares
/// them.
pub(crate) struct Check {
    /// Its name, which stays: scripts have it.
    pub(in crate::doctor) name: &'static str,
    /// What it finds where all is not right.
    pub(in crate::doctor) finds: &'static str,
    /// What it looks at.
    pub(in crate::doctor) reads: &'static str,
    /// The worst that it can find.
    pub(in crate::doctor) worst: Severity,
    /// What it costs to leave things as they are.
    pub(in crate::doctor) cost: &'static str,
    /// What mends it, in words; the verdict has the command.
    pub(in crate::doctor) mend: &'static str,
    /// Judges.
    pub(in crate::doctor) judge: fn(&Host) -> Verdict,
}

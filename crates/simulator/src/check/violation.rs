//! A failed check.

use std::fmt;

/// A state that must not occur.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check that noticed it.
    pub check: &'static str,
    /// A description of it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.what)
    }
}

pub(super) fn violated(check: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { check, what })
}

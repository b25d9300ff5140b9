//! Why a command failed, and the exit status that follows.

use anyhow::anyhow;

/// Why an action failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The whole chain of causes.
    pub(crate) error: anyhow::Error,
    /// The exit status: 1 for a failure, 2 for a wrong command line or configuration.
    pub(crate) status: u8,
}

impl Failure {
    /// The command line or configuration is wrong.
    #[must_use]
    pub(crate) fn usage(line: String) -> Failure {
        Failure {
            error: anyhow!(line),
            status: 2,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { error, status: 1 }
    }
}

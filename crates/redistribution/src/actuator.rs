//! What makes a member larger or smaller.
//!
//! # Problem
//! Members are control groups and virtual machines. Either can vanish, refuse, or not do what it
//! said.
//!
//! # Approach
//! One trait: look, set, put back. What was asked and what it really came to are two things, so a
//! look tells the real size. An error is one line that names the file or socket. No call may wait
//! for ever, but any may wait: callers have a thread for each member.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why a member cannot be changed, or seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The member is not there: it has nothing.
    #[error("{}: no such control group", path.display())]
    Gone {
        /// Its folder.
        path: PathBuf,
    },
    /// A file or an answer does not say what it should, or a member cannot be used.
    #[error("{}: {what}", path.display())]
    Wrong {
        /// The file or socket.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Error {
        Error::File {
            path: path.to_owned(),
            source,
        }
    }

    /// Whether the member is not there, so that it has nothing that others could be waiting for.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone { .. } => true,
            Error::File { source, .. } => matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ),
            Error::Wrong { .. } => false,
        }
    }

    pub(crate) fn wrong(path: &Path, what: impl Into<String>) -> Error {
        Error::Wrong {
            path: path.to_owned(),
            what: what.into().replace('\n', " "),
        }
    }
}

/// How large a member is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes {
    /// What it really has: a balloon's size read back, or what a control group uses.
    pub real: u64,
    /// Its processes: whose merging is its own.
    pub processes: Vec<u32>,
}

/// Something whose size can be changed.
pub trait Actuator: Send {
    /// How large it is.
    ///
    /// # Errors
    /// It cannot be seen.
    fn look(&mut self) -> Result<Sizes, Error>;

    /// Asks it to have this size. It may take its time to get there, or never do.
    ///
    /// # Errors
    /// It cannot be asked, or refused.
    fn set(&mut self, bytes: u64) -> Result<(), Error>;

    /// Puts back what was there before the first [`Actuator::set`], if there was one.
    ///
    /// # Errors
    /// It cannot be asked, or refused.
    fn release(&mut self) -> Result<(), Error>;
}

//! The actuator, which makes a member larger or smaller.
//!
//! # Problem
//! Members are control groups and virtual machines. Either can vanish, refuse, or fail to do what
//! it accepted.
//!
//! # Approach
//! One trait: look, set, put back. The size asked and the real size can differ, so a look returns
//! the real size. An error is one line that names the file or socket. No call may wait for ever,
//! but any may wait: callers have a thread for each member.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The reason why a member cannot be changed, or seen.
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
    /// The member is gone: it holds no memory.
    #[error("{}: no such control group", path.display())]
    Gone {
        /// Its folder.
        path: PathBuf,
    },
    /// A file or an answer has unexpected contents, or a member cannot be used.
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

    /// Whether the member is gone, so that it holds no memory that others could be waiting for.
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

/// The size of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Its real size: a balloon's size read back, or the memory that a control group uses.
    pub real: u64,
    /// Its processes, whose merging counts for it.
    pub processes: Vec<u32>,
}

/// Something whose size can be changed.
pub trait Actuator: Send {
    /// Its size.
    ///
    /// # Errors
    /// It cannot be seen.
    fn look(&mut self) -> Result<Sizes, Error>;

    /// Asks it to have this size. It may reach it late or never.
    ///
    /// # Errors
    /// It cannot be asked, or refused.
    fn set(&mut self, bytes: u64) -> Result<(), Error>;

    /// Puts back the value before the first [`Actuator::set`], if there was one.
    ///
    /// # Errors
    /// It cannot be asked, or refused.
    fn release(&mut self) -> Result<(), Error>;
}

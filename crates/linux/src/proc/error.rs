//! Errors of reading a process.

use std::path::PathBuf;

/// The reason why a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process ended, or never existed.
    #[error("no process {pid}")]
    Gone {
        /// Its id.
        pid: u32,
    },
    /// The process holds the lock of its own mappings, or did so lately.
    #[error("process {pid} holds the lock of its own mappings")]
    Locked {
        /// Its id.
        pid: u32,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file has unexpected contents.
    #[error("{}:{line}: {what}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
}

impl Error {
    /// Whether the next read fails in the same way: true except for lack of memory or descriptors,
    /// and for a lock that can be released.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        const SHORTAGES: [i32; 4] = [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINTR];
        match self {
            Error::Gone { .. } | Error::Locked { .. } => false,
            Error::Parse { .. } => true,
            Error::Read { source, .. } => {
                let errno = source.raw_os_error();
                errno.is_none_or(|errno| !SHORTAGES.contains(&errno))
            }
        }
    }
}

/// A result of reading `/proc`.
pub type Result<T> = std::result::Result<T, Error>;

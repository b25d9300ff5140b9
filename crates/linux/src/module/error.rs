//! What can go wrong with the module, in words that say what to do.

use std::path::PathBuf;

use rustix::io::Errno;

use super::ioctl::meaning;
use super::raw::{self, Verb};

/// An error of the device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no device: the module is not loaded.
    #[error(
        "{}: the uksm module is not loaded: run `modprobe uksm`, or install it as docs/install.md says",
        path.display()
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The device cannot be opened.
    #[error("{}: cannot open: {}{}", path.display(), describe(*errno), open_hint(*errno))]
    Open {
        /// Where it is.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// What was opened is something else.
    #[error(
        "{}: does not answer as a uksm device of interface version {} does: update module and \
         program together, or name the device with --device",
        path.display(), raw::UKSM_API_VERSION
    )]
    NotDevice {
        /// Where it is.
        path: PathBuf,
    },
    /// Module and program speak different versions of the contract.
    #[error(
        "{}: the uksm module speaks interface version {found}, this program version {}: {}",
        path.display(), raw::UKSM_API_VERSION, update_hint(*found)
    )]
    Version {
        /// Where it is.
        path: PathBuf,
        /// The module's version.
        found: u32,
    },
    /// A call failed.
    #[error("uksm module: {}: {}{}", verb.name(), describe(*errno), colon(meaning(*verb, *errno)))]
    Call {
        /// The call.
        verb: Verb,
        /// Why.
        errno: Errno,
    },
    /// The module answered with a number that has no meaning in this version.
    #[error("uksm module: {}: unknown {what} {number} in the answer: update uksm", verb.name())]
    Answer {
        /// The call.
        verb: Verb,
        /// What the number stands for.
        what: &'static str,
        /// The number.
        number: u64,
    },
}

impl Error {
    /// Whether there was no memory for a call: nothing was done, and later it can be.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.errno() == Some(Errno::NOMEM)
    }

    /// Whether the target held its own locks all the time: nothing was done, and later it can be.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.errno() == Some(Errno::AGAIN)
    }

    /// The errno of a failed call, if that is what it was.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Call { errno, .. } | Error::Open { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

fn colon(meaning: &str) -> String {
    if meaning.is_empty() {
        String::new()
    } else {
        format!(": {meaning}")
    }
}

fn open_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => {
            ": run as root (it takes CAP_SYS_ADMIN, and CAP_SYS_PTRACE to attach)"
        }
        Errno::BUSY => ": another program uses it: stop it first",
        Errno::NXIO | Errno::NODEV => ": the module went away: run `modprobe uksm`",
        Errno::NOSPC | Errno::NOMEM => ": the module has no room for one more domain",
        _ => "",
    }
}

fn update_hint(found: u32) -> &'static str {
    if found < raw::UKSM_API_VERSION {
        "update and reload the module"
    } else {
        "update this program"
    }
}

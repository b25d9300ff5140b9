//! Errors of the module, with advice in their texts.

use std::path::PathBuf;

use rustix::io::Errno;

use super::raw::{self, Verb};

/// A result of the device.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no device: the module is not loaded.
    #[error(
        "{}: the uksm module is not loaded: `uksm doctor` says how this kernel can load it; \
         `uksm run --backend ksm` needs no module",
        path.display()
    )]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The device cannot be opened.
    #[error("{}: cannot open: {}{}", path.display(), describe(*errno), open_hint(*errno))]
    Open {
        /// The path.
        path: PathBuf,
        /// The reason.
        errno: Errno,
    },
    /// The opened file is something else.
    #[error(
        "{}: does not answer as a uksm device of interface version {} does: update module and \
         program together, or name the device with --device",
        path.display(), raw::UKSM_API_VERSION
    )]
    NotDevice {
        /// The path.
        path: PathBuf,
    },
    /// Module and program have different versions of the contract.
    #[error(
        "{}: the uksm module speaks interface version {found}, this program version {}: {}",
        path.display(), raw::UKSM_API_VERSION, update_hint(*found)
    )]
    Version {
        /// The path.
        path: PathBuf,
        /// The module's version.
        found: u32,
    },
    /// A call failed.
    #[error("uksm module: {}: {}{}", verb.name(), describe(*errno), colon(meaning(*verb, *errno)))]
    Call {
        /// The call.
        verb: Verb,
        /// The reason.
        errno: Errno,
    },
    /// The module answered with a number that has no meaning in this version.
    #[error("uksm module: {}: unknown {what} {number} in the answer: update uksm", verb.name())]
    Answer {
        /// The call.
        verb: Verb,
        /// The meaning of the number.
        what: &'static str,
        /// The number.
        number: u64,
    },
}

impl Error {
    /// Whether a call had no memory: nothing was done, and a later call can succeed.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.errno() == Some(Errno::NOMEM)
    }

    /// Whether the target held its own locks all the time: nothing was done, and a later call can
    /// succeed.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.errno() == Some(Errno::AGAIN)
    }

    /// The errno, if a call failed.
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
        Errno::NXIO | Errno::NODEV => ": the module was unloaded: run `modprobe uksm`",
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

/// The meaning of a call's errno, as in the header.
fn meaning(verb: Verb, errno: Errno) -> &'static str {
    match (verb, errno) {
        (Verb::Attach, Errno::PERM) => {
            "no right to this process: run as root or with CAP_SYS_PTRACE over it"
        }
        (Verb::Attach, Errno::SRCH) => "it has no memory: a kernel thread, a zombie, or exiting",
        (Verb::Attach, Errno::BUSY) => "another running uksm owns its memory",
        (Verb::Attach, Errno::NOSPC) => "this domain has as many spaces as the module allows",
        (Verb::Attach, Errno::BADF) => "not a process descriptor",
        (Verb::Attach, Errno::NXIO) => "its group has no domain yet",
        (Verb::Attach, Errno::AGAIN) => {
            "the process is in an exec that does not end, because it waits for I/O"
        }
        (Verb::Configure, Errno::BUSY) => "the domain is in use already",
        (Verb::Fold, Errno::PERM) => "the policy of the domain allows the zero page only",
        (_, Errno::NOTTY) => "the module does not know this call: update it",
        (_, Errno::FAULT) => "bad pointer",
        (_, Errno::INVAL) => "the module refuses a field of the request",
        (_, Errno::TOOBIG) => "the request is larger than the module accepts",
        (_, Errno::NOMEM) => "no memory left in the kernel",
        (_, Errno::NOENT) => "no such space in this domain",
        (_, Errno::AGAIN) => "the process holds the lock of its own mappings",
        _ => "",
    }
}

//! Small files below a root.
//!
//! # Problem
//! A file that does not exist, a file that may not be read, and the contents of a file are three
//! different answers.
//!
//! # Approach
//! [`Seen`] is one of the three. The root is `/`, or a folder of a test. Files are cut at
//! [`MAX_FILE_BYTES`], so that reading ends.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Most bytes of a file that are read: the longest is a kernel's configuration of some 300 KiB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen<T> {
    /// This.
    There(T),
    /// It is not there.
    Absent,
    /// It cannot be read, and why, with its name.
    Unread(String),
}

impl<T> Seen<T> {
    /// What it says, if it could be read.
    pub(super) fn there(&self) -> Option<&T> {
        match self {
            Seen::There(what) => Some(what),
            Seen::Absent | Seen::Unread(_) => None,
        }
    }

    /// Made into something else.
    pub(super) fn map<U>(self, into: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Seen::There(what) => Seen::There(into(what)),
            Seen::Absent => Seen::Absent,
            Seen::Unread(why) => Seen::Unread(why),
        }
    }
}

impl Seen<String> {
    /// Its text without blanks around it; empty if there is none.
    pub(super) fn text(&self) -> &str {
        self.there().map_or("", |text| text.trim())
    }
}

/// Where the host's files are.
#[derive(Debug, Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    /// Below this folder.
    pub(super) fn at_path(path: &Path) -> Root {
        Root(path.to_owned())
    }

    /// Where a path of the host is.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What a path is called on the host.
    pub(super) fn name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.0).unwrap_or(path);
        Path::new("/").join(below).display().to_string()
    }

    /// Whether there is such a file or folder.
    pub(super) fn has(&self, path: &str) -> bool {
        self.at(Path::new(path)).exists()
    }

    /// A file's bytes.
    pub(super) fn bytes(&self, path: &str) -> Seen<Vec<u8>> {
        self.first_bytes(path, MAX_FILE_BYTES)
    }

    /// So many bytes of a file at most.
    pub(super) fn first_bytes(&self, path: &str, most: u64) -> Seen<Vec<u8>> {
        let file = std::fs::File::open(self.at(Path::new(path)));
        let mut bytes = Vec::new();
        let read = file.and_then(|file| file.take(most).read_to_end(&mut bytes));
        match read {
            Ok(_) => Seen::There(bytes),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Seen::Absent
            }
            Err(error) => Seen::Unread(unread(path, &error)),
        }
    }

    /// A file's text.
    pub(super) fn text(&self, path: &str) -> Seen<String> {
        self.bytes(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What lies in a folder, by name; nothing if it cannot be listed.
    pub(super) fn list(&self, path: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.at(Path::new(path)));
        let mut found: Vec<PathBuf> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        found.sort();
        found
    }
}

/// Why a file cannot be read, in one line.
pub(super) fn unread(path: &str, error: &std::io::Error) -> String {
    let why = error.to_string();
    let why = why.split(" (os error").next().unwrap_or_default();
    format!("{path}: {}", why.to_lowercase())
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match mib {
        mib if mib >= 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib if mib >= 10.0 => format!("{mib:.0} MiB"),
        mib => format!("{mib:.1} MiB"),
    }
}

//! Small files below a root.
//!
//! # Problem
//! A file that does not exist, a file that may not be read, and the contents of a file are three
//! different answers.
//!
//! # Approach
//! [`FileContent`] is one of the three. The root is `/`, or a folder of a test. Files are cut at
//! [`MAX_FILE_BYTES`], so that reading ends.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use uksm_input::regular_file::open_regular;

use super::unpack::unpack;

/// Maximum number of bytes of a file that are read: the longest is a kernel's configuration of some
/// 300 KiB.
pub(super) const MAX_FILE_BYTES: u64 = 4 << 20;

/// The contents of a file, if it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileContent<T> {
    /// The contents.
    There(T),
    /// It does not exist.
    Absent,
    /// The reason why it cannot be read, with its name.
    Unread(String),
}

impl<T> FileContent<T> {
    /// The contents, if it could be read.
    pub(super) fn there(&self) -> Option<&T> {
        match self {
            FileContent::There(what) => Some(what),
            FileContent::Absent | FileContent::Unread(_) => None,
        }
    }

    /// Converts the contents.
    pub(super) fn map<U>(self, into: impl FnOnce(T) -> U) -> FileContent<U> {
        match self {
            FileContent::There(what) => FileContent::There(into(what)),
            FileContent::Absent => FileContent::Absent,
            FileContent::Unread(why) => FileContent::Unread(why),
        }
    }
}

impl FileContent<String> {
    /// Its text without blanks around it; empty without contents.
    pub(super) fn text(&self) -> &str {
        self.there().map_or("", |text| text.trim())
    }
}

/// The folder of the host's files.
#[derive(Debug, Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    /// The root at this folder.
    pub(super) fn at_path(path: &Path) -> Root {
        Root(path.to_owned())
    }

    /// The real path of a path of the host.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The name of a real path on the host.
    pub(super) fn name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.0).unwrap_or(path);
        Path::new("/").join(below).display().to_string()
    }

    /// Whether this file or folder exists.
    pub(super) fn has(&self, path: &str) -> bool {
        self.at(Path::new(path)).exists()
    }

    /// A file's bytes.
    pub(super) fn bytes(&self, path: &str) -> FileContent<Vec<u8>> {
        self.first_bytes(path, MAX_FILE_BYTES)
    }

    /// At most this number of bytes of a file.
    pub(super) fn first_bytes(&self, path: &str, most: u64) -> FileContent<Vec<u8>> {
        let file = open_regular(&self.at(Path::new(path)));
        let mut bytes = Vec::new();
        let read = file.and_then(|file| file.take(most).read_to_end(&mut bytes));
        match read {
            Ok(_) => FileContent::There(bytes),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                FileContent::Absent
            }
            Err(error) => FileContent::Unread(unread(path, &error)),
        }
    }

    /// A file's bytes, unpacked if its name ends so. A file with more than `most` is an error.
    pub(super) fn unpacked(&self, path: &str, most: u64) -> FileContent<Vec<u8>> {
        let bytes = match self.first_bytes(path, most + 1) {
            FileContent::There(bytes) => bytes,
            other => return other,
        };
        match unpack(path, &bytes, most) {
            Ok(contents) => FileContent::There(contents),
            Err(error) => FileContent::Unread(unread(path, &error)),
        }
    }

    /// A file's text.
    pub(super) fn text(&self, path: &str) -> FileContent<String> {
        self.bytes(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The entries of a folder, by name; none if it cannot be listed.
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

/// Bytes as text for people.
pub(super) fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match mib {
        mib if mib >= 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib if mib >= 10.0 => format!("{mib:.0} MiB"),
        mib => format!("{mib:.1} MiB"),
    }
}

//! Reads files that an operator names.
//!
//! # Problem
//! A configuration and a file of labels are read again while the daemon runs, in its only thread.
//! If such a path names a pipe or a device, opening or reading it waits for ever.
//!
//! # Approach
//! The file is opened without waiting, and read only if it is a regular file, up to a bound. A file
//! of an earlier daemon is opened in the same way ([`own_file`](crate::own_file)).
//!
//! # Units
//! Bytes.
//!
//! # Source
//! open(2), `O_NONBLOCK`; fifo(7).

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Maximum length of a file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The text of a regular file.
///
/// # Errors
/// It cannot be opened or read, is not a regular file, is longer than 16 MiB, or is no UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let file = open_regular(path)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let what = format!("is longer than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(io::Error::other(what));
    }
    Ok(text)
}

/// Opens a regular file for reading, without waiting.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let (file, metadata) = open_at_once(path, OFlags::empty())?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok(file),
        kind => Err(io::Error::other(refusal(kind))),
    }
}

/// Opens a file of any kind for reading, without waiting. The metadata are of the opened file,
/// which cannot be exchanged in between.
pub(crate) fn open_at_once(path: &Path, more: OFlags) -> io::Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let file = File::from(open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The kind of file, and the remedy.
fn refusal(kind: FileType) -> String {
    let what = match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    format!("is {what}, not a regular file: write the text to a file and name that")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};

    #[test]
    fn only_a_regular_file_is_read() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "x = 1\n").unwrap();
        assert_eq!(read_text(&file).unwrap(), "x = 1\n");
        let pipe = root.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for (path, what) in [
            (pipe.as_path(), "is a pipe, not a regular file"),
            (Path::new("/dev/zero"), "is a device, not a regular file"),
            (Path::new("/dev/null"), "is a device, not a regular file"),
            (root.path(), "is a folder, not a regular file"),
        ] {
            let error = read_text(path).unwrap_err().to_string();
            assert!(error.starts_with(what), "{}: {error}", path.display());
            assert!(error.contains("write the text to a file"), "{error}");
        }
        let none = read_text(&root.path().join("none")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_of_any_length_takes_bounded_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = read_text(file.path()).unwrap_err().to_string();
        assert_eq!(error, "is longer than 16 MiB");
    }
}

//! A file that an earlier daemon left for the next one.
//!
//! # Problem
//! The file's folder may be writable by others. A user's file of that name would make root act on
//! the user's text. A link, a pipe or an endless file would redirect the read, or block it.
//!
//! # Approach
//! The path is opened once, without following a link at its end and without waiting. All checks are
//! of the descriptor, from which a bounded text is read: the file cannot be exchanged in between.
//!
//! # Source
//! open(2) (`O_NOFOLLOW`, `O_NONBLOCK`), fstat(2).

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::regular_file::open_at_once;

/// The access that others must not have to the file, though its owner may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForbiddenAccess {
    /// Write it.
    Write,
    /// Write it or read it.
    ReadAndWrite,
}

impl ForbiddenAccess {
    fn mode(self) -> u32 {
        match self {
            ForbiddenAccess::Write => 0o022,
            ForbiddenAccess::ReadAndWrite => 0o077,
        }
    }

    fn fault(self) -> &'static str {
        match self {
            ForbiddenAccess::Write => "others may write it",
            ForbiddenAccess::ReadAndWrite => "others may read it",
        }
    }
}

/// The bytes of a regular file of root or of this process's user, to which others have no such
/// access.
///
/// # Errors
/// There is none (`NotFound`), it cannot be read, or it is refused (`InvalidData`): another user's,
/// accessible to others, not a regular file, or longer than `max_bytes`.
pub fn read(path: &Path, forbidden: ForbiddenAccess, max_bytes: u64) -> io::Result<Vec<u8>> {
    let (file, found) = open_at_once(path, OFlags::NOFOLLOW)?;
    let refuse = |what: &str| Err(io::Error::new(ErrorKind::InvalidData, what));
    if !found.is_file() {
        return refuse("not a regular file");
    }
    if !is_trusted(found.uid(), geteuid().as_raw()) {
        return refuse("it belongs to another user");
    }
    if found.mode() & forbidden.mode() != 0 {
        return refuse(forbidden.fault());
    }
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= max_bytes => Ok(bytes),
        _ => refuse("too long"),
    }
}

/// Whether a process of the user `me` trusts a file of this owner.
fn is_trusted(owner: u32, me: u32) -> bool {
    owner == 0 || owner == me
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use rustix::fs::{FileType, Mode};

    fn fault(path: &Path, forbidden: ForbiddenAccess) -> String {
        read(path, forbidden, 4).unwrap_err().to_string()
    }

    #[test]
    fn a_file_of_root_or_the_own_user_is_believed_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            read(&path, ForbiddenAccess::ReadAndWrite, 4).unwrap(),
            b"text"
        );
        assert!(is_trusted(0, 1000) && is_trusted(1000, 1000));
        assert!(!is_trusted(1000, 0) && !is_trusted(1001, 1000));
        // Only root can give a file away.
        if geteuid().is_root() {
            chown(&path, Some(54_321), None).unwrap();
            assert_eq!(
                fault(&path, ForbiddenAccess::Write),
                "it belongs to another user"
            );
        }
    }

    #[test]
    fn what_others_have_access_to_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "text").unwrap();
        let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        set(0o644);
        assert_eq!(read(&path, ForbiddenAccess::Write, 4).unwrap(), b"text");
        assert_eq!(
            fault(&path, ForbiddenAccess::ReadAndWrite),
            "others may read it"
        );
        for mode in [0o620, 0o602] {
            set(mode);
            assert_eq!(fault(&path, ForbiddenAccess::Write), "others may write it");
        }
    }

    #[test]
    fn links_pipes_folders_and_long_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let missing = read(&path("none"), ForbiddenAccess::Write, 4).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        fs::write(path("long"), "12345").unwrap();
        assert_eq!(fault(&path("long"), ForbiddenAccess::Write), "too long");
        fs::write(path("file"), "1234").unwrap();
        symlink(path("file"), path("link")).unwrap();
        let link = read(&path("link"), ForbiddenAccess::Write, 4).unwrap_err();
        assert_eq!(
            link.raw_os_error(),
            Some(rustix::io::Errno::LOOP.raw_os_error())
        );
        assert_eq!(
            fault(folder.path(), ForbiddenAccess::Write),
            "not a regular file"
        );
        let mode = Mode::RUSR | Mode::WUSR;
        let kind = FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).unwrap();
        assert_eq!(
            fault(&path("pipe"), ForbiddenAccess::Write),
            "not a regular file"
        );
    }
}

//! Files of listening Unix sockets: rules for the removal of stale files and of the own one.
//!
//! # Problem
//! A daemon that was killed leaves its socket's file, and no other can bind there until it is
//! removed. But the path may also name a file with contents (a wrong path on the command line), or
//! a socket at which another process listens.
//!
//! # Approach
//! [`remove_stale`] removes a socket only, and only if the kernel refuses a connection: then no
//! process listens. Any other file stays, and `bind` fails. [`SocketFile`] removes the file at the
//! end only if it is still the one that was bound.
//!
//! # Source
//! unix(7).

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The file of a listening socket. Dropping this removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// The file of a socket that was just bound.
    ///
    /// # Errors
    /// It is not there.
    pub fn of_bound(path: &Path) -> io::Result<SocketFile> {
        let identity = identity(path)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(SocketFile {
            path: path.to_owned(),
            identity,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == Some(self.identity)) {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a socket; none if something else is there.
fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let found = path.symlink_metadata()?;
    let is_socket = found.file_type().is_socket();
    Ok(is_socket.then(|| (found.dev(), found.ino())))
}

/// Removes a socket at which no process listens any more. Anything else stays.
///
/// # Errors
/// It cannot be removed.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    match identity(path) {
        Ok(Some(_)) if is_refused(path)? => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Whether no process listens at a socket. A listener of another kind of socket refuses with
/// another error.
fn is_refused(path: &Path) -> io::Result<bool> {
    // Do not wait for a full backlog.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let answer = connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(answer == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_socket_without_a_listener_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        remove_stale(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        remove_stale(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();

        let stream = UnixListener::bind(&path).unwrap();
        remove_stale(&path).unwrap();
        assert!(path.exists(), "somebody listens");
        drop(stream);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        remove_stale(&link).unwrap();
        assert!(link.symlink_metadata().is_ok(), "a link is not a socket");
        remove_stale(&path).unwrap();
        assert!(!path.exists());

        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let packets = socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&packets, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&packets, 1).unwrap();
        remove_stale(&path).unwrap();
        assert!(
            path.exists(),
            "somebody listens with another kind of socket"
        );
        drop(packets);
        remove_stale(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_has_taken_the_place_of_the_own_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let bound = UnixListener::bind(&path).unwrap();
        let file = SocketFile::of_bound(&path).unwrap();
        drop(file);
        assert!(!path.exists());
        drop(bound);
        let _bound = UnixListener::bind(&path).unwrap();
        let file = SocketFile::of_bound(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert!(SocketFile::of_bound(&path).is_err());
    }
}

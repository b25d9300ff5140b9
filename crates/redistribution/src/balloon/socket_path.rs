//! The socket of a monitor, opened by a path that others may change in part.
//!
//! # Problem
//! A machine's QEMU mostly owns the folder of its socket. A compromised QEMU can put a link there,
//! to a socket that only root may connect to, or to another machine's.
//!
//! # Approach
//! Each name of the path is opened in the folder before it. A link is followed only if only root
//! (or the user of this program) may write its folder. Connecting goes through the descriptor that
//! was reached, so nothing can change in between. The owner of the socket's folder can still put
//! another socket of its own there.
//!
//! # Source
//! openat(2), `O_PATH`; path_resolution(7).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat, readlinkat};
use rustix::io::Errno;

/// Limit of links on the way.
const MAX_LINKS: usize = 16;

/// The flags for an object that is opened, but neither read nor followed.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A socket that was found.
#[derive(Debug)]
pub(super) struct SocketFile(OwnedFd);

impl SocketFile {
    /// Opens it, without connecting.
    ///
    /// # Errors
    /// There is none, or the path leads through a link that others can change.
    pub(super) fn open(path: &Path) -> io::Result<SocketFile> {
        let root = || open("/", PLACE, Mode::empty());
        let mut names = names_from_last(path);
        let (mut folder, mut links) = (root()?, 0);
        while let Some(name) = names.pop() {
            let next = openat(&folder, name.as_os_str(), PLACE, Mode::empty())?;
            if !metadata(&next)?.is_symlink() {
                folder = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if !is_trusted(&metadata(&folder)?) {
                return Err(untrusted(&name));
            }
            let target = PathBuf::from(OsString::from_vec(
                readlinkat(&next, "", Vec::new())?.into_bytes(),
            ));
            if target.is_absolute() {
                folder = root()?;
            }
            names.extend(names_from_last(&target));
        }
        Ok(SocketFile(folder))
    }

    /// A path for connecting to it, valid as long as this lives.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// What the file system knows of it.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.0)
    }
}

fn metadata(file: &OwnedFd) -> io::Result<Metadata> {
    File::from(file.try_clone()?).metadata()
}

/// The names of a path from the root, or of a link's target, the last one first.
fn names_from_last(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

fn untrusted(link: &OsStr) -> io::Error {
    let what = format!(
        "{} is a link, and others than root may write its folder",
        link.to_string_lossy().escape_debug()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Whether only root, or the user of this program, may write a folder.
fn is_trusted(folder: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    (folder.uid() == 0 || folder.uid() == own) && folder.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_link_is_followed_only_where_nobody_else_could_have_put_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("machine")).unwrap();
        fs::create_dir(at("own")).unwrap();
        let listener = UnixListener::bind(at("machine/qmp")).unwrap();
        symlink("../machine/qmp", at("own/one")).unwrap();
        symlink("one", at("own/two")).unwrap();
        symlink("machine", at("folder")).unwrap();
        for name in ["machine/qmp", "own/one", "own/two", "folder/qmp"] {
            let file = SocketFile::open(&at(name)).unwrap();
            let inode = fs::metadata(at("machine/qmp")).unwrap().ino();
            assert_eq!(file.metadata().unwrap().ino(), inode, "{name}");
            UnixStream::connect(file.path()).unwrap();
            listener.accept().unwrap();
        }
        // Its QEMU may write the machine's folder.
        fs::set_permissions(at("machine"), Permissions::from_mode(0o777)).unwrap();
        let _other = UnixListener::bind(at("docker")).unwrap();
        symlink(at("docker"), at("machine/link")).unwrap();
        symlink(root.path(), at("machine/up")).unwrap();
        symlink("machine/link", at("trusted")).unwrap();
        for name in ["machine/link", "machine/up/docker", "trusted"] {
            let error = SocketFile::open(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
            assert!(error.to_string().contains(" is a link, and "), "{error}");
        }
        SocketFile::open(&at("machine/qmp")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let error = SocketFile::open(&at("loop")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        let error = SocketFile::open(&at("none/qmp")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

//! The socket of a monitor, opened by a path that others may have a part in.
//!
//! # Problem
//! A machine's QEMU mostly owns the folder in which its socket lies. One that is taken over can put a link there, to a socket that only
//! root may connect to, or to another machine's.
//!
//! # Approach
//! A link is followed only if it lies in a folder that nobody but root (or the user of this program) may write. What is left is opened
//! without following links, and connecting goes through that descriptor, so nothing can change in between. Who owns the
//! socket's folder can still put another socket of its own there.
//!
//! # Source
//! openat2(2), path_resolution(7).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Most links on the way.
const MAX_LINKS: usize = 16;

/// A socket that was found.
#[derive(Debug)]
pub(super) struct SocketFile(OwnedFd);

impl SocketFile {
    /// Opens it, without connecting.
    ///
    /// # Errors
    /// There is none, or the path leads through a link that others can change.
    pub(super) fn open(path: &Path) -> io::Result<SocketFile> {
        let path = without_links(path)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(SocketFile(openat2(CWD, &path, flags, Mode::empty(), how)?))
    }

    /// A path by which it is connected to, as long as this lives.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// What the file system knows of it.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }
}

/// The path that the links on the way lead to.
fn without_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.reverse();
        let link = parts.into_iter().find(|part| part.is_symlink());
        let Some(link) = link else {
            return Ok(path);
        };
        let folder = link.parent().unwrap_or(Path::new("/"));
        if !is_trusted(&folder.metadata()?) {
            let what = format!(
                "{} is a link, and others than root may write its folder",
                link.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let rest = path.strip_prefix(link).unwrap_or(Path::new("")).to_owned();
        let target = folder.join(link.read_link()?);
        path = match rest.as_os_str().is_empty() {
            true => target,
            false => target.join(rest),
        };
    }
    Err(Errno::LOOP.into())
}

/// Whether nobody but root, or the user of this program, may write a folder.
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

//! The tree of control groups (version 2), opened by descriptors beneath its mount.
//!
//! # Problem
//! Paths of control groups come from a configuration, from requests of authorised clients, and from
//! `/proc`. The daemon writes as root below them. A path with `..`, or a link in it, may lead
//! anywhere.
//!
//! # Approach
//! A path is a list of names below the root; a name that is empty, `.` or `..` is refused. Each
//! name is opened in the folder before it, and a link is not followed. The folder that is reached
//! must lie in a file system of control groups. No file is created, and no error shows the contents
//! of a file.
//!
//! openat2(2) would do the same in one call, but a unit of systemd with `RestrictSUIDSGID=` may not
//! use it.
//!
//! # Units
//! Bytes.
//!
//! # Source
//! openat(2), `O_NOFOLLOW`; kernel documentation, `admin-guide/cgroup-v2.rst`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstatfs, mkdirat, open, openat, statat};

/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const MAGIC: i64 = 0x6367_7270;

/// Limit of bytes that are read from a file: 4096 process ids take less.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Limit of listed folders below one.
const MAX_CHILDREN: usize = 4096;

/// A tree of control groups.
#[derive(Debug, Clone)]
pub struct CgroupTree {
    root: PathBuf,
    /// Whether it consists of ordinary folders and files.
    is_fake: bool,
}

impl CgroupTree {
    /// The tree that is mounted here.
    #[must_use]
    pub fn mounted_at(root: &Path) -> CgroupTree {
        CgroupTree {
            root: root.to_owned(),
            is_fake: false,
        }
    }

    /// For tests: a folder in which folders and files look like control groups. No configuration
    /// leads to it.
    #[doc(hidden)]
    #[must_use]
    pub fn fake(root: &Path) -> CgroupTree {
        CgroupTree {
            root: root.to_owned(),
            is_fake: true,
        }
    }

    /// Opens a control group by the whole path of its folder.
    ///
    /// # Errors
    /// The path is not that of a control group, leads through a link or out of the tree, or there
    /// is no such folder.
    pub fn open(&self, folder: &Path) -> io::Result<Folder> {
        let names = self.names(folder)?;
        let mut here = open(&self.root, FOLDER, Mode::empty())?;
        for name in names {
            here = openat(&here, OsStr::from_bytes(name), FOLDER, Mode::empty())?;
        }
        if !self.is_fake && fstatfs(&here)?.f_type != MAGIC {
            let what = format!("{}: no control groups of version 2", folder.display());
            return Err(io::Error::other(what));
        }
        Ok(Folder(here))
    }

    /// The names on the way from the root to the folder.
    fn names<'a>(&self, folder: &'a Path) -> io::Result<Vec<&'a [u8]>> {
        let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let bytes = folder.as_os_str().as_bytes();
        let below = bytes.strip_prefix(self.root.as_os_str().as_bytes());
        let names = match below {
            Some([]) => return Ok(vec![]),
            Some([b'/', names @ ..]) => names.split(|&byte| byte == b'/'),
            _ => return Err(refuse(format!("is not below {}", self.root.display()))),
        };
        let names: Vec<&[u8]> = names.collect();
        match names.iter().find(|name| !uksm_input::names::is_name(name)) {
            Some(name) => Err(refuse(format!(
                "'{}' is not the name of a control group",
                name.escape_ascii()
            ))),
            None => Ok(names),
        }
    }
}

/// The flags with which a folder is opened.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// An open control group. Operations apply to this one, even if another one is made at its path.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The contents of the file of this name, at most 64 KiB of whole lines.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let file = self.file(name, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 == MAX_FILE_BYTES {
            let end = bytes.iter().rposition(|&byte| byte == b'\n');
            bytes.truncate(end.map_or(0, |end| end + 1));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes to the file of this name, which must be there.
    ///
    /// # Errors
    /// There is no such file, or the kernel refuses.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let file = self.file(name, OFlags::WRONLY)?;
        File::from(file).write_all(text.as_bytes())
    }

    /// Whether there is a file of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn file(&self, name: &str, how: OFlags) -> io::Result<OwnedFd> {
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?)
    }

    /// Makes a control group of this name in it, unless there is one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self, name: &str) -> io::Result<Folder> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Err(errno) if errno != rustix::io::Errno::EXIST => Err(errno.into()),
            _ => self.child(OsStr::new(name)),
        }
    }

    /// Names of the control groups in it; at most [`MAX_CHILDREN`]. They are not opened: a member
    /// may have any number, and each takes a descriptor.
    pub(crate) fn child_names(&self) -> Vec<OsString> {
        let entries = Dir::read_from(&self.0).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| {
            let name = entry.file_name().to_bytes();
            entry.file_type() == FileType::Directory && name != b"." && name != b".."
        });
        let names = folders.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        names.take(MAX_CHILDREN).collect()
    }

    /// Opens the control group of this name in it.
    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Folder> {
        Ok(Folder(openat(&self.0, name, FOLDER, Mode::empty())?))
    }

    /// Its metadata.
    pub(crate) fn metadata(&self) -> io::Result<std::fs::Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, CgroupTree) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("tree/a/b")).unwrap();
        fs::write(root.path().join("tree/a/b/cgroup.procs"), "7\n").unwrap();
        fs::write(root.path().join("secret"), "root:x:0:0\n").unwrap();
        let tree = CgroupTree::fake(&root.path().join("tree"));
        (root, tree)
    }

    #[test]
    fn only_names_below_the_root_are_a_path() {
        let (root, tree) = tree();
        let open = |path: &str| {
            let opened = tree.open(Path::new(&format!("{}{path}", root.path().display())));
            opened.map(|_| ()).map_err(|error| error.to_string())
        };
        for path in ["/tree", "/tree/a", "/tree/a/b"] {
            assert_eq!(open(path), Ok(()), "{path}");
        }
        for (path, expected) in [
            ("/tree/..", "'..' is not the name of a control group"),
            ("/tree/../tree/a", "'..' is not the name of a control group"),
            ("/tree/a/../a", "'..' is not the name of a control group"),
            ("/tree/./a", "'.' is not the name of a control group"),
            ("/tree//a", "'' is not the name of a control group"),
            ("/tree/a/", "'' is not the name of a control group"),
            ("/treea", "is not below "),
            ("/secret", "is not below "),
            ("/tree/c", "No such file"),
        ] {
            let error = open(path).unwrap_err();
            assert!(error.starts_with(expected), "{path}: {error}");
        }
    }

    #[test]
    fn no_link_is_followed_and_no_file_is_made() {
        let (root, tree) = tree();
        let below = root.path().join("tree");
        symlink(root.path(), below.join("out")).unwrap();
        symlink("a", below.join("in")).unwrap();
        for name in ["out", "in", "in/b", "out/tree/a"] {
            let error = tree.open(&below.join(name)).unwrap_err();
            let errno = error.raw_os_error();
            assert!(
                errno == Some(20) || errno == Some(40),
                "{name}: ENOTDIR, ELOOP: {error}"
            );
        }
        let secret = root.path().join("secret");
        for name in ["memory.current", "memory.high"] {
            symlink(&secret, below.join("a").join(name)).unwrap();
        }
        let folder = tree.open(&below.join("a")).unwrap();
        let error = folder.read("memory.current").unwrap_err().to_string();
        assert!(!error.contains("root:x"), "{error}");
        assert!(folder.write("memory.high", "1").is_err());
        assert!(folder.write("memory.max", "1").is_err() && !folder.has("memory.max"));
        assert!(!folder.has("memory.high/x"));
        assert_eq!(fs::read_to_string(secret).unwrap(), "root:x:0:0\n");
    }

    #[test]
    fn only_a_file_system_of_control_groups_is_a_tree() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        let tree = CgroupTree::mounted_at(root.path());
        let error = tree.open(&root.path().join("a")).unwrap_err().to_string();
        assert!(
            error.ends_with(": no control groups of version 2"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_stays_itself_when_another_one_is_made_at_its_path() {
        let (root, tree) = tree();
        let path = root.path().join("tree/a/b");
        let folder = tree.open(&path).unwrap();
        fs::rename(&path, root.path().join("tree/old")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(folder.read("cgroup.procs").unwrap(), "7\n");
        assert!(!tree.open(&path).unwrap().has("cgroup.procs"));
    }

    #[test]
    fn a_long_list_is_cut_between_lines_and_a_child_is_made_once() {
        let (root, tree) = tree();
        let folder = tree.open(&root.path().join("tree/a")).unwrap();
        let list = "1234567\n".repeat(10_000);
        fs::write(root.path().join("tree/a/cgroup.procs"), &list[3..]).unwrap();
        let text = folder.read("cgroup.procs").unwrap();
        assert!(text.len() > 60_000 && text.ends_with("\n1234567\n"));
        folder.make("uksm").unwrap();
        folder.make("uksm").unwrap();
        assert_eq!(folder.child_names().len(), 2);
    }
}

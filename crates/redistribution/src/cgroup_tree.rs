//! The tree of control groups (version 2), opened by descriptors beneath its mount.
//!
//! # Problem
//! Paths of control groups come from a configuration, from requests of those who may ask the daemon, and from `/proc`. The daemon writes
//! as root below them. A path with `..`, or a link in it, leads anywhere.
//!
//! # Approach
//! A path is a list of names below the root; a name that is empty, `.` or `..` is refused. The root must be a file system of control
//! groups. Everything else is opened beneath it, by openat2(2): no link is followed, and no other mount entered. No file is created, and
//! no error has what is in a file.
//!
//! # Units
//! Bytes.
//!
//! # Source
//! openat2(2); kernel documentation, `admin-guide/cgroup-v2.rst`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstatfs, mkdirat, open, openat2};

/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const MAGIC: i64 = 0x6367_7270;

/// Most bytes that are read of a file: 4096 process ids take less.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Most folders below one that are listed.
const MAX_CHILDREN: usize = 4096;

/// A tree of control groups.
#[derive(Debug, Clone)]
pub struct CgroupTree {
    root: PathBuf,
    /// Made of ordinary folders and files.
    is_fake: bool,
}

impl CgroupTree {
    /// The one that is mounted here.
    #[must_use]
    pub fn mounted_at(root: &Path) -> CgroupTree {
        CgroupTree {
            root: root.to_owned(),
            is_fake: false,
        }
    }

    /// For tests: a folder in which folders and files look like control groups. No configuration leads here.
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
    /// The path is none of a control group, leads through a link or out of the tree, or there is no such folder.
    pub fn open(&self, folder: &Path) -> io::Result<Folder> {
        let path = self.below(folder)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&self.root, flags, Mode::empty())?;
        if !self.is_fake && fstatfs(&root)?.f_type != MAGIC {
            let what = format!("{}: no control groups of version 2", self.root.display());
            return Err(io::Error::other(what));
        }
        beneath(&root, &path, OFlags::RDONLY | OFlags::DIRECTORY).map(Folder)
    }

    /// The path from the root, `.` for the root itself.
    fn below(&self, folder: &Path) -> io::Result<PathBuf> {
        let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let bytes = folder.as_os_str().as_bytes();
        let below = bytes.strip_prefix(self.root.as_os_str().as_bytes());
        match below {
            Some([]) => Ok(PathBuf::from(".")),
            Some([b'/', names @ ..]) => {
                let bad = |name: &&[u8]| matches!(*name, b"" | b"." | b"..");
                match names.split(|&byte| byte == b'/').find(bad) {
                    Some(name) => Err(refuse(format!(
                        "'{}' is no name of a control group",
                        name.escape_ascii()
                    ))),
                    None => Ok(PathBuf::from(OsStr::from_bytes(names))),
                }
            }
            _ => Err(refuse(format!("is not below {}", self.root.display()))),
        }
    }
}

fn beneath(folder: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    Ok(openat2(
        folder,
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        how,
    )?)
}

/// A control group that is open. What is done with it concerns that one, also when another one is made at its path.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// What the file of this name has, at most 64 KiB of whole lines.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let file = beneath(&self.0, Path::new(name), OFlags::RDONLY | OFlags::NONBLOCK)?;
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
        let file = beneath(&self.0, Path::new(name), OFlags::WRONLY | OFlags::NONBLOCK)?;
        File::from(file).write_all(text.as_bytes())
    }

    /// Whether there is a file of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        beneath(&self.0, Path::new(name), OFlags::PATH).is_ok()
    }

    /// Makes a control group of this name in it, unless there is one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self, name: &str) -> io::Result<Folder> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Err(errno) if errno != rustix::io::Errno::EXIST => Err(errno.into()),
            _ => self.child(Path::new(name)),
        }
    }

    /// Those in it, as far as they can be opened; at most [`MAX_CHILDREN`].
    pub(crate) fn children(&self) -> Vec<Folder> {
        let entries = Dir::read_from(&self.0).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| {
            let name = entry.file_name().to_bytes();
            entry.file_type() == FileType::Directory && name != b"." && name != b".."
        });
        let names = folders.map(|entry| entry.file_name().to_bytes().to_vec());
        names
            .take(MAX_CHILDREN)
            .filter_map(|name| self.child(Path::new(OsStr::from_bytes(&name))).ok())
            .collect()
    }

    fn child(&self, name: &Path) -> io::Result<Folder> {
        beneath(&self.0, name, OFlags::RDONLY | OFlags::DIRECTORY).map(Folder)
    }

    /// What the file system knows of it.
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
        for (path, says) in [
            ("/tree/..", "'..' is no name of a control group"),
            ("/tree/../tree/a", "'..' is no name of a control group"),
            ("/tree/a/../a", "'..' is no name of a control group"),
            ("/tree/./a", "'.' is no name of a control group"),
            ("/tree//a", "'' is no name of a control group"),
            ("/tree/a/", "'' is no name of a control group"),
            ("/treea", "is not below "),
            ("/secret", "is not below "),
            ("/tree/c", "No such file"),
        ] {
            let error = open(path).unwrap_err();
            assert!(error.starts_with(says), "{path}: {error}");
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
            assert_eq!(error.raw_os_error(), Some(40), "{name}: ELOOP");
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
        assert!(folder.read("../../secret").is_err() && !folder.has("memory.high/x"));
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
        assert_eq!(folder.children().len(), 2);
    }
}

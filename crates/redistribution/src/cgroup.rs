//! A member that is a control group: its limit is raised and lowered.
//!
//! # Problem
//! `memory.high` slows a control group down and never kills; `memory.max` kills when nothing can be
//! reclaimed, also at the moment that it is lowered. The control group may vanish, or be of another
//! kind than it should.
//!
//! # Approach
//! The original value is remembered at the first look and put back at the end. `memory.high` is
//! written as asked: the kernel reclaims while it writes, and slows the processes down until they
//! fit. Before `memory.max` is lowered below the memory in use, the kernel is asked to reclaim the
//! difference (`memory.reclaim`), and then the limit falls only to the memory still in use plus
//! [`MARGIN`]: a moving limit kills no process. It falls further with the next step. A value that
//! another program wrote is overwritten. Each call opens the control group once, so that all its
//! operations are on the same one.
//!
//! # Units
//! Bytes.
//!
//! # Source
//! Kernel documentation, `admin-guide/cgroup-v2.rst`, "Memory Interface Files".

use std::path::{Path, PathBuf};

use crate::actuator::{Actuator, Error, Sizes};
use crate::cgroup_tree::{CgroupTree, Folder};
use crate::processes;
use crate::restore_journal::{ObjectIdentity, RestoreJournal};
use crate::settings::{Limit, SizeControl};

/// The distance that `memory.max` keeps above the memory in use while it is lowered.
const MARGIN: u64 = 4 << 20;

/// A control group.
#[derive(Debug)]
pub(crate) struct Cgroup {
    tree: CgroupTree,
    folder: PathBuf,
    limit: Limit,
    place: SizeControl,
    journal: RestoreJournal,
    /// The limit before the first change, and the identity of its control group.
    before: Option<(ObjectIdentity, String)>,
}

impl Cgroup {
    /// The control group in this folder of the tree.
    pub(crate) fn new(
        tree: &CgroupTree,
        folder: &Path,
        limit: Limit,
        journal: &RestoreJournal,
    ) -> Cgroup {
        Cgroup {
            tree: tree.clone(),
            folder: folder.to_owned(),
            limit,
            place: SizeControl::Cgroup {
                folder: folder.to_owned(),
                limit,
            },
            journal: journal.clone(),
            before: None,
        }
    }

    fn open(&self) -> Result<Folder, Error> {
        self.tree
            .open(&self.folder)
            .map_err(|error| self.why_closed(error))
    }

    fn why_closed(&self, error: std::io::Error) -> Error {
        let path = self.folder.clone();
        match error.kind() {
            std::io::ErrorKind::NotFound => Error::Gone { path },
            _ => Error::file(&path, error),
        }
    }

    fn read(&self, folder: &Folder, name: &str) -> Result<String, Error> {
        match folder.read(name) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(error) => Err(self.why(name, error)),
        }
    }

    fn write(&self, folder: &Folder, name: &str, text: &str) -> Result<(), Error> {
        let written = folder.write(name, text);
        written.map_err(|error| self.why(name, error))
    }

    /// The error for a control group that has no such file.
    fn why(&self, name: &str, error: std::io::Error) -> Error {
        let path = self.folder.join(name);
        if error.kind() != std::io::ErrorKind::NotFound {
            return Error::file(&path, error);
        }
        match self.tree.open(&self.folder) {
            Err(error) => self.why_closed(error),
            Ok(folder) if !folder.has("cgroup.controllers") => {
                Error::wrong(&self.folder, "no control group of version 2")
            }
            Ok(_) => Error::wrong(
                &path,
                "the memory controller is not enabled here: write +memory to cgroup.subtree_control above",
            ),
        }
    }

    fn identity(&self, folder: &Folder) -> Result<ObjectIdentity, Error> {
        let found = folder.metadata();
        let found = found.map_err(|error| Error::file(&self.folder, error))?;
        Ok(ObjectIdentity::of(&found))
    }

    /// The limit before the first change: the present one, if there was no change.
    fn before(&mut self, folder: &Folder) -> Result<(ObjectIdentity, String), Error> {
        let identity = self.identity(folder)?;
        if let Some(known) = &self.before
            && known.0 == identity
        {
            return Ok(known.clone());
        }
        let value = match self.journal.find(&self.place, identity) {
            Some(value) => value,
            None => self.limit(folder)?,
        };
        Ok(self.before.insert((identity, value)).clone())
    }

    /// The present limit: bytes or `max`.
    fn limit(&self, folder: &Folder) -> Result<String, Error> {
        let name = self.limit.file();
        let value = self.read(folder, name)?;
        match value == "max" || value.parse::<u64>().is_ok() {
            true => Ok(value),
            false => Err(self.no_number(name)),
        }
    }

    /// An error must not disclose the contents of a file.
    fn no_number(&self, name: &str) -> Error {
        Error::wrong(
            &self.folder.join(name),
            "does not contain a number of bytes",
        )
    }

    fn put_back(&mut self) -> Result<(), Error> {
        let folder = self.open()?;
        let identity = self.identity(&folder)?;
        // Nothing is known of a control group that was made anew, and one without an entry was not
        // changed.
        let Some(before) = self.journal.find(&self.place, identity) else {
            return Ok(());
        };
        match before.parse::<u64>() {
            Ok(bytes) => self.lower_or_raise(&folder, bytes),
            Err(_) => self.write(&folder, self.limit.file(), &before),
        }
    }

    fn used(&self, folder: &Folder) -> Result<u64, Error> {
        let name = "memory.current";
        let text = self.read(folder, name)?;
        text.parse().map_err(|_| self.no_number(name))
    }

    /// The lowest value that the limit may have now without killing a process.
    fn lowest(&self, folder: &Folder, wanted: u64) -> Result<u64, Error> {
        let used = self.used(folder)?;
        let too_much = used.saturating_add(MARGIN).saturating_sub(wanted);
        if self.limit == Limit::High || too_much == 0 {
            return Ok(wanted);
        }
        // If not all of it was reclaimed, or this kernel has no such file, the memory in use shows
        // it.
        let _ = self.write(folder, "memory.reclaim", &too_much.to_string());
        let lowest = self.used(folder)?.saturating_add(MARGIN).max(wanted);
        Ok(lowest)
    }

    fn lower_or_raise(&self, folder: &Folder, wanted: u64) -> Result<(), Error> {
        let present = self.limit(folder)?.parse::<u64>().unwrap_or(u64::MAX);
        let lowest = self.lowest(folder, wanted)?;
        // Memory in use is no reason to raise it.
        let goal = if wanted < present {
            lowest.min(present)
        } else {
            wanted
        };
        if goal == present {
            return Ok(());
        }
        self.write(folder, self.limit.file(), &goal.to_string())
    }
}

impl Actuator for Cgroup {
    fn look(&mut self) -> Result<Sizes, Error> {
        let folder = self.open()?;
        self.before(&folder)?;
        Ok(Sizes {
            real: self.used(&folder)?,
            processes: processes::of_cgroup(&folder),
        })
    }

    fn set(&mut self, bytes: u64) -> Result<(), Error> {
        let folder = self.open()?;
        let (identity, value) = self.before(&folder)?;
        self.journal.note(&self.place, identity, &value)?;
        self.lower_or_raise(&folder, bytes)
    }

    fn release(&mut self) -> Result<(), Error> {
        let done = self.put_back();
        if matches!(done, Ok(()) | Err(Error::Gone { .. })) {
            self.before = None;
            self.journal.forget(&self.place)?;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    /// A folder with the files of a control group.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(used: u64, limit: Limit, value: &str) -> (Tree, Cgroup) {
            let root = tempfile::tempdir().unwrap();
            let tree = Tree(root);
            tree.write("cgroup.controllers", "memory");
            tree.write("cgroup.procs", "");
            tree.write("memory.current", &format!("{used}\n"));
            tree.write(limit.file(), &format!("{value}\n"));
            let root = CgroupTree::fake(tree.0.path());
            let cgroup = Cgroup::new(&root, tree.0.path(), limit, &RestoreJournal::default());
            (tree, cgroup)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        /// A file's first line: writing does not cut a file off, as in the kernel's own it need
        /// not.
        fn read(&self, name: &str) -> String {
            let text = fs::read_to_string(self.0.path().join(name)).unwrap();
            text.lines().next().unwrap_or_default().to_owned()
        }
    }

    #[test]
    fn the_limit_is_written_and_what_was_there_is_put_back() {
        let (tree, mut cgroup) = Tree::new(5 * MIB, Limit::High, "104857600");
        assert_eq!(cgroup.look().unwrap().real, 5 * MIB);
        cgroup.set(200 * MIB).unwrap();
        assert_eq!(tree.read("memory.high"), "209715200");
        cgroup.release().unwrap();
        assert_eq!(tree.read("memory.high"), "104857600");
    }

    #[test]
    fn no_limit_is_put_back_as_it_was() {
        let (tree, mut cgroup) = Tree::new(5 * MIB, Limit::High, "max");
        cgroup.set(100 * MIB).unwrap();
        assert!(tree.read("memory.high").starts_with("104857600"));
        cgroup.release().unwrap();
        assert!(tree.read("memory.high").starts_with("max"));
    }

    #[test]
    fn nothing_was_changed_so_nothing_is_put_back() {
        let (tree, mut cgroup) = Tree::new(5 * MIB, Limit::High, "100");
        cgroup.release().unwrap();
        assert_eq!(tree.read("memory.high"), "100");
    }

    #[test]
    fn memory_max_is_never_lowered_below_what_is_used() {
        let (tree, mut cgroup) = Tree::new(150 * MIB, Limit::Max, "209715200");
        tree.write("memory.reclaim", "");
        cgroup.set(100 * MIB).unwrap();
        assert_eq!(tree.read("memory.reclaim"), (54 * MIB).to_string());
        assert_eq!(tree.read("memory.max"), (154 * MIB).to_string());
        // A kernel without memory.reclaim, and something that was freed meanwhile.
        fs::remove_file(tree.0.path().join("memory.reclaim")).unwrap();
        tree.write("memory.current", &(90 * MIB).to_string());
        cgroup.set(100 * MIB).unwrap();
        assert_eq!(tree.read("memory.max"), (100 * MIB).to_string());
    }

    #[test]
    fn memory_max_is_not_raised_because_much_is_used() {
        let (tree, mut cgroup) = Tree::new(150 * MIB, Limit::Max, "157286400");
        cgroup.set(100 * MIB).unwrap();
        assert_eq!(tree.read("memory.max"), (150 * MIB).to_string());
    }

    #[test]
    fn a_group_that_is_gone_or_of_another_kind_is_named() {
        let (tree, mut cgroup) = Tree::new(MIB, Limit::High, "max");
        let place = tree.0.path().display().to_string();
        fs::remove_file(tree.0.path().join("memory.current")).unwrap();
        let error = cgroup.look().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "{place}/memory.current: the memory controller is not"
            )),
            "{error}"
        );
        fs::remove_file(tree.0.path().join("cgroup.controllers")).unwrap();
        let error = cgroup.look().unwrap_err().to_string();
        assert_eq!(error, format!("{place}: no control group of version 2"));
        drop(tree);
        let error = cgroup.set(1).unwrap_err().to_string();
        assert_eq!(error, format!("{place}: no such control group"));
        let (tree, mut cgroup) = Tree::new(MIB, Limit::High, "max");
        tree.write("memory.current", "many");
        let error = cgroup.look().unwrap_err().to_string();
        assert!(
            error.ends_with("/memory.current: does not contain a number of bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_link_in_place_of_a_file_shows_and_changes_nothing() {
        for name in ["memory.current", "memory.high"] {
            let secret = tempfile::NamedTempFile::new().unwrap();
            fs::write(secret.path(), "root:secrethash\n").unwrap();
            let (tree, mut cgroup) = Tree::new(MIB, Limit::High, "max");
            fs::remove_file(tree.0.path().join(name)).unwrap();
            std::os::unix::fs::symlink(secret.path(), tree.0.path().join(name)).unwrap();
            let errors = [cgroup.look().unwrap_err(), cgroup.set(MIB).unwrap_err()];
            let text = errors.map(|error| error.to_string()).concat();
            assert!(!text.contains("secrethash"), "{text}");
            let text = fs::read_to_string(secret.path()).unwrap();
            assert_eq!(text, "root:secrethash\n", "{name}");
        }
    }
}

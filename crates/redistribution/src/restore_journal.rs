//! The values before the first change, kept in a file until they are put back.
//!
//! # Problem
//! A daemon that is killed leaves limits and balloons as it had set them. The next one would take
//! these for the operator's values, and without redistribution they would stay for ever.
//!
//! # Approach
//! A value is recorded before it is changed for the first time, and its entry removed when it was
//! put back: a file that exists at the start lists the changes that an earlier daemon left. Without
//! a record, nothing is changed. A limit is identified by its path and by the identity of the
//! object there: a control group that was made anew, or a machine that was started anew, never had
//! its predecessor's value. The file is replaced as a whole, and only its owner may write it.
//!
//! # Units
//! Values are as the kernel, or QEMU, has them: bytes, or `max`.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use uksm_input::own_file::{self, ForbiddenAccess};

use crate::actuator::Error;
use crate::settings::SizeControl;

/// The longest file that is read: some 300,000 limits, more than a host has control groups.
const MAX_BYTES: u64 = 64 << 20;

/// The identity of an object among those that existed at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectIdentity {
    inode: u64,
    /// Birth in nanoseconds since 1970, where the file system records it.
    born: Option<u64>,
}

impl ObjectIdentity {
    /// The identity of the object found at a path.
    pub(crate) fn of(found: &fs::Metadata) -> ObjectIdentity {
        let born = found.created().ok();
        let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        ObjectIdentity {
            inode: found.ino(),
            born: born.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        }
    }
}

/// One limit or balloon that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    pub(crate) place: SizeControl,
    identity: ObjectIdentity,
    pub(crate) value: String,
}

#[derive(Debug, Default)]
struct JournalState {
    file: Option<PathBuf>,
    entries: Vec<JournalEntry>,
}

/// All changes that were not put back.
#[derive(Debug, Clone, Default)]
pub(crate) struct RestoreJournal(Arc<Mutex<JournalState>>);

impl RestoreJournal {
    /// The entries in this file. A file that cannot be used is replaced at the first change; the
    /// reason is returned, too.
    pub(crate) fn of(file: &Path) -> (RestoreJournal, Option<Error>) {
        let (entries, error) = match read(file) {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let file = Some(file.to_owned());
        (
            RestoreJournal(Arc::new(Mutex::new(JournalState { file, entries }))),
            error,
        )
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        // Entries are changed in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Vec<JournalEntry> {
        self.state().entries.clone()
    }

    /// The value before the first change of this place, if it was changed.
    pub(crate) fn find(&self, place: &SizeControl, identity: ObjectIdentity) -> Option<String> {
        let state = self.state();
        let mut entries = state.entries.iter();
        let entry = entries.find(|entry| entry.place == *place && entry.identity == identity)?;
        Some(entry.value.clone())
    }

    /// Records a value before it is changed.
    ///
    /// # Errors
    /// It cannot be recorded, and must not be changed.
    pub(crate) fn note(
        &self,
        place: &SizeControl,
        identity: ObjectIdentity,
        value: &str,
    ) -> Result<(), Error> {
        if self.find(place, identity).is_some() {
            return Ok(());
        }
        let mut state = self.state();
        let mut entries = state.entries.clone();
        entries.retain(|entry| entry.place != *place);
        entries.push(JournalEntry {
            place: place.clone(),
            identity,
            value: value.to_owned(),
        });
        state.replace(entries)
    }

    /// Removes an entry that was put back, or whose place is gone.
    ///
    /// # Errors
    /// The entry cannot be removed, and may be put back once more.
    pub(crate) fn forget(&self, place: &SizeControl) -> Result<(), Error> {
        let mut state = self.state();
        let mut entries = state.entries.clone();
        entries.retain(|entry| entry.place != *place);
        if entries.len() == state.entries.len() {
            return Ok(());
        }
        state.replace(entries)
    }
}

impl JournalState {
    fn replace(&mut self, entries: Vec<JournalEntry>) -> Result<(), Error> {
        if let Some(file) = &self.file {
            // Not as a missing file, which would mean that the member is gone.
            write(file, &entries).map_err(|error| Error::wrong(file, error.to_string()))?;
        }
        self.entries = entries;
        Ok(())
    }
}

fn read(file: &Path) -> Result<Vec<JournalEntry>, Error> {
    let lost = |what: &dyn std::fmt::Display| {
        Error::wrong(
            file,
            format!("{what}: the changes of an earlier daemon are not undone"),
        )
    };
    match own_file::read(file, ForbiddenAccess::Write, MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(lost(&error)),
        Ok(text) => serde_json::from_slice(&text).map_err(|error| lost(&error)),
    }
}

fn write(file: &Path, entries: &[JournalEntry]) -> std::io::Result<()> {
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    if entries.is_empty() {
        return remove(file);
    }
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    remove(&new)?;
    let mut options = fs::OpenOptions::new();
    let mut out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(&serde_json::to_vec(entries)?)?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;
    use crate::settings::Limit;

    fn place(name: &str) -> SizeControl {
        SizeControl::Cgroup {
            folder: PathBuf::from(name),
            limit: Limit::High,
        }
    }

    const ONE: ObjectIdentity = ObjectIdentity {
        inode: 1,
        born: Some(5),
    };

    #[test]
    fn what_was_noted_is_known_to_the_next_one_and_what_was_put_back_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        let (journal, error) = RestoreJournal::of(&file);
        assert!(error.is_none() && journal.entries().is_empty());
        journal.note(&place("/a"), ONE, "max").unwrap();
        journal.note(&place("/a"), ONE, "77").unwrap();
        journal.note(&place("/b"), ONE, "5").unwrap();
        let (next, error) = RestoreJournal::of(&file);
        assert!(error.is_none());
        assert_eq!(next.entries(), journal.entries());
        assert_eq!(
            next.find(&place("/a"), ONE).as_deref(),
            Some("max"),
            "the first"
        );
        let other = ObjectIdentity { inode: 2, ..ONE };
        assert_eq!(next.find(&place("/a"), other), None, "made anew");
        next.note(&place("/a"), other, "9").unwrap();
        assert_eq!(next.find(&place("/a"), ONE), None);
        next.forget(&place("/a")).unwrap();
        next.forget(&place("/b")).unwrap();
        assert!(!file.exists());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        next.note(&place("/c"), ONE, "1").unwrap();
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_none_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        let (journal, _) = RestoreJournal::of(&file);
        journal.note(&place("/a"), ONE, "max").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
        let (journal, error) = RestoreJournal::of(&file);
        let error = error.unwrap().to_string();
        assert!(
            journal.entries().is_empty() && error.contains("/limits: others may write it"),
            "{error}"
        );
        fs::write(&file, "{").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let error = RestoreJournal::of(&file).1.unwrap().to_string();
        assert!(error.contains("/limits: invalid type"), "{error}");
    }

    #[test]
    fn a_file_of_another_user_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        let (journal, _) = RestoreJournal::of(&file);
        journal.note(&place("/a"), ONE, "max").unwrap();
        // Only root can give a file away; the rule itself is tested where it stands.
        if chown(&file, Some(54_321), None).is_ok() {
            let (journal, error) = RestoreJournal::of(&file);
            let error = error.unwrap().to_string();
            assert!(journal.entries().is_empty(), "{error}");
            assert!(
                error.contains("/limits: it belongs to another user"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_down_is_refused() {
        let (journal, _) = RestoreJournal::of(Path::new("/nonexistent/limits"));
        let error = journal
            .note(&place("/a"), ONE, "max")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/nonexistent/limits: "), "{error}");
        assert!(journal.entries().is_empty());
    }

    #[test]
    fn who_is_made_anew_at_a_path_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::create_dir(&path).unwrap();
        let identity = || ObjectIdentity::of(&fs::metadata(&path).unwrap());
        let first = identity();
        assert_eq!(identity(), first);
        fs::rename(&path, folder.path().join("y")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_ne!(identity(), first);
    }
}

//! The seed of a daemon for which none was configured.
//!
//! Merged pages stay merged when a daemon ends. The next daemon can take them over in place if it
//! has the same seed (see FOLD in `interface/uksm_ioctl.h`). Hashes are made with the seed, too, so
//! no other user may read it; `docs/threat-model.md` explains why.
//!
//! A random seed is stored in a file beside the control socket, which only the daemon's user may
//! read. The folder is in `/run`: merged pages do not outlive the machine either. A file of another
//! user, one that others may read, or one with other contents is replaced. If the seed cannot be
//! stored, the daemon logs that and runs; its successor then copies pages instead of taking them
//! over.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use uksm_input::own_file::{self, ForbiddenAccess};

/// Maximum length of the file: a number has 20 digits.
const MAX_BYTES: u64 = 64;

/// The file of the daemon that listens at `socket`.
fn path_beside(socket: &Path) -> PathBuf {
    let mut path = OsString::from(socket);
    path.push(".seed");
    path.into()
}

/// The path that a group has in place of a socket of its own.
pub(crate) fn of_group(socket: &Path, group: &str) -> PathBuf {
    let mut path = OsString::from(socket);
    path.push(".");
    path.push(group);
    path.into()
}

/// The configured seed, or else that of [`inherited`].
///
/// # Errors
/// The kernel gives no random numbers.
pub(crate) fn given_or_inherited(given: Option<u64>, socket: &Path) -> anyhow::Result<u64> {
    given.map_or_else(|| inherited(socket), Ok)
}

/// Removes the seed of a group that is gone for good, and has no frames.
pub(crate) fn forget(socket: &Path) {
    let path = path_beside(socket);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!("{}: {error}", path.display());
        }
        _ => {}
    }
}

/// The seed of the last daemon that listened at `socket`, or a new one, which is stored.
///
/// # Errors
/// The kernel gives no random numbers.
fn inherited(socket: &Path) -> anyhow::Result<u64> {
    let path = path_beside(socket);
    match read(&path) {
        Ok(Some(seed)) => return Ok(seed),
        Ok(None) => {}
        Err(error) => tracing::warn!("{error:#}: a new seed replaces it"),
    }
    let seed = random()?;
    if let Err(error) = write(&path, seed) {
        tracing::warn!(
            "{}: {error}: pages merged now cannot be taken over by the next daemon",
            path.display()
        );
    }
    Ok(seed)
}

/// The seed in a file; `None` if there is no file.
fn read(path: &Path) -> anyhow::Result<Option<u64>> {
    let bytes = match own_file::read(path, ForbiddenAccess::ReadAndWrite, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let text = String::from_utf8_lossy(&bytes);
    match text.trim().parse() {
        Ok(seed @ 1..) => Ok(Some(seed)),
        _ => bail!("{}: not a number from 1 to 2^64-1", path.display()),
    }
}

/// Writes a new file first, so that a daemon that is killed leaves the old seed or the new one.
fn write(path: &Path, seed: u64) -> io::Result<()> {
    let mut beside = OsString::from(path);
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    writeln!(file, "{seed}")?;
    file.sync_data()?;
    fs::rename(&beside, path)
}

/// A seed from the kernel.
pub(crate) fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let path = "/dev/urandom";
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.with_context(|| format!("{path}: cannot read a seed: give one with --seed"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    fn socket() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        (folder, socket)
    }

    #[test]
    fn the_next_daemon_at_the_socket_has_the_seed_of_the_last() {
        let (_folder, socket) = socket();
        let first = inherited(&socket).unwrap();
        assert_eq!(inherited(&socket).unwrap(), first);
        let elsewhere = socket.with_file_name("other");
        assert_ne!(inherited(&elsewhere).unwrap(), first);
    }

    #[test]
    fn nobody_else_may_read_the_seed() {
        let (_folder, socket) = socket();
        inherited(&socket).unwrap();
        let path = path_beside(&socket);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_seed_that_others_may_read_is_replaced() {
        let (_folder, socket) = socket();
        let first = inherited(&socket).unwrap();
        let path = path_beside(&socket);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let second = inherited(&socket).unwrap();
        assert_ne!(second, first);
        assert_eq!(inherited(&socket).unwrap(), second);
    }

    #[test]
    fn a_seed_of_another_user_is_replaced() {
        let (_folder, socket) = socket();
        let first = inherited(&socket).unwrap();
        // Only root can give a file away; the rule itself is tested in `own_file`.
        let is_given = chown(path_beside(&socket), Some(54_321), None).is_ok();
        assert_eq!(inherited(&socket).unwrap() != first, is_given);
    }

    #[test]
    fn a_file_without_a_seed_is_replaced() {
        let (_folder, socket) = socket();
        for text in ["", "0", "-4", "seed"] {
            let path = path_beside(&socket);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let seed = inherited(&socket).unwrap();
            assert_eq!(read(&path).unwrap(), Some(seed), "after {text:?}");
        }
    }

    #[test]
    fn a_daemon_that_was_killed_while_it_wrote_leaves_the_seed_that_was() {
        let (_folder, socket) = socket();
        let first = inherited(&socket).unwrap();
        let mut beside = OsString::from(path_beside(&socket));
        beside.push(".new");
        fs::write(&beside, "12").unwrap();
        assert_eq!(inherited(&socket).unwrap(), first);
        write(&path_beside(&socket), 7).unwrap();
        assert_eq!(inherited(&socket).unwrap(), 7);
        assert!(!Path::new(&beside).exists());
    }

    #[test]
    fn a_missing_folder_does_not_stop_the_daemon() {
        let (folder, _) = socket();
        let socket = folder.path().join("missing/control");
        assert_ne!(inherited(&socket).unwrap(), 0);
    }
}

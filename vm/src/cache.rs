//! Stores expensive results outside the tree.
//!
//! Problem: an interrupted download or build must not count as a finished one, and two runs at once
//! must not disturb each other.
//!
//! Approach: an entry is a folder named by its kind and a key of its contents. It is made under
//! another name, in the same file system, and renamed when it is complete; a lock file lets the
//! second run wait for the first.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

/// The cache's folder: `$UKSM_CACHE`, or `uksm` in the user's cache folder.
///
/// # Errors
/// Neither is known, or the path has characters that make(1) cannot take.
pub fn root() -> Result<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let root = variable("UKSM_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("uksm")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/uksm")))
        .context(
            "neither UKSM_CACHE nor HOME is set: set UKSM_CACHE to a folder outside the tree",
        )?;
    if root.to_string_lossy().contains(char::is_whitespace) {
        bail!(
            "{}: kernel builds cannot take a path with spaces; set UKSM_CACHE",
            root.display()
        );
    }
    fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
    fs::canonicalize(&root).with_context(|| root.display().to_string())
}

/// A key for a result made of these parts and of these files in a folder.
///
/// # Errors
/// A file cannot be read, or is not in the folder.
pub fn key_of(parts: &[&str], folder: &Path, files: &[PathBuf]) -> Result<String> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    for file in files {
        let contents = fs::read(file).with_context(|| file.display().to_string())?;
        hash.update(file.strip_prefix(folder)?.to_string_lossy().as_bytes());
        hash.update(contents.len().to_le_bytes());
        hash.update(contents);
    }
    let digest = hash.finalize();
    Ok(digest[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The entry `kind/key`; made by `make` in an empty folder if it is not there.
///
/// # Errors
/// The errors of `make`; nothing is kept then.
pub fn entry(kind: &str, key: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    entry_in(&root()?, kind, key, make)
}

fn entry_in(
    root: &Path,
    kind: &str,
    key: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = root.join(kind);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let done = folder.join(key);
    if done.is_dir() {
        return Ok(done);
    }
    let lock_path = folder.join(format!("{key}.lock"));
    let lock_file = File::create(&lock_path).with_context(|| lock_path.display().to_string())?;
    let _lock = Flock::lock(lock_file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("locking {}", lock_path.display()))?;
    if done.is_dir() {
        return Ok(done);
    }
    let partial = folder.join(format!("{key}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| partial.display().to_string())?;
    }
    fs::create_dir(&partial).with_context(|| partial.display().to_string())?;
    if let Err(error) = make(&partial) {
        // The next run makes it from the start anyway.
        let _leftovers = fs::remove_dir_all(&partial);
        return Err(error);
    }
    fs::rename(&partial, &done).with_context(|| format!("renaming {}", partial.display()))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_entry_is_made_again_and_complete_one_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let failed = entry_in(root.path(), "kernels", "a", |dir| {
            fs::write(dir.join("half"), "x")?;
            bail!("interrupted")
        });
        assert!(failed.is_err());
        assert!(!root.path().join("kernels/a").exists());
        let made = entry_in(root.path(), "kernels", "a", |dir| {
            assert!(
                !dir.join("half").exists(),
                "leftovers of the interrupted run"
            );
            Ok(fs::write(dir.join("whole"), "y")?)
        })
        .unwrap();
        let again = entry_in(root.path(), "kernels", "a", |_| bail!("made twice")).unwrap();
        assert_eq!(made, again);
        assert!(again.join("whole").exists());
    }
}

//! A file for node_exporter's textfile collector, which may read it at any moment.
//!
//! # Approach
//! The text goes to a new file beside it, which is then renamed. The collector reads names that end
//! with `.prom`: the new file's name does not. Its reader is usually another user, so all users may
//! read it, as far as its folder permits.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Its permissions.
const MODE: u32 = 0o644;

/// Writes the file as a whole, or leaves the old one.
///
/// # Errors
/// It cannot be written: one line that names it.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let beside = beside(path);
    let written = beside
        .as_ref()
        .ok_or_else(|| io::Error::other("this is not a file name"));
    let written = written.and_then(|beside| {
        replace(path, beside, text).inspect_err(|_| {
            // It may not exist.
            let _gone = std::fs::remove_file(beside);
        })
    });
    written.map_err(|error| format!("--textfile {}: cannot write: {error}", path.display()))
}

/// The new file, which belongs to this process alone.
fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    Some(path.with_file_name(format!(".{name}.{}", std::process::id())))
}

fn replace(path: &Path, beside: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    // A file left by a process with the same id, or a planted link, is not written to.
    let _gone = std::fs::remove_file(beside);
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_appears_as_a_whole_and_everybody_may_read_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("uksm.prom");
        std::fs::write(&path, "old, and longer").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let names: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o600, 0o600);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_and_nothing_is_left() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("none/uksm.prom");
        let line = write(&missing, "x").unwrap_err();
        assert!(line.starts_with("--textfile "), "{line}");
        assert!(
            line.contains("none/uksm.prom: cannot write: No such file"),
            "{line}"
        );
        // A folder is in its place.
        let folder = root.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        write(&folder, "x").unwrap_err();
        let names: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(
            write(Path::new("/"), "x")
                .unwrap_err()
                .contains("not a file name")
        );
    }
}

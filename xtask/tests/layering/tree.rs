//! Reads the real tree, and makes small ones for broken rules.

use std::fs;
use std::path::{Path, PathBuf};

use xtask::own_files;

pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(1)
        .expect("a crate lies two folders deep")
        .into()
}

/// All files below a folder that are ours, sorted; none if there is no folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    if !folder.exists() {
        return Vec::new();
    }
    own_files::below(folder).expect("a folder can be read")
}

pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|own| extensions.iter().any(|extension| own == *extension))
}

pub(crate) fn sources(root: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    files(root)
        .into_iter()
        .filter(|path| has_extension(path, extensions))
        .collect()
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A small tree with these files, to break a rule in.
pub(crate) fn small_tree(contents: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder can be made");
    for (path, contents) in contents {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .expect("a folder can be made");
        fs::write(path, contents).expect("a file can be written");
    }
    root
}

//! Debian's kernel source: for checkpatch and for kernels that are built from it.
//!
//! The `linux-source` package has the source as one tar archive. The files that
//! are needed are unpacked from it, and the archive is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::kernel::Series;
use crate::packages::{self, Package};
use crate::{cache, tool};

/// The series whose source is used for checkpatch and for kernels that are built from it.
pub const SOURCE_SERIES: Series = Series {
    major: 6,
    minor: 12,
};

const CHECKPATCH_FILES: [&str; 3] = [
    "scripts/checkpatch.pl",
    "scripts/spelling.txt",
    "scripts/const_structs.checkpatch",
];

/// The source package of [`SOURCE_SERIES`].
///
/// # Errors
/// The sources of packages do not have it.
pub fn package() -> Result<Package> {
    package_of(SOURCE_SERIES)
}

/// The source package of a series.
///
/// # Errors
/// The sources of packages do not have it.
pub fn package_of(series: Series) -> Result<Package> {
    let name = format!("linux-source-{series}");
    packages::candidate(&name)?.with_context(|| packages::unknown(&name))
}

/// The folder with `scripts/checkpatch.pl` and its word lists.
///
/// # Errors
/// The package cannot be obtained, or has no such file.
pub fn checkpatch() -> Result<PathBuf> {
    let package = package()?;
    cache::entry("checkpatch", &package.version, |folder| {
        eprintln!(
            "getting checkpatch.pl from {} {}",
            package.name, package.version
        );
        extract(&package, folder, &CHECKPATCH_FILES)
    })
}

/// Extracts the named files (all, if none is named) from the source package into `folder`.
///
/// # Errors
/// The package cannot be obtained, or has no such file.
pub fn extract(package: &Package, folder: &Path, files: &[&str]) -> Result<()> {
    let unpacked = folder.join("source-package");
    fs::create_dir_all(&unpacked)?;
    packages::unpack(std::slice::from_ref(package), &unpacked)?;
    let archive = fs::read_dir(unpacked.join("usr/src"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains(".tar"));
    let Some(archive) = archive else {
        bail!("{}: no archive in it", package.name)
    };
    let mut tar = tool::command("tar");
    tar.arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .arg("--strip-components=1");
    if !files.is_empty() {
        let top = archive
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.split(".tar").next());
        let top = top.context("the archive has a name")?;
        tar.args(files.iter().map(|file| format!("{top}/{file}")));
    }
    tool::output(&mut tar)?;
    fs::remove_dir_all(&unpacked).with_context(|| unpacked.display().to_string())
}

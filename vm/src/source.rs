//! Debian's kernel source: for checkpatch and for kernels that are built from it.
//!
//! The `linux-source` package has the source as one tar archive. The files that
//! are needed are unpacked from it, and the archive is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::debian::{self, Release};
use crate::kernel::Series;
use crate::packages::{self, Package, Sources};
use crate::{cache, tool};

/// The series whose checkpatch is used.
const CHECKPATCH_SERIES: Series = Series {
    major: 6,
    minor: 12,
};

const CHECKPATCH_FILES: [&str; 3] = [
    "scripts/checkpatch.pl",
    "scripts/spelling.txt",
    "scripts/const_structs.checkpatch",
];

/// The package with the source of a series.
#[derive(Debug, Clone)]
pub struct KernelSource {
    sources: Sources,
    package: Package,
}

impl KernelSource {
    /// The one of the machine's package sources, or else of Debian 13 with its backports, or 12.
    ///
    /// # Errors
    /// None offers it.
    pub fn of(series: Series) -> Result<Self> {
        let name = format!("linux-source-{series}");
        let machine = Sources::default();
        if let Some(package) = machine.candidate(&name)? {
            return Ok(Self {
                sources: machine,
                package,
            });
        }
        for release in Release::ALL {
            let sources = debian::sources(release)?;
            if let Some(package) = sources.candidate(&name)? {
                return Ok(Self { sources, package });
            }
        }
        bail!(
            "{}; Debian 12 and 13 have none, either",
            packages::unknown(&name)
        )
    }

    /// Its package, which names its version.
    #[must_use]
    pub const fn package(&self) -> &Package {
        &self.package
    }

    /// Extracts the named files (all, if none is named) into `folder`.
    ///
    /// # Errors
    /// The package cannot be obtained, or has no such file.
    pub fn extract(&self, folder: &Path, files: &[&str]) -> Result<()> {
        let unpacked = folder.join("source-package");
        fs::create_dir_all(&unpacked)?;
        self.sources
            .unpack(std::slice::from_ref(&self.package), &unpacked)?;
        let archive = fs::read_dir(unpacked.join("usr/src"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().contains(".tar"));
        let Some(archive) = archive else {
            bail!("{}: no archive in it", self.package.name)
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
}

/// The folder with `scripts/checkpatch.pl` and its word lists.
///
/// # Errors
/// The package cannot be obtained, or has no such file.
pub fn checkpatch() -> Result<PathBuf> {
    let source = KernelSource::of(CHECKPATCH_SERIES)?;
    let package = source.package();
    cache::entry("checkpatch", &package.version, |folder| {
        eprintln!(
            "getting checkpatch.pl from {} {}",
            package.name, package.version
        );
        source.extract(folder, &CHECKPATCH_FILES)
    })
}

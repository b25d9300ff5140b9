//! The guest's only file system.
//!
//! Problem: it is unpacked by an emulated CPU at every boot, so it must be
//! small.
//!
//! Approach: a list of folders, files and links, written as an uncompressed
//! newc archive (decompression costs the guest more than reading). Folders
//! above a file are added without being named.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use cpio::NewcBuilder;
use cpio::newc::{self, ModeFileType};

use crate::libraries;

#[derive(Debug, Clone)]
enum Node {
    Folder,
    File { contents: Vec<u8>, mode: u32 },
    Link { target: String },
}

/// The archive's contents, by path in the guest.
#[derive(Debug, Default)]
pub struct Initramfs {
    nodes: BTreeMap<PathBuf, Node>,
}

impl Initramfs {
    /// An archive with the folders that `/init` mounts on.
    #[must_use]
    pub fn new() -> Self {
        let mut archive = Self::default();
        for folder in [
            "/bin", "/dev", "/etc", "/modules", "/proc", "/results", "/run", "/sys", "/tmp",
        ] {
            archive.folder(Path::new(folder));
        }
        archive
    }

    /// Adds a folder and those above it.
    pub fn folder(&mut self, path: &Path) {
        for ancestor in path
            .ancestors()
            .filter(|a| a.components().any(|c| matches!(c, Component::Normal(_))))
        {
            self.nodes
                .entry(ancestor.to_path_buf())
                .or_insert(Node::Folder);
        }
    }

    /// Adds a file with these contents.
    pub fn contents(&mut self, path: impl AsRef<Path>, contents: Vec<u8>, mode: u32) {
        self.place(path.as_ref(), Node::File { contents, mode });
    }

    /// Adds a file of this machine, with the shared libraries it needs.
    ///
    /// # Errors
    /// It cannot be read, or a library is missing.
    pub fn program(
        &mut self,
        path: impl AsRef<Path>,
        file: &Path,
        search: &[PathBuf],
    ) -> Result<()> {
        self.file(path, file, 0o755)?;
        for library in libraries::needed_by(file, search)? {
            self.file(&library.guest, &library.file, 0o755)?;
        }
        Ok(())
    }

    /// Adds a file of this machine as it is.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file(&mut self, path: impl AsRef<Path>, file: &Path, mode: u32) -> Result<()> {
        let contents = fs::read(file).with_context(|| file.display().to_string())?;
        self.contents(path, contents, mode);
        Ok(())
    }

    /// Adds a folder of this machine with all its contents; links stay links.
    ///
    /// # Errors
    /// Something cannot be read, or a link is no text.
    pub fn tree(&mut self, path: impl AsRef<Path>, folder: &Path) -> Result<()> {
        let path = path.as_ref();
        self.folder(path);
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let (here, there) = (entry.path(), path.join(entry.file_name()));
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.tree(&there, &here)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&here)?;
                let target = target
                    .to_str()
                    .with_context(|| here.display().to_string())?;
                self.link(&there, target);
            } else {
                self.file(&there, &here, 0o755)?;
            }
        }
        Ok(())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: impl AsRef<Path>, target: &str) {
        self.place(
            path.as_ref(),
            Node::Link {
                target: target.to_owned(),
            },
        );
    }

    /// Adds everything of another archive.
    pub fn absorb(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
    }

    fn place(&mut self, path: &Path, node: Node) {
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        self.nodes.insert(path.to_path_buf(), node);
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// The output cannot be written, or a file is larger than the format
    /// allows (4 GiB).
    pub fn write(&self, mut output: impl Write) -> Result<()> {
        // Parents sort before their contents, as the kernel wants them.
        for (number, (path, node)) in (1_u32..).zip(&self.nodes) {
            let name = path
                .strip_prefix("/")
                .unwrap_or(path)
                .to_string_lossy()
                .into_owned();
            let (kind, mode, contents): (_, _, &[u8]) = match node {
                Node::Folder => (ModeFileType::Directory, 0o755, &[]),
                Node::File { contents, mode } => (ModeFileType::Regular, *mode, contents),
                Node::Link { target } => (ModeFileType::Symlink, 0o777, target.as_bytes()),
            };
            let length =
                u32::try_from(contents.len()).with_context(|| format!("{name} is too large"))?;
            let entry = NewcBuilder::new(&name)
                .ino(number)
                .mode(mode)
                .set_mode_file_type(kind);
            let mut writer = entry.write(output, length);
            writer.write_all(contents)?;
            output = writer.finish()?;
        }
        newc::trailer(output)?.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_has_parents_before_their_files_and_keeps_contents() {
        let mut archive = Initramfs::new();
        archive.contents("/a/b/c", b"hello".to_vec(), 0o644);
        archive.link("/a/l", "b/c");
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let mut names = Vec::new();
        let mut rest = bytes.as_slice();
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let name = reader.entry().name().to_owned();
            let mut contents = Vec::new();
            rest = reader.to_writer(&mut contents).unwrap();
            if name == "a/b/c" {
                assert_eq!(contents, b"hello");
            }
            names.push(name);
        }
        let place = |name: &str| names.iter().position(|n| n == name).unwrap();
        assert!(
            place("a") < place("a/b") && place("a/b") < place("a/b/c") && place("a") < place("a/l")
        );
    }
}

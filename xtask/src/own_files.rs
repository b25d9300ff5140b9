//! The files of the tree that are ours: no products, no results, no history.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Folders without files of ours.
const OTHERS: [&str; 3] = ["target", "results", ".git"];

/// Our files below a folder, sorted.
///
/// # Errors
/// A folder cannot be read.
pub fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !OTHERS.contains(&name.as_ref()) {
                files.extend(below(&path)?);
            }
        } else if !name.ends_with(".mod.c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

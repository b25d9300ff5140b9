//! Shared libraries of a dynamic program.
//!
//! Approach: the dynamic loader itself lists the libraries that it would load (`ldd`), with the
//! folder of unpacked packages searched first. A static program has none.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::tool;

/// A library: its path for the guest's loader, and the file here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Path in the guest.
    pub guest: PathBuf,
    /// File on this machine.
    pub file: PathBuf,
}

/// Folder of libraries in the guest; one of the loader's own.
const GUEST_FOLDER: &str = "/lib/x86_64-linux-gnu";

/// The libraries that `program` needs, the loader included.
///
/// # Errors
/// One is neither in `search` nor on this machine.
pub fn needed_by(program: &Path, search: &[PathBuf]) -> Result<Vec<Library>> {
    let paths = search
        .iter()
        .map(|p| p.display().to_string())
        .collect::<Vec<_>>()
        .join(":");
    let mut command = tool::command("ldd");
    command.arg(program).env("LD_LIBRARY_PATH", paths);
    let output = command.output().context("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("statically linked") {
        let complaint = String::from_utf8_lossy(&output.stderr);
        if complaint.contains("not a dynamic executable") || text.contains("statically linked") {
            return Ok(Vec::new());
        }
        bail!("ldd {}: {complaint}", program.display());
    }
    parse(&text).with_context(|| format!("ldd {}", program.display()))
}

fn parse(text: &str) -> Result<Vec<Library>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, "=>", "not", "found"] => bail!("library {name} is not found"),
            [name, "=>", file, _address] if file.starts_with('/') => {
                libraries.push(Library {
                    guest: Path::new(GUEST_FOLDER).join(name),
                    file: PathBuf::from(file),
                });
            }
            [loader, _address] if loader.starts_with('/') => {
                libraries.push(Library {
                    guest: PathBuf::from(loader),
                    file: PathBuf::from(loader),
                });
            }
            _ => {}
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found_and_the_vdso_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let libraries = parse(text).unwrap();
        assert_eq!(libraries.len(), 2);
        assert_eq!(
            libraries[0].guest,
            Path::new("/lib/x86_64-linux-gnu/libc.so.6")
        );
        assert_eq!(libraries[1].guest, Path::new("/lib64/ld-linux-x86-64.so.2"));
    }

    #[test]
    fn missing_library_is_an_error_that_names_it() {
        let error = parse("\tlibjemalloc.so.2 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libjemalloc.so.2"), "{error}");
    }
}

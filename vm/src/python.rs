//! A Python for the guest.
//!
//! Problem: experiments merge memory of real programs, and a build machine need not have them.
//!
//! Approach: Debian's packages of the interpreter and its standard library are unpacked into the
//! cache, as [`crate::redis`] is. Installing them would compile the modules, so they are compiled
//! here, by that interpreter, into files that are the same each time.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::initramfs::Initramfs;
use crate::{cache, packages, tool};

/// Its path in the guest; its standard library is beside it.
const PROGRAM: &str = "/usr/bin/python3";

/// Packs the interpreter and its standard library.
///
/// # Errors
/// The sources do not offer it, or it does not run here.
pub fn pack(files: &mut Initramfs) -> Result<()> {
    let depends = packages::depends("python3")?;
    let name = depends.into_iter().find(|name| is_version(name));
    let name = name.with_context(|| packages::unknown("python3"))?;
    let package = packages::candidate(&name)?.with_context(|| packages::unknown(&name))?;
    let key = format!("{}_{}", package.name, package.version.replace(':', "_"));
    let root = cache::entry("python", &key, |root| {
        eprintln!("getting {name} {}", package.version);
        let parts = packages::closure(&[&name], |needed| {
            needed.starts_with("python3.")
                || (needed.starts_with("lib") && !needed.starts_with("libc6"))
        })?;
        packages::unpack(&parts, root)?;
        let mut compile = tool::command(&program(root, &name).display().to_string());
        compile
            .env("PYTHONHOME", root.join("usr"))
            .env("LD_LIBRARY_PATH", search_path(root))
            .args(["-m", "compileall", "-q", "-j", "1"])
            .args(["--invalidation-mode", "unchecked-hash", "-s"])
            .arg(root)
            .args(["-p", "/"])
            .arg(root.join("usr/lib").join(&name));
        tool::output(&mut compile).map(|_| ())
    })?;
    files.program(
        PROGRAM,
        &program(&root, &name),
        &packages::library_folders(&root),
    )?;
    let standard = Path::new("usr/lib").join(&name);
    files.tree(Path::new("/").join(&standard), &root.join(&standard))?;
    for library in extension_libraries(&root, &standard)? {
        files.file(&library.guest, &library.file, 0o755)?;
    }
    Ok(())
}

/// Whether this is the package of one version of the interpreter, as python3.11.
fn is_version(name: &str) -> bool {
    let digits = name.strip_prefix("python3.");
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn program(root: &Path, name: &str) -> PathBuf {
    root.join("usr/bin").join(name)
}

fn search_path(root: &Path) -> String {
    let folders = packages::library_folders(root);
    let folders: Vec<String> = folders
        .iter()
        .map(|dir| dir.display().to_string())
        .collect();
    folders.join(":")
}

/// Libraries that the extension modules of the standard library need beside the interpreter's own.
fn extension_libraries(root: &Path, standard: &Path) -> Result<Vec<crate::libraries::Library>> {
    let folder = root.join(standard).join("lib-dynload");
    let mut needed = Vec::new();
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        needed.extend(crate::libraries::needed_by(
            &entry?.path(),
            &packages::library_folders(root),
        )?);
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn the_interpreter_is_told_from_its_parts() {
        assert!(is_version("python3.11"));
        for other in [
            "python3-minimal",
            "python3.11-minimal",
            "libpython3-stdlib",
            "python3.",
        ] {
            assert!(!is_version(other), "{other}");
        }
    }
}

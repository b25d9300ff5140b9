//! A PostgreSQL for the guest.
//!
//! Problem: experiments merge beside a database, on machines that need not have one, and installing
//! one would start it.
//!
//! Approach: Debian's packages of the server and its client are unpacked into the cache, as
//! [`crate::redis`] is, and packed in the folders of an installation: the server looks for its
//! parts beside itself. The compiler of queries (LLVM) is left out. To make a database the server
//! needs a shell, which is busybox's.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::initramfs::Initramfs;
use crate::{cache, packages};

/// Programs that the guest gets.
const PROGRAMS: [&str; 4] = ["postgres", "initdb", "pgbench", "psql"];

/// Packs the server with its dependencies and those of its users.
///
/// # Errors
/// The sources do not offer it.
pub fn pack(files: &mut Initramfs) -> Result<()> {
    let depends = packages::depends("postgresql")?;
    let mut servers = depends
        .iter()
        .filter_map(|name| Some((name, version(name)?)));
    let (name, version) = servers
        .next()
        .with_context(|| packages::unknown("postgresql"))?;
    let client = format!("postgresql-client-{version}");
    let package = packages::candidate(name)?.with_context(|| packages::unknown(name))?;
    let key = format!("{name}_{}", package.version.replace(':', "_"));
    let root = cache::entry("postgres", &key, |root| {
        eprintln!("getting {name} {}", package.version);
        let parts = packages::closure(&[name, &client], |needed| {
            needed.starts_with("lib")
                && !["libc6", "libllvm"]
                    .iter()
                    .any(|left| needed.starts_with(left))
        })?;
        packages::unpack(&parts, root)
    })?;
    let libraries = packages::library_folders(&root);
    let home = Path::new("usr/lib/postgresql").join(version);
    for program in PROGRAMS {
        let path = home.join("bin").join(program);
        files.program(Path::new("/").join(&path), &root.join(&path), &libraries)?;
    }
    // Modules of the server: languages, encodings.
    let modules = home.join("lib");
    let folder = root.join(&modules);
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.ends_with(".so") && !text.starts_with("llvmjit") {
            let path = Path::new("/").join(&modules).join(&name);
            files.file(path, &folder.join(&name), 0o755)?;
        }
    }
    let shared = Path::new("usr/share/postgresql").join(version);
    files.tree(Path::new("/").join(&shared), &root.join(&shared))
}

/// The version of a package of the server, as in postgresql-15.
fn version(name: &str) -> Option<&str> {
    let digits = name.strip_prefix("postgresql-")?;
    let is_version = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_version.then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_server_is_told_from_its_parts() {
        assert_eq!(version("postgresql-15"), Some("15"));
        for other in ["postgresql-common", "postgresql-client-15", "postgresql-"] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}

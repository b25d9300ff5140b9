//! A Java runtime for the guest.
//!
//! Problem: an experiment runs Java virtual machines, and a build machine need not have one.
//!
//! Approach: Debian's runtime without graphics is unpacked into the cache, as [`crate::redis`] is.
//! It has the compiler's classes (`jdk.compiler`), so the guest compiles its programs itself.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::initramfs::Initramfs;
use crate::{cache, libraries, packages};

/// Path of its program in the guest.
const PROGRAM: &str = "/bin/java";

/// Packs the runtime of the version that Debian takes by default.
///
/// # Errors
/// The sources do not offer it.
pub fn pack(files: &mut Initramfs) -> Result<()> {
    const DEFAULT: &str = "default-jre-headless";
    let mut depends = packages::depends(DEFAULT)?.into_iter();
    let name = depends.find_map(|name| version(&name).map(|version| (version, name.clone())));
    let (version, name) = name.with_context(|| packages::unknown(DEFAULT))?;
    let package = packages::candidate(&name)?.with_context(|| packages::unknown(&name))?;
    let key = format!("{name}_{}", package.version.replace(':', "_"));
    let root = cache::entry("java", &key, |root| {
        eprintln!("getting {name} {}", package.version);
        let parts = packages::closure(&[&name], |needed| {
            ["libstdc++6", "libgcc-s1", "zlib1g"].contains(&needed)
        })?;
        packages::unpack(&parts, root)
    })?;
    let runtime = format!("usr/lib/jvm/java-{version}-openjdk-amd64");
    // Settings are links into the second folder.
    for folder in [&runtime, &format!("etc/java-{version}-openjdk")] {
        files.tree(Path::new("/").join(folder), &root.join(folder))?;
    }
    files.link(PROGRAM, &format!("/{runtime}/bin/java"));
    let search = packages::library_folders(&root);
    for file in ["bin/java", "lib/server/libjvm.so"] {
        for library in libraries::needed_by(&root.join(&runtime).join(file), &search)? {
            files.file(&library.guest, &library.file, 0o755)?;
        }
    }
    Ok(())
}

/// The version in the name of a runtime's package, such as 17.
fn version(package: &str) -> Option<String> {
    let version = package.strip_prefix("openjdk-")?;
    let version = version.strip_suffix("-jre-headless")?;
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_runtime_is_told_from_other_packages() {
        assert_eq!(version("openjdk-17-jre-headless").as_deref(), Some("17"));
        for other in [
            "openjdk-17-jre",
            "openjdk--jre-headless",
            "ca-certificates-java",
        ] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}

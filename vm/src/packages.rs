//! The machine's own package sources.
//!
//! Problem: kernels, headers and a database server for the demo are needed as
//! files; installing them would change the machine.
//!
//! Approach: `apt-get download` fetches from the machine's configured sources, and `dpkg-deb`
//! unpacks. This file names no server. Package lists may name a version that the archive no longer
//! has: then they are refreshed once, if we are root; otherwise the error describes how to do it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::tool;

/// A package and the version that the sources offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Package {
    /// Whether its version is this one or a later one, as dpkg orders them.
    ///
    /// # Errors
    /// dpkg does not run.
    pub fn is_at_least(&self, version: &str) -> Result<bool> {
        let status = tool::command("dpkg")
            .args(["--compare-versions", &self.version, "ge", version])
            .status();
        Ok(status.context("dpkg")?.success())
    }
}

/// The version that would be installed, if the sources have the package.
///
/// # Errors
/// apt-cache does not run.
pub fn candidate(name: &str) -> Result<Option<Package>> {
    let text = tool::output(tool::command("apt-cache").args(["policy", name]))?;
    Ok(parse_candidate(&text).map(|version| Package {
        name: name.to_owned(),
        version,
    }))
}

fn parse_candidate(policy: &str) -> Option<String> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

/// Dependencies of a package; the first of alternatives.
///
/// # Errors
/// apt-cache does not know the package.
pub fn depends(name: &str) -> Result<Vec<String>> {
    let text = tool::output(tool::command("apt-cache").args(["depends", "--important", name]))?;
    Ok(parse_depends(&text))
}

fn parse_depends(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut alternative = false;
    for line in text.lines() {
        let is_alternative = line.starts_with(" |");
        let entry = line.trim_start_matches([' ', '|']);
        let name = entry
            .strip_prefix("Depends: ")
            .or_else(|| entry.strip_prefix("PreDepends: "));
        if let Some(name) = name {
            if !alternative {
                names.push(name.trim_matches(['<', '>']).to_owned());
            }
            alternative = is_alternative;
        }
    }
    names
}

/// The packages that `roots` need, themselves included, as far as `follow` returns true.
///
/// # Errors
/// A package is unknown.
pub fn closure(roots: &[&str], follow: impl Fn(&str) -> bool) -> Result<Vec<Package>> {
    let mut seen: BTreeSet<String> = roots.iter().map(|&name| name.to_owned()).collect();
    let mut queue: VecDeque<String> = seen.iter().cloned().collect();
    let mut packages = Vec::new();
    while let Some(name) = queue.pop_front() {
        let Some(package) = candidate(&name)? else {
            bail!("{}", unknown(&name))
        };
        packages.push(package);
        for needed in depends(&name)? {
            if follow(&needed) && seen.insert(needed.clone()) {
                queue.push_back(needed);
            }
        }
    }
    Ok(packages)
}

/// The error text for a package that the sources do not offer.
#[must_use]
pub fn unknown(name: &str) -> String {
    format!(
        "the machine's package sources offer no {name}: check /etc/apt, then run `apt-get update` as root"
    )
}

/// Downloads packages into a folder.
///
/// # Errors
/// The sources do not have them, even after a refresh of the lists.
pub fn download(packages: &[Package], folder: &Path) -> Result<Vec<PathBuf>> {
    let fetch = || {
        let mut command = tool::command("apt-get");
        command.args(["download", "-q", "-o", "Acquire::Retries=3"]);
        if nix::unistd::geteuid().is_root() {
            // The unprivileged user that apt would use cannot write here.
            command.args(["-o", "APT::Sandbox::User=root"]);
        }
        command
            .args(packages.iter().map(|p| format!("{}={}", p.name, p.version)))
            .current_dir(folder);
        tool::output(&mut command)
    };
    if let Err(first) = fetch() {
        if !nix::unistd::geteuid().is_root() {
            return Err(first
                .context("downloading packages failed; run `sudo apt-get update` and try again"));
        }
        tool::output(tool::command("apt-get").args(["update", "-q"]))
            .context("refreshing the package lists")?;
        fetch()?;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(|| folder.display().to_string())?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
    files.sort();
    if files.len() != packages.len() {
        bail!(
            "{}: {} packages were asked for, {} came",
            folder.display(),
            packages.len(),
            files.len()
        );
    }
    Ok(files)
}

/// Downloads packages and unpacks them into `root`.
///
/// # Errors
/// As [`download`]; or one cannot be unpacked.
pub fn unpack(packages: &[Package], root: &Path) -> Result<()> {
    let folder = root.join("packages");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for file in download(packages, &folder)? {
        tool::output(tool::command("dpkg-deb").arg("-x").arg(&file).arg(root))?;
    }
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

/// Folders of libraries where packages were unpacked.
#[must_use]
pub fn library_folders(root: &Path) -> [PathBuf; 2] {
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_alternative_stands_for_all() {
        let text = "linux-headers-x\n  Depends: linux-base\n |Depends: linux-image-x\n  Depends: linux-image-x-unsigned\n  PreDepends: gcc-12\n  Depends: <perl:any>\n";
        assert_eq!(
            parse_depends(text),
            ["linux-base", "linux-image-x", "gcc-12", "perl:any"]
        );
    }

    #[test]
    fn package_without_a_candidate_is_not_offered() {
        assert_eq!(
            parse_candidate("x:\n  Installed: (none)\n  Candidate: (none)\n"),
            None
        );
        assert_eq!(
            parse_candidate("x:\n  Installed: (none)\n  Candidate: 6.1.1-1\n"),
            Some("6.1.1-1".into())
        );
        assert_eq!(parse_candidate(""), None);
    }

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let kbuild = Package {
            name: "linux-kbuild-6.1".to_owned(),
            version: "6.1.192-3".to_owned(),
        };
        for (version, expected) in [
            ("6.1.192-2", true),
            ("6.1.192-3", true),
            ("6.1.192-3~bpo1", true),
            ("6.1.192-10", false),
            ("6.12.1-1", false),
        ] {
            assert_eq!(kbuild.is_at_least(version).unwrap(), expected, "{version}");
        }
    }
}

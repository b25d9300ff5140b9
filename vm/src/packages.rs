//! Package sources: the machine's own, or those of another state of apt.
//!
//! Problem: kernels, headers and a database server for the demo are needed as
//! files; installing them would change the machine.
//!
//! Approach: `apt-get download` fetches from the configured sources, and `dpkg-deb`
//! unpacks. This file names no server. Package lists may name a version that the archive no longer
//! has: then they are refreshed once, if we are root; otherwise the error describes how to do it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Sources of packages. The functions of this module use those of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// Folder of apt's state; none for the machine's own.
    state: Option<PathBuf>,
}

impl Sources {
    /// Those of a state of apt's own: a folder with `sources.list`, `status` and `lists`.
    #[must_use]
    pub fn of_state(folder: &Path) -> Self {
        Self {
            state: Some(folder.to_owned()),
        }
    }

    /// A command of apt's for these sources.
    fn command(&self, name: &str) -> Command {
        let mut command = tool::command(name);
        if let Some(state) = &self.state {
            for (option, place) in [
                ("Dir::State", ""),
                ("Dir::State::lists", "lists"),
                ("Dir::State::status", "status"),
                ("Dir::Cache", ""),
                ("Dir::Cache::archives", "archives"),
                ("Dir::Etc::sourcelist", "sources.list"),
            ] {
                let place = state.join(place);
                command
                    .arg("-o")
                    .arg(format!("{option}={}", place.display()));
            }
            for option in ["sourceparts", "preferences", "preferencesparts"] {
                command
                    .arg("-o")
                    .arg(format!("Dir::Etc::{option}=/dev/null"));
            }
            command.args(["-o", "Acquire::Languages=none"]);
        }
        if name == "apt-get" && nix::unistd::geteuid().is_root() {
            // The unprivileged user that apt would use cannot write in our folders.
            command.args(["-o", "APT::Sandbox::User=root"]);
        }
        command
    }

    /// Gets the lists of packages.
    ///
    /// # Errors
    /// The servers cannot be reached, or do not have these sources.
    pub fn update(&self) -> Result<()> {
        tool::output(
            self.command("apt-get")
                .args(["update", "-q", "--error-on=any"]),
        )
        .context("refreshing the package lists")
        .map(|_| ())
    }

    /// The version that would be installed, if the sources have the package.
    ///
    /// # Errors
    /// apt-cache does not run.
    pub fn candidate(&self, name: &str) -> Result<Option<Package>> {
        let text = tool::output(self.command("apt-cache").args(["policy", name]))?;
        Ok(parse_candidate(&text).map(|version| Package {
            name: name.to_owned(),
            version,
        }))
    }

    /// Dependencies of a package; the first of alternatives.
    ///
    /// # Errors
    /// apt-cache does not know the package.
    pub fn depends(&self, name: &str) -> Result<Vec<String>> {
        let text = tool::output(
            self.command("apt-cache")
                .args(["depends", "--important", name]),
        )?;
        Ok(parse_depends(&text))
    }

    /// Names of packages that begin with this.
    ///
    /// # Errors
    /// apt-cache does not run.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = tool::output(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Downloads packages into a folder.
    ///
    /// # Errors
    /// The sources do not have them, even after a refresh of the lists.
    pub fn download(&self, packages: &[Package], folder: &Path) -> Result<Vec<PathBuf>> {
        let files = self.fetch(folder, |command| {
            command
                .arg("download")
                .args(packages.iter().map(|p| format!("{}={}", p.name, p.version)));
        })?;
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

    /// Runs apt-get in a folder, and lists the packages there.
    fn fetch(&self, folder: &Path, arguments: impl Fn(&mut Command)) -> Result<Vec<PathBuf>> {
        let fetch = || {
            let mut command = self.command("apt-get");
            command.args(["-q", "-o", "Acquire::Retries=3"]);
            arguments(&mut command);
            tool::output(command.current_dir(folder))
        };
        if let Err(first) = fetch() {
            if self.state.is_none() && !nix::unistd::geteuid().is_root() {
                return Err(first.context(
                    "downloading packages failed; run `sudo apt-get update` and try again",
                ));
            }
            self.update()?;
            fetch()?;
        }
        let mut files: Vec<PathBuf> = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(|| folder.display().to_string())?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
        files.sort();
        Ok(files)
    }

    /// Downloads packages and unpacks them into `root`.
    ///
    /// # Errors
    /// As [`Sources::download`]; or one cannot be unpacked.
    pub fn unpack(&self, packages: &[Package], root: &Path) -> Result<()> {
        unpack_files(root, |folder| self.download(packages, folder))
    }

    /// Downloads packages with all that they need, as if nothing were installed, and unpacks them
    /// into `root`. For sources of a state of their own, in which nothing is installed.
    ///
    /// # Errors
    /// As [`Sources::unpack`].
    pub fn unpack_with_dependencies(&self, names: &[&str], root: &Path) -> Result<()> {
        unpack_files(root, |folder| {
            fs::create_dir(folder.join("partial"))?;
            self.fetch(folder, |command| {
                command
                    .args([
                        "install",
                        "--yes",
                        "--download-only",
                        "--no-install-recommends",
                    ])
                    .arg("-o")
                    .arg(format!("Dir::Cache::archives={}", folder.display()))
                    .args(names);
            })
        })
    }
}

/// Unpacks what `get` puts into a folder.
fn unpack_files(root: &Path, get: impl FnOnce(&Path) -> Result<Vec<PathBuf>>) -> Result<()> {
    let folder = root.join("packages");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for file in get(&folder)? {
        tool::output(tool::command("dpkg-deb").arg("-x").arg(&file).arg(root))?;
    }
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

/// [`Sources::candidate`] of the machine.
///
/// # Errors
/// apt-cache does not run.
pub fn candidate(name: &str) -> Result<Option<Package>> {
    Sources::default().candidate(name)
}

/// [`Sources::depends`] of the machine.
///
/// # Errors
/// apt-cache does not know the package.
pub fn depends(name: &str) -> Result<Vec<String>> {
    Sources::default().depends(name)
}

fn parse_candidate(policy: &str) -> Option<String> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
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

/// [`Sources::unpack`] of the machine.
///
/// # Errors
/// They cannot be downloaded, or one cannot be unpacked.
pub fn unpack(packages: &[Package], root: &Path) -> Result<()> {
    Sources::default().unpack(packages, root)
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

//! Another release of Debian beside the machine's own.
//!
//! Problem: kernels 7.x are packages of Debian 13's backports, kernel 6.1 is one of Debian 12. The
//! headers contain programs that need their release's C library, and kernels are built with flags
//! that other compilers do not accept. The machine may be of either release, and nothing is
//! installed on it.
//!
//! Approach: apt gets a state of its own for a release in the cache, whose sources are the
//! release's suites on the servers of the machine's own sources. The compiler and what it needs are
//! unpacked, not installed, into a folder of the cache. A command runs there by chroot, in a mount
//! namespace of its own, in which the cache has the path that it has outside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::packages::Sources;
use crate::{cache, tool};

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Debian 12, with security updates. Its backports have no kernel that Debian 13 lacks.
    Bookworm,
    /// Debian 13, with security updates and backports.
    Trixie,
}

impl Release {
    /// All, in the order in which they are asked for a kernel.
    pub const ALL: [Self; 2] = [Self::Trixie, Self::Bookworm];

    /// Its name, for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "Debian 12",
            Self::Trixie => "Debian 13",
        }
    }

    /// Its name in package sources.
    const fn codename(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// Its suites, and the label by which apt knows their server.
    const fn suites(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Bookworm => &[
                ("Debian", "bookworm"),
                ("Debian-Security", "bookworm-security"),
            ],
            Self::Trixie => &[
                ("Debian", "trixie"),
                ("Debian", "trixie-backports"),
                ("Debian-Security", "trixie-security"),
            ],
        }
    }
}

/// The key of Debian's archive, if the machine has it; else the keys that apt trusts by itself.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Packages of every userland, besides the compiler.
const BUILD_TOOLS: [&str; 16] = [
    "base-files",
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "dwarves",
    "findutils",
    "gawk",
    "gcc",
    "grep",
    "kmod",
    "make",
    "perl-base",
    "sed",
    "xz-utils",
];

/// The file of a state that is written when its lists are.
const UPDATED: &str = "updated";
/// Longest age of the lists: Debian's backports keep only the newest kernel.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// Links that the packages make when they are installed.
const LINKS: [(&str, &str); 1] = [("usr/bin/awk", "gawk")];

/// The package sources of a release, with lists that are at most a day old. Older ones are used,
/// with a message, if the servers cannot be reached.
///
/// # Errors
/// The machine's sources are none of Debian's, or there are no lists and they cannot be obtained.
pub fn sources(release: Release) -> Result<Sources> {
    let name = release.name();
    let list = source_list(release)?;
    let key = format!("{}_{}", release.codename(), digest(&list));
    let state = cache::entry("apt", &key, |state| {
        eprintln!("getting the package lists of {name}");
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(folder)).with_context(|| state.display().to_string())?;
        }
        // Nothing is installed.
        fs::write(state.join("status"), "")?;
        fs::write(state.join("sources.list"), &list)?;
        update(state)
    })?;
    let age = fs::metadata(state.join(UPDATED))
        .and_then(|file| file.modified()?.elapsed().map_err(io::Error::other));
    if !age.is_ok_and(|age| age < MAX_AGE)
        && let Err(error) = update(&state)
    {
        eprintln!("using old package lists of {name}: {error:#}");
    }
    Ok(Sources::of_state(&state))
}

/// Gets the lists of packages of a state, and notes when.
fn update(state: &Path) -> Result<()> {
    Sources::of_state(state).update()?;
    let updated = state.join(UPDATED);
    fs::write(&updated, "").with_context(|| updated.display().to_string())
}

/// The sources in the format of sources.list(5).
fn source_list(release: Release) -> Result<String> {
    let signed = if Path::new(KEYRING).exists() {
        format!("[signed-by={KEYRING}] ")
    } else {
        String::new()
    };
    let mut list = String::new();
    for (label, suite) in release.suites() {
        let server = server(label)?;
        list += &format!("deb {signed}{server} {suite} main\n");
    }
    Ok(list)
}

/// The server of the machine's first source with this label. A new machine may have the lists of
/// some of its sources only: then root gets them all.
fn server(label: &str) -> Result<String> {
    if let Some(server) = listed_server(label)? {
        return Ok(server);
    }
    if nix::unistd::geteuid().is_root() {
        Sources::default().update()?;
    }
    listed_server(label)?.with_context(|| {
        format!(
            "the machine's package sources have none of label {label}: check /etc/apt, then run `apt-get update` as root"
        )
    })
}

/// [`server`], by the lists that the machine has.
fn listed_server(label: &str) -> Result<Option<String>> {
    let text = tool::output(tool::command("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        &format!("Label: {label}"),
    ]))?;
    Ok(text.lines().next().map(str::to_owned))
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A Debian that has a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Userland {
    root: PathBuf,
}

impl Userland {
    /// The one with this package of a compiler and further tools, from the cache or the sources.
    ///
    /// # Errors
    /// Its packages cannot be obtained.
    pub fn with_compiler(
        release: Release,
        sources: &Sources,
        compiler: &str,
        tools: &[&str],
    ) -> Result<Self> {
        let name = release.name();
        let Some(package) = sources.candidate(compiler)? else {
            bail!("{name} offers no {compiler}")
        };
        let names: Vec<&str> = BUILD_TOOLS
            .iter()
            .chain(tools)
            .chain(&[compiler])
            .copied()
            .collect();
        let key = format!(
            "{}_{compiler}_{}_{}",
            release.codename(),
            package.version,
            digest(&names.join(" "))
        );
        let root = cache::entry("userlands", &key, |root| {
            eprintln!("getting {name}'s {compiler} {}", package.version);
            sources.unpack_with_dependencies(&names, root)?;
            for (link, target) in LINKS {
                let link = root.join(link);
                std::os::unix::fs::symlink(target, &link)
                    .with_context(|| link.display().to_string())?;
            }
            Ok(())
        })?;
        Ok(Self { root })
    }

    /// A command that runs in a userland, or on the machine if there is none.
    ///
    /// # Errors
    /// There is no cache.
    pub fn command_in(userland: Option<&Self>, program: &str) -> Result<Command> {
        match userland {
            None => Ok(tool::command(program)),
            Some(userland) => userland.command(program),
        }
    }

    /// A command that runs there. It sees the cache, and nothing else of the machine.
    fn command(&self, program: &str) -> Result<Command> {
        const INSIDE: &str = r#"
            root=$1 cache=$2
            shift 2
            mkdir -p "$root$cache"
            mount --bind "$cache" "$root$cache"
            mount --rbind /dev "$root/dev"
            mount --rbind /proc "$root/proc"
            exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
        "#;
        let mut command = tool::command("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--propagation", "private", "--"])
            .args(["sh", "-euc", INSIDE, "sh"])
            .arg(&self.root)
            .arg(cache::root()?)
            .arg(program);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_with_other_servers_have_another_state() {
        assert_ne!(digest("deb a trixie main\n"), digest("deb b trixie main\n"));
    }
}

//! A kernel of a kind that the distribution lacks, built from its source.
//!
//! Problem: on a stock kernel a wrong page flag or a double map often shows only as a crash much
//! later, somewhere else. And no stock kernel is built by clang, with or without checks of indirect
//! calls, although users have such kernels, whose modules must be built so, too.
//!
//! Approach: Debian's kernel source is built with a small configuration: everything the guest needs
//! is built in, and the kernel's own checkers are on (`kernel-config/*.config`). Two processors
//! build it in a quarter of an hour. It is cached by source version and configuration. A symbol
//! that differs from the configuration afterwards is an error. The compiler is the machine's, or
//! that of a Debian beside it ([`Userland`]) where the machine's is too old for a kind.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::debian::{self, Release, Userland};
use crate::kernel::{Kernel, Series, Toolchain};
use crate::source::KernelSource;
use crate::{cache, tool};

const GUEST: &str = include_str!("../kernel-config/guest.config");
const DEBUG: &str = include_str!("../kernel-config/debug.config");
const KASAN: &str = include_str!("../kernel-config/kasan.config");
const CLANG: &str = include_str!("../kernel-config/clang.config");
const CFI: &str = include_str!("../kernel-config/cfi.config");
const SINCE_7: &str = include_str!("../kernel-config/since-7.config");

/// Packages that build a kernel by the clang of Debian 13, besides clang.
const LLVM_TOOLS: [&str; 9] = [
    "bc",
    "bison",
    "flex",
    "gzip",
    "libc6-dev",
    "libelf-dev",
    "lld",
    "llvm",
    "python3",
];

/// The kinds of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With checks of page flags, page tables, locks, freed pages.
    Debug,
    /// With those, and checks of every memory access (KASAN).
    Kasan,
    /// By the machine's clang and lld, and without checks.
    Clang,
    /// By Debian 13's clang and lld, with ThinLTO and checks of indirect calls (kCFI, IBT).
    Cfi,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Kasan, Self::Clang, Self::Cfi];

    /// Its name behind that of the series: "debug" of "6.12-debug".
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Kasan => "kasan",
            Self::Clang => "clang",
            Self::Cfi => "cfi",
        }
    }

    fn configuration(self, series: Series) -> String {
        let files: &[&str] = match self {
            Self::Debug => &[GUEST, DEBUG],
            Self::Kasan => &[GUEST, DEBUG, KASAN],
            Self::Clang => &[GUEST, CLANG],
            Self::Cfi => &[GUEST, CLANG, CFI],
        };
        let of_series = if series.major < 7 { "" } else { SINCE_7 };
        files.concat() + of_series
    }

    const fn toolchain(self) -> Toolchain {
        match self {
            Self::Debug | Self::Kasan => Toolchain::Gnu,
            Self::Clang | Self::Cfi => Toolchain::Llvm,
        }
    }

    /// The Debian whose tools build it; none for the machine's own.
    fn userland(self) -> Result<Option<Userland>> {
        match self {
            Self::Debug | Self::Kasan | Self::Clang => Ok(None),
            Self::Cfi => {
                let release = Release::Trixie;
                let sources = debian::sources(release)?;
                Userland::with_compiler(release, &sources, "clang", &LLVM_TOOLS).map(Some)
            }
        }
    }

    /// Measured on an emulated machine, against a stock kernel.
    const fn time_factor(self) -> u32 {
        match self {
            Self::Debug => 4,
            Self::Kasan => 8,
            Self::Clang | Self::Cfi => 1,
        }
    }
}

/// Gets the kernel of this series and kind from the cache, or builds it.
///
/// # Errors
/// The source cannot be obtained, or does not build as configured.
pub fn get(series: Series, kind: Kind) -> Result<Kernel> {
    let name = format!("{series}-{}", kind.word());
    let source = KernelSource::of(series)?;
    let package = source.package();
    let toolchain = kind.toolchain();
    let configuration = symbols(&kind.configuration(series));
    let digest: String = Sha256::digest(&configuration)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let key = format!("{}_{digest}", package.version);
    let userland = kind.userland()?;
    let tree = cache::entry("built-kernels", &key, |tree| {
        eprintln!("building {name} from {} {}", package.name, package.version);
        source.extract(tree, &[])?;
        build(tree, &configuration, toolchain, userland.as_ref())
    })?;
    let release = fs::read_to_string(tree.join("include/config/kernel.release"))
        .with_context(|| format!("{}: no kernel.release", tree.display()))?;
    Ok(Kernel {
        name,
        series,
        release: release.trim().to_owned(),
        version: key,
        image: tree.join("arch/x86/boot/bzImage"),
        build: tree,
        modules: None,
        toolchain,
        userland,
        time_factor: kind.time_factor(),
    })
}

fn build(
    tree: &Path,
    configuration: &str,
    toolchain: Toolchain,
    userland: Option<&Userland>,
) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = tree.join("uksm.config");
    fs::write(&wanted, configuration).with_context(|| wanted.display().to_string())?;
    let make = |targets: &[&str]| {
        let mut command = Userland::command_in(userland, "make")?;
        command
            .arg("-C")
            .arg(tree)
            .arg(format!("-j{jobs}"))
            .args(["-s", "ARCH=x86_64"])
            .args(toolchain.make_arguments());
        // Of make's variables, since a userland has no environment of the machine.
        command
            .arg(format!("KCONFIG_ALLCONFIG={}", wanted.display()))
            .args(targets);
        command
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env_remove("MFLAGS");
        tool::output(&mut command).map(|_| ())
    };
    make(&["allnoconfig"])?;
    let path = tree.join(".config");
    let actual = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let missing = missing_lines(configuration, &actual);
    if !missing.is_empty() {
        bail!(
            "the kernel's configuration did not take: {}",
            missing.join(", ")
        );
    }
    // `modules` makes Module.symvers, without which no module links against the kernel.
    make(&["bzImage", "modules"])
}

/// The lines that matter; a change of a comment must not cost a build. `CONFIG_A=n` takes an
/// earlier `CONFIG_A=y` out, which "allnoconfig" leaves off.
fn symbols(configuration: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in configuration.lines() {
        if let Some(symbol) = line.strip_suffix("=n") {
            lines.retain(|other| other.strip_suffix("=y") != Some(symbol));
        } else if line.starts_with("CONFIG_") {
            lines.push(line);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Lines of `wanted` that are not in `actual`.
fn missing_lines<'a>(wanted: &'a str, actual: &str) -> Vec<&'a str> {
    let is_there = |line: &&str| actual.lines().any(|other| other == *line);
    wanted.lines().filter(|line| !is_there(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_do_not_make_another_kernel() {
        assert_eq!(
            symbols("# one\nCONFIG_A=y\n"),
            symbols("# two\n\nCONFIG_A=y\n")
        );
    }

    #[test]
    fn symbol_that_a_kind_turns_off_is_not_wanted() {
        assert_eq!(
            symbols("CONFIG_A=y\nCONFIG_AB=y\nCONFIG_A=n\n"),
            "CONFIG_AB=y\n"
        );
    }

    #[test]
    fn symbol_that_was_not_taken_is_named() {
        let actual = "CONFIG_A=y\n# CONFIG_B is not set\n";
        let missing = missing_lines("CONFIG_A=y\nCONFIG_B=y\n", actual);
        assert_eq!(missing, ["CONFIG_B=y"]);
    }
}

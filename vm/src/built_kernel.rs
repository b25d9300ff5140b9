//! A kernel of a kind that the distribution lacks, built from its source.
//!
//! Problem: on a stock kernel a wrong page flag or a double map often shows only as a crash much
//! later, somewhere else. And no stock kernel is built by clang, although its modules must be, too.
//!
//! Approach: Debian's kernel source is built with a small configuration: everything the guest needs
//! is built in, and the kernel's own checkers are on (`kernel-config/*.config`). Two processors
//! build it in a quarter of an hour. It is cached by source version and configuration. A symbol
//! that differs from the configuration afterwards is an error.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::kernel::{Kernel, Series, Toolchain};
use crate::source::KernelSource;
use crate::{cache, tool};

const GUEST: &str = include_str!("../kernel-config/guest.config");
const DEBUG: &str = include_str!("../kernel-config/debug.config");
const KASAN: &str = include_str!("../kernel-config/kasan.config");
const CLANG: &str = include_str!("../kernel-config/clang.config");

/// The kinds of kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With checks of page flags, page tables, locks, freed pages.
    Debug,
    /// With those, and checks of every memory access (KASAN).
    Kasan,
    /// By clang and lld, and without checks.
    Clang,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Debug, Self::Kasan, Self::Clang];

    /// Its name behind that of the series: "debug" of "6.12-debug".
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Kasan => "kasan",
            Self::Clang => "clang",
        }
    }

    fn configuration(self) -> String {
        match self {
            Self::Debug => format!("{GUEST}{DEBUG}"),
            Self::Kasan => format!("{GUEST}{DEBUG}{KASAN}"),
            Self::Clang => format!("{GUEST}{CLANG}"),
        }
    }

    const fn toolchain(self) -> Toolchain {
        match self {
            Self::Debug | Self::Kasan => Toolchain::Gnu,
            Self::Clang => Toolchain::Llvm,
        }
    }

    /// Measured on an emulated machine, against a stock kernel.
    const fn time_factor(self) -> u32 {
        match self {
            Self::Debug => 4,
            Self::Kasan => 8,
            Self::Clang => 1,
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
    let configuration = symbols(&kind.configuration());
    let digest: String = Sha256::digest(&configuration)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let key = format!("{}_{digest}", package.version);
    let tree = cache::entry("built-kernels", &key, |tree| {
        eprintln!("building {name} from {} {}", package.name, package.version);
        source.extract(tree, &[])?;
        build(tree, &configuration, toolchain)
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
        userland: None,
        time_factor: kind.time_factor(),
    })
}

fn build(tree: &Path, configuration: &str, toolchain: Toolchain) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = tree.join("uksm.config");
    fs::write(&wanted, configuration).with_context(|| wanted.display().to_string())?;
    let make = |targets: &[&str]| {
        let mut command = tool::command("make");
        command
            .arg("-C")
            .arg(tree)
            .arg(format!("-j{jobs}"))
            .args(["-s", "ARCH=x86_64"])
            .args(toolchain.make_arguments());
        command.env("KCONFIG_ALLCONFIG", &wanted).args(targets);
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

/// The lines that matter; a change of a comment must not cost a build.
fn symbols(configuration: &str) -> String {
    configuration
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .map(|line| format!("{line}\n"))
        .collect()
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
    fn symbol_that_was_not_taken_is_named() {
        let actual = "CONFIG_A=y\n# CONFIG_B is not set\n";
        let missing = missing_lines("CONFIG_A=y\nCONFIG_B=y\n", actual);
        assert_eq!(missing, ["CONFIG_B=y"]);
    }
}

//! A kernel that a guest can boot, and its series.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result};

use crate::debian::Userland;

/// Suffix of the series in the name of a real-time kernel: "6.12-rt".
pub(crate) const REAL_TIME: &str = "-rt";

/// A kernel series, as in "6.12".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// 6 of 6.12.
    pub major: u32,
    /// 12 of 6.12.
    pub minor: u32,
}

impl FromStr for Series {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('.').and_then(|(a, b)| {
            Some(Self {
                major: a.parse().ok()?,
                minor: b.parse().ok()?,
            })
        });
        parsed.with_context(|| format!("'{text}' is no kernel series: name one like 6.12"))
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Series {
    /// The series of a release: 7.3 of "7.3.4+deb13-cloud-amd64"; none if it begins with none.
    pub(crate) fn of_release(release: &str) -> Option<Self> {
        let (major, rest) = release.split_once('.')?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Whether a package of this version is of the series.
    #[must_use]
    pub(crate) fn matches(self, version: &str) -> bool {
        version
            .strip_prefix(&self.to_string())
            .is_some_and(|rest| rest.starts_with(['.', '-', '~']))
    }
}

/// A kernel that can be booted and built against.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The name by which it was requested: "6.12", "6.12-rt", "6.12-debug".
    pub name: String,
    /// Its series.
    pub series: Series,
    /// `uname -r`.
    pub release: String,
    /// Package version or other key that names this build of it.
    pub version: String,
    /// The file to boot.
    pub image: PathBuf,
    /// Folder to build modules against.
    pub build: PathBuf,
    /// `lib/modules/<release>`, with dependencies computed; none if everything
    /// is built in.
    pub modules: Option<PathBuf>,
    /// The toolchain that built it, and must build its modules.
    pub toolchain: Toolchain,
    /// The Debian whose toolchain that is; none for the machine's own.
    pub userland: Option<Userland>,
    /// Slowdown against a stock kernel (factor of time bounds).
    pub time_factor: u32,
}

/// Compiler and binary tools of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toolchain {
    /// gcc and binutils.
    Gnu,
    /// clang, lld and their tools.
    Llvm,
}

impl Toolchain {
    /// Arguments of kbuild for it.
    #[must_use]
    pub const fn make_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Gnu => &[],
            Self::Llvm => &["LLVM=1"],
        }
    }
}

impl Kernel {
    /// Whether it is a real-time kernel (`PREEMPT_RT`).
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.name.ends_with(REAL_TIME)
    }

    /// A program of the toolchain that builds its modules.
    ///
    /// # Errors
    /// There is no cache.
    pub fn build_tool(&self, program: &str) -> Result<Command> {
        Userland::command_in(self.userland.as_ref(), program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_matches_its_own_versions_only() {
        let series: Series = "6.1".parse().unwrap();
        assert!(series.matches("6.1.192-2"));
        assert!(!series.matches("6.12.117-1~deb12u1"));
        assert!(
            "6.12"
                .parse::<Series>()
                .unwrap()
                .matches("6.12.117-1~deb12u1")
        );
    }

    #[test]
    fn word_that_is_no_series_is_named() {
        let error = "newer".parse::<Series>().unwrap_err();
        assert!(error.to_string().contains("'newer'"), "{error}");
    }

    #[test]
    fn release_begins_with_its_series() {
        let seven = Series { major: 7, minor: 3 };
        assert_eq!(Series::of_release("7.3.4+deb13-cloud-amd64"), Some(seven));
        assert_eq!(Series::of_release("7.3+deb13-cloud-amd64"), Some(seven));
        assert_eq!(Series::of_release("amd64"), None);
        assert_eq!(Series::of_release("7.x-amd64"), None);
    }
}

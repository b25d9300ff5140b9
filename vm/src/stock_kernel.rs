//! Stock kernels and their headers.
//!
//! Problem: the module must work on the kernels that users have, so tests run on those, not on ones
//! built for testing.
//!
//! Approach: a series ("6.1", "6.12") is resolved through the distribution's meta packages to the
//! real image, its headers and their build tools, all of one version. A series that the machine's
//! sources do not offer ("7.3") is the newest kernel of it in Debian 13 or its backports, or else
//! in Debian 12 ("6.1", on a machine of Debian 13). Backports keep only the last series, so a full
//! test run takes the newest one, of whatever series. The packages are downloaded and unpacked into
//! the cache, keyed by version. A series that none offers is an error.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::debian::{self, Release, Userland};
use crate::kernel::{Kernel, REAL_TIME, Series, Toolchain};
use crate::packages::{self, Package, Sources};
use crate::{cache, headers, tool};

/// The packages that make up a kernel.
struct Parts {
    sources: Sources,
    release: String,
    image: Package,
    all: Vec<Package>,
    userland: Option<Userland>,
}

/// The purpose of a stock kernel's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Guests of clouds.
    Cloud,
    /// Real time (PREEMPT_RT).
    RealTime,
}

impl Flavour {
    /// Its name in package names.
    const fn word(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::RealTime => "rt",
        }
    }
}

/// Gets a stock kernel of this series and flavour, from the cache or the package sources.
///
/// # Errors
/// The sources do not offer it, or it cannot be downloaded.
pub fn get(series: Series, flavour: Flavour) -> Result<Kernel> {
    kernel(resolve(series, flavour)?, series, flavour)
}

/// Gets the newest stock kernel of Debian 13 or its backports, for guests of clouds.
///
/// # Errors
/// The sources have none, or it cannot be downloaded.
pub fn newest() -> Result<Kernel> {
    let flavour = Flavour::Cloud;
    let sources = debian::sources(Release::Trixie)?;
    let release = newest_release(&sources, None, flavour)?
        .context("neither Debian 13 nor its backports offer a kernel")?;
    let series = Series::of_release(&release)
        .with_context(|| format!("kernel {release} begins with no series"))?;
    let parts = parts_of_debian(Release::Trixie, sources, release)?;
    kernel(parts, series, flavour)
}

/// Unpacks a kernel, unless the cache has it.
fn kernel(parts: Parts, series: Series, flavour: Flavour) -> Result<Kernel> {
    let key = format!("{}_{}", parts.release, parts.image.version);
    let root = cache::entry("kernels", &key, |root| {
        eprintln!("getting kernel {} ({})", parts.release, parts.image.version);
        unpack(&parts, root)
    })?;
    Ok(Kernel {
        name: match flavour {
            Flavour::Cloud => series.to_string(),
            Flavour::RealTime => format!("{series}{REAL_TIME}"),
        },
        series,
        image: image(&root, &parts.release)?,
        build: root
            .join("usr/src")
            .join(format!("linux-headers-{}", parts.release)),
        modules: Some(root.join("lib/modules").join(&parts.release)),
        release: parts.release,
        version: parts.image.version,
        toolchain: Toolchain::Gnu,
        userland: parts.userland,
        time_factor: 1,
    })
}

/// Finds the packages in the machine's sources, or else in those of a release of Debian.
fn resolve(series: Series, flavour: Flavour) -> Result<Parts> {
    let machine = Sources::default();
    if let Some(release) = of_meta_packages(&machine, series, flavour)? {
        return parts(machine, release);
    }
    for debian in Release::ALL {
        let sources = debian::sources(debian)?;
        if let Some(release) = newest_release(&sources, Some(series), flavour)? {
            return parts_of_debian(debian, sources, release);
        }
    }
    bail!(
        "kernel {series} ({}): neither the machine's package sources nor those of Debian 12 and 13 offer it",
        flavour.word()
    )
}

/// The packages of a kernel of a release of Debian, and the userland that builds modules for it.
fn parts_of_debian(debian: Release, sources: Sources, release: String) -> Result<Parts> {
    let mut parts = parts(sources, release)?;
    let compiler = parts.compiler()?;
    let userland = Userland::with_compiler(debian, &parts.sources, &compiler, &[])?;
    parts.userland = Some(userland);
    Ok(parts)
}

/// The newest release that has headers, of one series if that is given.
fn newest_release(
    sources: &Sources,
    series: Option<Series>,
    flavour: Flavour,
) -> Result<Option<String>> {
    const HEADERS: &str = "linux-headers-";
    let ending = format!("-{}-amd64", flavour.word());
    let mut newest: Option<Package> = None;
    for name in sources.names(HEADERS)? {
        let release = name.strip_prefix(HEADERS).unwrap_or(&name);
        let is_of_series = match series {
            Some(series) => series.matches(release),
            None => Series::of_release(release).is_some(),
        };
        if !is_of_series || !release.ends_with(&ending) {
            continue;
        }
        let Some(package) = sources.candidate(&name)? else {
            continue;
        };
        match &newest {
            Some(other) if !package.is_at_least(&other.version)? => {}
            _ => newest = Some(package),
        }
    }
    Ok(newest.and_then(|package| package.name.strip_prefix(HEADERS).map(str::to_owned)))
}

/// The meta packages that may lead to a series: one with its name (backports, security), or the
/// release's own.
fn of_meta_packages(sources: &Sources, series: Series, flavour: Flavour) -> Result<Option<String>> {
    let word = flavour.word();
    let metas = [
        format!("linux-image-{series}-{word}-amd64"),
        format!("linux-image-{word}-amd64"),
    ];
    for meta in &metas {
        let Some(offered) = sources.candidate(meta)? else {
            continue;
        };
        if !series.matches(&offered.version) {
            continue;
        }
        let release = sources
            .depends(meta)?
            .into_iter()
            .find_map(|name| name.strip_prefix("linux-image-").map(str::to_owned))
            .with_context(|| format!("package {meta} depends on no linux-image"))?;
        return Ok(Some(release));
    }
    Ok(None)
}

/// Packages that images and headers are made of; those of 7.x are more than those of 6.x.
const PARTS: [&str; 5] = [
    "linux-base-",
    "linux-binary-",
    "linux-headers-",
    "linux-kbuild-",
    "linux-modules-",
];

fn parts(sources: Sources, release: String) -> Result<Parts> {
    let offered = |name: &str| {
        sources
            .candidate(name)?
            .with_context(|| packages::unknown(name))
    };
    let image = offered(&format!("linux-image-{release}"))?;
    let headers = offered(&format!("linux-headers-{release}"))?;
    let mut all = vec![image.clone(), headers.clone()];
    for whole in [&image, &headers] {
        for name in sources.depends(&whole.name)? {
            let is_part = PARTS.iter().any(|part| name.starts_with(part));
            if is_part && !all.iter().any(|other| other.name == name) {
                all.push(offered(&name)?);
            }
        }
    }
    for needed in ["linux-kbuild-", "-common"] {
        if !all.iter().any(|part| part.name.contains(needed)) {
            bail!("package {} needs no {needed}: {all:?}", headers.name);
        }
    }
    for other in &all {
        // The headers require this kbuild or a later one. If a source was published before its
        // signed image, there is only a later one.
        let belongs = other.version == image.version
            || (other.name.starts_with("linux-kbuild-") && other.is_at_least(&image.version)?);
        if !belongs {
            bail!(
                "{} {} and {} {} do not belong together: run `apt-get update`",
                image.name,
                image.version,
                other.name,
                other.version
            );
        }
    }
    Ok(Parts {
        sources,
        release,
        image,
        all,
        userland: None,
    })
}

impl Parts {
    /// The package of the compiler that its headers need.
    fn compiler(&self) -> Result<String> {
        let headers = format!("linux-headers-{}", self.release);
        self.sources
            .depends(&headers)?
            .iter()
            .find_map(|name| compiler_of(name))
            .with_context(|| format!("package {headers} depends on no compiler"))
    }
}

/// The package of the compiler that a dependency of headers names: `gcc-14-for-host` itself, or
/// `gcc-12` by `linux-compiler-gcc-12-x86`.
fn compiler_of(dependency: &str) -> Option<String> {
    let by_meta_package = dependency
        .strip_prefix("linux-compiler-")
        .and_then(|name| name.strip_suffix("-x86"));
    let name = by_meta_package.unwrap_or(dependency);
    name.starts_with("gcc-").then(|| name.to_owned())
}

/// The file to boot: in `boot`, or since 7.x beside the modules.
fn image(root: &Path, release: &str) -> Result<PathBuf> {
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("lib/modules/{release}/vmlinuz"),
    ];
    places
        .iter()
        .map(|place| root.join(place))
        .find(|place| place.is_file())
        .with_context(|| format!("{}: no {}", root.display(), places.join(" and no ")))
}

fn unpack(parts: &Parts, root: &Path) -> Result<()> {
    parts.sources.unpack(&parts.all, root)?;
    link_modules(root)?;
    headers::relocate(
        &root
            .join("usr/src")
            .join(format!("linux-headers-{}", parts.release)),
    )?;
    let modules = root.join("lib/modules").join(&parts.release);
    for link in ["build", "source"] {
        // They point to the place where the headers would be installed.
        let link = modules.join(link);
        if link.is_symlink() {
            fs::remove_file(&link).with_context(|| link.display().to_string())?;
        }
    }
    let depmod = ["/usr/sbin/depmod", "/sbin/depmod"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    tool::output(
        tool::command(depmod.unwrap_or("depmod"))
            .arg("-b")
            .arg(root)
            .arg(&parts.release),
    )?;
    Ok(())
}

/// Packages of Debian 13 and later have their modules in `usr/lib/modules`: a machine that installs
/// them has `/lib` as a link to `usr/lib`. Here `lib/modules` is the link.
fn link_modules(root: &Path) -> Result<()> {
    let place = root.join("lib/modules");
    if !place.exists() && root.join("usr/lib/modules").is_dir() {
        fs::create_dir_all(root.join("lib")).with_context(|| root.display().to_string())?;
        std::os::unix::fs::symlink("../usr/lib/modules", &place)
            .with_context(|| place.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_debian_name_their_compiler() {
        for (dependency, compiler) in [
            ("gcc-14-for-host", Some("gcc-14-for-host")),
            ("linux-compiler-gcc-12-x86", Some("gcc-12")),
            ("linux-kbuild-6.1", None),
        ] {
            assert_eq!(compiler_of(dependency).as_deref(), compiler);
        }
    }

    #[test]
    fn modules_of_every_debian_are_found_below_lib() {
        for place in ["lib/modules/6.12.0", "usr/lib/modules/6.12.0"] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join(place)).unwrap();
            link_modules(root.path()).unwrap();
            assert!(root.path().join("lib/modules/6.12.0").is_dir(), "{place}");
        }
    }
}

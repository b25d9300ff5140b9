//! Stock kernels and their headers.
//!
//! Problem: the module must work on the kernels that users have, so tests run on those, not on ones
//! built for testing.
//!
//! Approach: a series ("6.1", "6.12") is resolved through the distribution's meta packages to the
//! real image, its headers and their build tools, all of one version. They are downloaded and
//! unpacked into the cache, keyed by version. A series that the sources do not offer is an error.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::kernel::{Kernel, REAL_TIME, Series, Toolchain};
use crate::packages::{self, Package};
use crate::{cache, headers, tool};

/// The packages that make up a kernel.
struct Parts {
    release: String,
    image: Package,
    all: Vec<Package>,
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
    let parts = resolve(series, flavour)?;
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
        image: root.join("boot").join(format!("vmlinuz-{}", parts.release)),
        build: root
            .join("usr/src")
            .join(format!("linux-headers-{}", parts.release)),
        modules: Some(root.join("lib/modules").join(&parts.release)),
        release: parts.release,
        version: parts.image.version,
        toolchain: Toolchain::Gnu,
        time_factor: 1,
    })
}

/// The meta packages that may lead to a series: one with its name (backports, security), or the
/// release's own.
fn resolve(series: Series, flavour: Flavour) -> Result<Parts> {
    let word = flavour.word();
    let metas = [
        format!("linux-image-{series}-{word}-amd64"),
        format!("linux-image-{word}-amd64"),
    ];
    for meta in &metas {
        let Some(offered) = packages::candidate(meta)? else {
            continue;
        };
        if !series.matches(&offered.version) {
            continue;
        }
        let release = packages::depends(meta)?
            .into_iter()
            .find_map(|name| name.strip_prefix("linux-image-").map(str::to_owned))
            .with_context(|| format!("package {meta} depends on no linux-image"))?;
        return parts(release);
    }
    bail!(
        "kernel {series} ({word}): {}",
        packages::unknown(&metas.join(" and no "))
    )
}

fn parts(release: String) -> Result<Parts> {
    let offered = |name: &str| packages::candidate(name)?.with_context(|| packages::unknown(name));
    let image = offered(&format!("linux-image-{release}"))?;
    let headers = offered(&format!("linux-headers-{release}"))?;
    let mut all = vec![image.clone(), headers.clone()];
    for name in packages::depends(&headers.name)? {
        if name.starts_with("linux-kbuild-")
            || (name.starts_with("linux-headers-") && name.contains("-common"))
        {
            all.push(offered(&name)?);
        }
    }
    if all.len() != 4 {
        bail!(
            "package {} needs other packages than common headers and kbuild: {all:?}",
            headers.name
        );
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
        release,
        image,
        all,
    })
}

fn unpack(parts: &Parts, root: &Path) -> Result<()> {
    packages::unpack(&parts.all, root)?;
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
    fn modules_of_every_debian_are_found_below_lib() {
        for place in ["lib/modules/6.12.0", "usr/lib/modules/6.12.0"] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join(place)).unwrap();
            link_modules(root.path()).unwrap();
            assert!(root.path().join("lib/modules/6.12.0").is_dir(), "{place}");
        }
    }
}

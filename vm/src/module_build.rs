//! The modules, built for one kernel.
//!
//! Problem: the same sources are built for several kernels, in two variants,
//! and kbuild writes beside the sources.
//!
//! Approach: `kernel/`, `interface/` and the module that only tests need (`guest-tests/kernel/`)
//! are copied to a scratch folder and built there; the result is cached by the hash of all inputs
//! (sources, kernel, variant). Warnings are errors: `W=1` is not used, because it also warns about
//! the kernel's own headers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::kernel::Kernel;
use crate::{cache, tool};
use uksm_vm_protocol::machine::{COLLECTOR, GUARD, MODULE};

/// The builds of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The build that ships.
    Shipped,
    /// With safety switches that negative controls turn off (`UKSM_TEST=1`).
    Test,
}

/// A module that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltModule {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub file: PathBuf,
    /// The modules that must be loaded before it.
    pub needs: &'static [&'static str],
}

/// A folder of the tree whose `Kbuild` makes modules: their names and dependencies.
type Source = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

const SHIPPED: Source = ("kernel", &[(GUARD, &[]), (MODULE, &[GUARD])]);
const FOR_TESTS: Source = ("guest-tests/kernel", &[(COLLECTOR, &[])]);

const fn sources(variant: Variant) -> &'static [Source] {
    match variant {
        Variant::Shipped => &[SHIPPED],
        Variant::Test => &[SHIPPED, FOR_TESTS],
    }
}

/// The modules of this kernel.
///
/// # Errors
/// They do not compile.
pub fn build(kernel: &Kernel, variant: Variant) -> Result<Vec<BuiltModule>> {
    let tree = tool::tree();
    let mut files = Vec::new();
    for folder in ["kernel", "interface", "guest-tests/kernel"] {
        collect(&tree.join(folder), &mut files)?;
    }
    files.sort();
    if !files.iter().any(|file| file.ends_with("kernel/Kbuild")) {
        bail!("{}: no kernel/Kbuild there", tree.display());
    }
    let key = key(kernel, variant, &tree, &files)?;
    let built = cache::entry("modules", &key, |entry| {
        // A userland sees no folders but those of the cache.
        let scratch = tempfile::tempdir_in(entry).context("scratch folder of the module build")?;
        for file in &files {
            let target = scratch.path().join(file.strip_prefix(&tree)?);
            fs::create_dir_all(target.parent().context("a file lies in a folder")?)?;
            fs::copy(file, &target).with_context(|| file.display().to_string())?;
        }
        for (folder, modules) in sources(variant) {
            let folder = scratch.path().join(folder);
            compile(kernel, variant, &folder)?;
            for (name, _) in *modules {
                let file = format!("{name}.ko");
                let module = folder.join(&file);
                fs::copy(&module, entry.join(&file))
                    .with_context(|| module.display().to_string())?;
            }
        }
        Ok(())
    })
    .with_context(|| format!("building the modules for {}", kernel.release))?;
    let modules = sources(variant).iter().flat_map(|(_, modules)| *modules);
    Ok(modules
        .map(|&(name, needs)| BuiltModule {
            name,
            file: built.join(format!("{name}.ko")),
            needs,
        })
        .collect())
}

fn compile(kernel: &Kernel, variant: Variant, sources: &Path) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut make = kernel.build_tool("make")?;
    make.arg("-C")
        .arg(&kernel.build)
        .arg(format!("M={}", sources.display()))
        .arg(format!("-j{jobs}"))
        .args(kernel.toolchain.make_arguments());
    make.args(["modules", "UKSM_STRICT=1", "KCFLAGS=-Werror"]);
    if variant == Variant::Test {
        make.arg("UKSM_TEST=1");
    }
    // Variables of a make that runs us would reach kbuild.
    make.env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("MFLAGS");
    tool::output(&mut make).map(|_| ())
}

/// All files below a folder that a build needs.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            // Userspace tests of single files; kbuild does not need them.
            if !path.ends_with("kernel/test") {
                collect(&path, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|e| ["c", "h", "S"].iter().any(|kind| e == *kind))
            || path
                .file_name()
                .is_some_and(|name| name == "Kbuild" || name == "Makefile")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn key(kernel: &Kernel, variant: Variant, tree: &Path, files: &[PathBuf]) -> Result<String> {
    let parts = [
        kernel.release.as_str(),
        kernel.version.as_str(),
        &kernel.build.to_string_lossy(),
        &format!("{variant:?}"),
    ];
    let digest = cache::key_of(&parts, tree, files)?;
    Ok(format!("{}_{digest}", kernel.release))
}

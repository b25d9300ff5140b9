//! A kernel's own modules, and their dependencies.
//!
//! Problem: `zram` is a module of one kernel and built into another; it depends
//! on other modules and may be compressed. The guest has neither modprobe nor xz.
//!
//! Approach: `modules.dep` and `modules.builtin` of the unpacked kernel list them; the harness
//! unpacks the files. A kernel without either file has everything built in (our debug kernels).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::kernel::Kernel;
use crate::tool;
use uksm_vm_protocol::messages::ModuleFile;

/// Modules that a module asks for at run time, which `modules.dep` cannot know:
/// the compressors of zram.
const AT_RUN_TIME: [(&str, &[&str]); 1] = [("zram", &["lzo_rle", "lz4"])];

/// A module to be packed.
#[derive(Debug, Clone)]
pub struct PackedModule {
    /// The module's entry in the guest's plan.
    pub entry: ModuleFile,
    /// Contents, unpacked; none if it is built in.
    pub contents: Option<Vec<u8>>,
}

/// The modules of one kernel, by name.
#[derive(Debug)]
pub struct ModuleIndex {
    folder: PathBuf,
    files: BTreeMap<String, (PathBuf, Vec<String>)>,
    builtin: Vec<String>,
    everything_builtin: bool,
}

impl ModuleIndex {
    /// Reads the index of a kernel.
    ///
    /// # Errors
    /// Its `modules.dep` cannot be read.
    pub fn of(kernel: &Kernel) -> Result<Self> {
        let Some(folder) = &kernel.modules else {
            return Ok(Self {
                folder: PathBuf::new(),
                files: BTreeMap::new(),
                builtin: Vec::new(),
                everything_builtin: true,
            });
        };
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        Ok(Self {
            folder: folder.clone(),
            files: parse_dependencies(&read("modules.dep")?),
            builtin: read("modules.builtin")?.lines().map(module_name).collect(),
            everything_builtin: false,
        })
    }

    /// The named modules and all their dependencies, each once.
    ///
    /// # Errors
    /// The kernel has no such module, or a file cannot be unpacked.
    pub fn pack(&self, names: &[&str]) -> Result<Vec<PackedModule>> {
        let mut packed: BTreeMap<String, PackedModule> = BTreeMap::new();
        for name in names {
            self.add(name, &mut packed)?;
        }
        Ok(packed.into_values().collect())
    }

    fn has(&self, name: &str) -> bool {
        self.everything_builtin
            || self.files.contains_key(name)
            || self.builtin.iter().any(|b| b == name)
    }

    fn add(&self, name: &str, packed: &mut BTreeMap<String, PackedModule>) -> Result<()> {
        if packed.contains_key(name) {
            return Ok(());
        }
        let Some((path, needs)) = self.files.get(name) else {
            if !self.has(name) {
                bail!(
                    "this kernel has no module {name}: {}",
                    self.folder.display()
                );
            }
            let entry = ModuleFile {
                name: name.to_owned(),
                file: None,
                needs: Vec::new(),
            };
            packed.insert(
                name.to_owned(),
                PackedModule {
                    entry,
                    contents: None,
                },
            );
            return Ok(());
        };
        let mut needs = needs.clone();
        for (_, more) in AT_RUN_TIME.iter().filter(|(module, _)| *module == name) {
            needs.extend(
                more.iter()
                    .filter(|more| self.has(more))
                    .map(|&more| more.to_owned()),
            );
        }
        let entry = ModuleFile {
            name: name.to_owned(),
            file: Some(format!("{name}.ko")),
            needs: needs.clone(),
        };
        let contents = Some(unpacked(&self.folder.join(path))?);
        packed.insert(name.to_owned(), PackedModule { entry, contents });
        for needed in needs {
            self.add(&needed, packed)?;
        }
        Ok(())
    }
}

/// `kernel/drivers/block/zram/zram.ko.xz: kernel/mm/zsmalloc.ko.xz …`
fn parse_dependencies(text: &str) -> BTreeMap<String, (PathBuf, Vec<String>)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| {
            // Dependencies listed last must be loaded first.
            let needs = needs.split_whitespace().rev().map(module_name).collect();
            (module_name(path), (PathBuf::from(path), needs))
        })
        .collect()
}

/// `kernel/arch/x86/kvm/kvm-amd.ko.xz` is the module `kvm_amd`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let tool_name = match path.extension().and_then(|e| e.to_str()) {
        Some("ko") => return fs::read(path).with_context(|| path.display().to_string()),
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => bail!("{}: unknown kind of module file", path.display()),
    };
    let output = tool::command(tool_name)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| tool_name.to_owned())?;
    if !output.status.success() {
        bail!("{tool_name} -dc {}: {}", path.display(), output.status);
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_loaded_in_reverse_order_of_the_file() {
        let index = parse_dependencies(
            "kernel/a/kvm-amd.ko.xz: kernel/a/kvm.ko.xz kernel/b/irqbypass.ko.xz\nkernel/a/kvm.ko.xz:\n",
        );
        let (path, needs) = &index["kvm_amd"];
        assert_eq!(path, Path::new("kernel/a/kvm-amd.ko.xz"));
        assert_eq!(needs, &["irqbypass", "kvm"]);
        assert!(index["kvm"].1.is_empty());
    }

    #[test]
    fn module_that_the_kernel_does_not_have_is_an_error() {
        let index = ModuleIndex {
            folder: PathBuf::from("lib/modules/x"),
            files: BTreeMap::new(),
            builtin: vec!["virtio_console".into()],
            everything_builtin: false,
        };
        assert!(
            index.pack(&["virtio_console"]).unwrap()[0]
                .contents
                .is_none()
        );
        let error = index.pack(&["zram"]).unwrap_err();
        assert!(error.to_string().contains("no module zram"), "{error}");
    }
}

//! The parts with which a guest runs guests of its own.
//!
//! Problem: hints and merging are for the memory of virtual machines, and an imitation is not one.
//!
//! Approach: this machine's own QEMU is packed with its libraries and firmware, together with the
//! parts of its guests: the same stock kernel, an initramfs whose `/init` is a program of the
//! workspace, and a disk. The disk is an ext4 image of existing files, those of the kernel's
//! packages, so that every machine with this kernel makes a disk with the same files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::kernel_modules::{ModuleIndex, PackedModule};
use crate::{cache, qemu, tool};

/// The guest's folder of the parts of its own guests.
const FOLDER: &str = "/nested";
/// QEMU's folders of firmware here.
const FIRMWARE_HERE: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];
/// Firmware that a `microvm` with a kernel needs; `-L` gives QEMU its path.
const FIRMWARE: [&str; 3] = ["bios-microvm.bin", "linuxboot_dma.bin", "pvh.bin"];
/// Modules that such a guest loads to see its disk.
const DISK_MODULES: [&str; 2] = ["virtio_mmio", "virtio_blk"];
/// Modules of KVM, by the flag in /proc/cpuinfo of a processor that needs it.
const KVM_MODULES: [(&str, &str); 2] = [("vmx", "kvm_intel"), ("svm", "kvm_amd")];

/// Folders of the kernel's packages whose files are on the disk.
const DISK_FOLDERS: [&str; 4] = ["boot", "lib", "usr/lib", "usr/share"];
/// A fixed id instead of a random one of `mke2fs`: a disk is the same each time.
const DISK_ID: &str = "75736b73-6d00-4000-8000-6e6573746564";

/// The module of KVM for a guest with this processor; an emulated one has SVM.
///
/// # Errors
/// This machine's processor is of no known kind.
pub fn kvm_module(emulated: bool) -> Result<&'static str> {
    if emulated {
        return Ok("kvm_amd");
    }
    let text = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let has = |word: &str| text.split_whitespace().any(|flag| flag == word);
    let found = KVM_MODULES.iter().find(|(word, _)| has(word));
    Ok(found.context("this processor can run no guests")?.1)
}

/// Packs QEMU and the parts of its guests; `init` is the program that they run.
///
/// # Errors
/// Something is not installed, or missing in the kernel.
pub fn pack(kernel: &Kernel, init: &Path, files: &mut Initramfs) -> Result<()> {
    files.program(
        Path::new("/bin").join(qemu::PROGRAM),
        &find(qemu::PROGRAM)?,
        &[],
    )?;
    for name in FIRMWARE {
        let here = FIRMWARE_HERE.iter().map(|dir| Path::new(dir).join(name));
        let here = here.into_iter().find(|path| path.exists());
        let here = here.with_context(|| format!("firmware {name}: run scripts/setup"))?;
        files.file(Path::new(FOLDER).join(name), &here, 0o644)?;
    }
    let folder = Path::new(FOLDER);
    files.file(folder.join("kernel"), &kernel.image, 0o644)?;
    files.file(folder.join("disk"), &disk(kernel)?, 0o644)?;
    let mut archive = Vec::new();
    initramfs(kernel, init)?.write(&mut archive)?;
    archive.flush()?;
    files.contents(folder.join("initramfs"), archive, 0o644);
    Ok(())
}

/// The initramfs of such a guest: the program, and modules in the order of `/modules/order`.
fn initramfs(kernel: &Kernel, init: &Path) -> Result<Initramfs> {
    let mut archive = Initramfs::new();
    archive.folder(Path::new("/disk"));
    archive.program("/init", init, &[])?;
    let modules = in_order(ModuleIndex::of(kernel)?.pack(&DISK_MODULES)?);
    let mut order = String::new();
    for module in modules {
        if let Some((file, contents)) = module.entry.file.zip(module.contents) {
            archive.contents(Path::new("/modules").join(&file), contents, 0o644);
            order.push_str(&file);
            order.push('\n');
        }
    }
    archive.contents("/modules/order", order.into_bytes(), 0o644);
    Ok(archive)
}

/// Modules, each after its dependencies.
#[must_use]
pub fn in_order(mut left: Vec<PackedModule>) -> Vec<PackedModule> {
    let mut ordered: Vec<PackedModule> = Vec::new();
    while !left.is_empty() {
        let has = |name: &String| ordered.iter().any(|module| module.entry.name == *name);
        let ready = |module: &PackedModule| module.entry.needs.iter().all(has);
        // A circle is impossible: the kernel would load none of it. It would stay in the given
        // order.
        let next = left.iter().position(ready).unwrap_or(0);
        ordered.push(left.remove(next));
    }
    ordered
}

/// The image of the disk, made once.
fn disk(kernel: &Kernel) -> Result<PathBuf> {
    // The image is in `boot`, or since 7.x beside the modules.
    let mut folders = kernel.image.ancestors();
    let root = folders.find(|folder| folder.join("lib/modules").is_dir());
    let root =
        root.with_context(|| format!("kernel {}: its packages' files are not there", kernel.name))?;
    let key = format!("{}_{}", kernel.release, kernel.version);
    let folder = cache::entry("disks", &key, |folder| {
        let tree = folder.join("tree");
        fs::create_dir(&tree)?;
        for name in DISK_FOLDERS {
            let (from, to) = (root.join(name), tree.join(name));
            if from.is_dir() {
                fs::create_dir_all(&to)?;
                tool::output(tool::command("cp").args(["-a", "-T"]).arg(&from).arg(&to))?;
            }
        }
        let used = tool::output(tool::command("du").args(["-sm"]).arg(&tree))?;
        let used: u64 = used.split_whitespace().next().unwrap_or("").parse()?;
        let mut make = tool::command(&find("mke2fs")?.display().to_string());
        make.args(["-q", "-t", "ext4", "-b", "4096", "-m", "0", "-U", DISK_ID])
            .args(["-O", "^has_journal", "-E"])
            .arg(format!("hash_seed={DISK_ID},root_owner=0:0"))
            .arg("-d")
            .arg(&tree)
            .arg(folder.join("disk"))
            .arg(format!("{}M", used + used / 8 + 8));
        // With the real time, the file system would differ each time it is made.
        tool::output(make.env("E2FSPROGS_FAKE_TIME", "1"))?;
        Ok(fs::remove_dir_all(&tree)?)
    })?;
    Ok(folder.join("disk"))
}

/// A program of this machine; a user's search path may lack those of the administrator.
fn find(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(more);
    let found = places.find_map(|place| Some(place.join(name)).filter(|file| file.is_file()));
    match found {
        Some(file) => Ok(file),
        None => bail!("{name} is not installed: run scripts/setup"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_vm_protocol::messages::ModuleFile;

    #[test]
    fn modules_come_behind_what_they_need() {
        let module = |name: &str, needs: &[&str]| PackedModule {
            entry: ModuleFile {
                name: name.to_owned(),
                file: None,
                needs: needs.iter().map(|&need| need.to_owned()).collect(),
            },
            contents: None,
        };
        let packed = vec![
            module("a", &["c", "b"]),
            module("b", &["c"]),
            module("c", &[]),
        ];
        let names: Vec<String> = in_order(packed)
            .into_iter()
            .map(|module| module.entry.name)
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
    }

    #[test]
    fn a_program_that_is_not_here_is_named_with_what_to_do() {
        let error = find("uksm-no-such-program").unwrap_err().to_string();
        assert!(error.contains("uksm-no-such-program") && error.contains("scripts/setup"));
    }
}

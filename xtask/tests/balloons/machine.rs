//! A virtual machine with a stock kernel, whose balloon and monitor are real.
//!
//! # Problem
//! Only QEMU and a kernel's driver show the answers of a monitor, and the times at which a balloon
//! reaches its size.
//!
//! # Approach
//! QEMU, emulated, boots a stock kernel with an initramfs of busybox and the wanted modules. Its
//! `/init` loads them and writes the size of the kernel's memory on the console over and over, so
//! that a size is also read inside. QEMU ends with the thread that started it, or when this is
//! dropped, by its process id.
//!
//! # Units
//! MiB.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uksm_vm::initramfs::Initramfs;
use uksm_vm::kernel::Kernel;
use uksm_vm::kernel_modules::ModuleIndex;
use uksm_vm::kernel_names;
use uksm_vm::{nested, qemu};

/// Memory of a machine.
pub(crate) const MEMORY: u64 = 256;
/// Limit of the boot of a machine that is emulated beside others.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

const BUSYBOX: &str = "/bin/busybox";
/// The machine writes a line at once, and QEMU may write it to the file byte by byte.
const INIT: &str = "#!/bin/busybox sh\n\
    busybox mount -t proc proc /proc\n\
    busybox mount -t devtmpfs dev /dev\n\
    while read module; do busybox insmod /modules/$module || busybox poweroff -f; done < /modules/order\n\
    while :; do\n\
    busybox sed -n 's/^MemTotal: *\\([0-9]*\\) kB$/has \\1 kB/p' /proc/meminfo > /dev/ttyS0\n\
    busybox sleep 0.2\n\
    done\n";

/// The parts of a balloon in a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Balloon {
    /// Device and driver.
    Whole,
    /// The device, and a kernel without the driver.
    NoDriver,
    /// No device.
    None,
}

/// A running machine.
pub(crate) struct Machine {
    qemu: Child,
    folder: PathBuf,
}

fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| kernel_names::named("6.12").expect("a stock kernel"))
}

/// The initramfs of a machine.
fn initramfs(balloon: Balloon) -> Vec<u8> {
    let mut names = vec!["virtio_pci"];
    if balloon == Balloon::Whole {
        names.push("virtio_balloon");
    }
    let index = ModuleIndex::of(kernel()).expect("the kernel's modules");
    let mut archive = Initramfs::new();
    archive
        .program(BUSYBOX, Path::new(BUSYBOX), &[])
        .expect("busybox: run scripts/setup");
    archive.contents("/init", INIT.into(), 0o755);
    let mut order = String::new();
    for module in nested::in_order(index.pack(&names).expect("modules")) {
        if let Some((file, contents)) = module.entry.file.zip(module.contents) {
            archive.contents(Path::new("/modules").join(&file), contents, 0o644);
            order.push_str(&file);
            order.push('\n');
        }
    }
    archive.contents("/modules/order", order.into_bytes(), 0o644);
    let mut bytes = Vec::new();
    archive.write(&mut bytes).expect("an archive");
    bytes
}

impl Machine {
    /// Starts one that has its files, and its monitor, in this folder; [`Machine::await_up`] waits
    /// for it.
    pub(crate) fn start(folder: &Path, balloon: Balloon) -> Machine {
        fs::create_dir_all(folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        fs::write(path("initramfs"), initramfs(balloon)).expect("an initramfs");
        let _ = fs::remove_file(path("console"));
        let mut command = Command::new(qemu::PROGRAM);
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args([
                "-machine",
                "q35,mem-merge=off",
                "-accel",
                "tcg",
                "-cpu",
                "max",
            ])
            .args(["-smp", "1", "-m", &format!("{MEMORY}M")])
            .arg("-kernel")
            .arg(&kernel().image)
            .arg("-initrd")
            .arg(path("initramfs"))
            // On a busy host no tick may come while the kernel tests its timer, which it would
            // consider broken.
            .args([
                "-append",
                "console=ttyS0 panic=-1 loglevel=3 no_timer_check rdinit=/init",
            ])
            .arg("-serial")
            .arg(format!("file:{}", path("console").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", path("qmp").display()));
        if balloon != Balloon::None {
            command.args(["-device", "virtio-balloon-pci"]);
        }
        // SAFETY: the closure makes one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
        }
        let qemu = command.stdin(Stdio::null()).spawn();
        Machine {
            qemu: qemu.expect("qemu-system-x86_64: run scripts/setup"),
            folder: folder.to_owned(),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// The socket of its monitor.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("qmp")
    }

    /// Its kernel's memory in its last report.
    pub(crate) fn has(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("console")).unwrap_or_default();
        // The text after the last end of a line is incomplete.
        let end = text.rfind('\n')? + 1;
        let line = text[..end]
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("has "))?;
        let kib: u64 = line.strip_suffix(" kB")?.parse().ok()?;
        Some(kib / 1024)
    }

    /// Waits until its `/init` works; returns its kernel's memory at that time.
    pub(crate) fn await_up(&mut self) -> u64 {
        let begin = Instant::now();
        loop {
            if let Some(has) = self.has() {
                return has;
            }
            let ended = self.qemu.try_wait().expect("QEMU's state");
            let console = || fs::read_to_string(self.folder.join("console"));
            assert!(ended.is_none(), "{ended:?}: {:?}", console());
            assert!(begin.elapsed() < BOOT_LIMIT, "{:?}", console());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.qemu.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("QEMU is there");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

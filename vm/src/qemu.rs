//! QEMU's command line.
//!
//! Problem: the guest must have few devices (an absent device cannot fail), KSM of this machine
//! must not merge its memory, and QEMU must end when the harness ends.
//!
//! Approach: `-nodefaults`, `mem-merge=off`, a serial console, one virtio-serial
//! device with our ports. The kernel panics on an Oops and reboots on a panic,
//! which ends QEMU (`-no-reboot`). QEMU is killed when we die.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::accel::Accel;
use crate::channel::{CONSOLE, Sockets};
use crate::tool;
use uksm_vm_protocol::machine::Machine;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// The parts of the machine.
#[derive(Debug)]
pub struct Hardware<'a> {
    /// Kernel file.
    pub kernel: &'a Path,
    /// Initramfs file.
    pub initramfs: &'a Path,
    /// KVM or emulation.
    pub accel: Accel,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Whether QEMU takes all memory before the guest starts, so that no page of the
    /// guest costs more the first time it is used. Not with [`Machine::Numa`].
    pub preallocate: bool,
    /// File of a disk.
    pub disk: Option<&'a Path>,
    /// CPUs.
    pub cpus: u32,
    /// Kind of machine.
    pub machine: Machine,
    /// Additional kernel parameters.
    pub parameters: &'a [String],
    /// A plugin and its arguments; emulated machines only.
    pub plugin: Option<&'a OsStr>,
}

/// Kernel parameters: an Oops causes a panic and a panic ends the machine; the console prints
/// warnings and worse (the guest reads the whole log itself).
const PARAMETERS: &str = "console=ttyS0 panic=-1 oops=panic loglevel=5 rdinit=/init";
/// Longer limits of watchdogs, because two emulated CPUs share a busy machine, and because a
/// guest's clock can jump by a few seconds while it waits for QEMU.
const SLOW_WATCHDOGS: &str = "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=180 sysctl.kernel.hung_task_timeout_secs=300";

/// Each instruction takes 2⁰ nanoseconds of the guest's clock. While all CPUs are idle, QEMU does
/// not sleep: the clock jumps to the next timer, so that waiting takes no real time.
const COUNTED: &str = "shift=0,sleep=off";

/// A disk that loses everything when the machine ends. Its speed depends on a limit, and hardly on
/// this machine.
const DISK: &str = "if=none,id=disk,format=raw,cache=unsafe,throttling.iops-total=1000,file=";

/// The command that starts the machine.
#[must_use]
pub fn command(hardware: &Hardware, sockets: &Sockets) -> Command {
    let mut command = tool::command(PROGRAM);
    command
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-smp", &processors(hardware)])
        .args(["-m", &memory(hardware)])
        .args(["-kernel".as_ref(), hardware.kernel.as_os_str()])
        .args(["-initrd".as_ref(), hardware.initramfs.as_os_str()])
        .args(["-append", &parameters(hardware)])
        .args(["-device", "virtio-serial-pci,max_ports=8"]);
    match hardware.accel {
        Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accel::Emulated => command.args(["-accel", "tcg,thread=multi", "-cpu", &emulated_cpu()]),
        Accel::InTurn => command.args(["-accel", "tcg,thread=single", "-cpu", &emulated_cpu()]),
        Accel::Counted => command
            .args(["-accel", "tcg,thread=single", "-cpu", &emulated_cpu()])
            .args(["-icount", COUNTED]),
    };
    if let Some(plugin) = hardware.plugin {
        command.arg("-plugin").arg(plugin);
    }
    if has_spare_blocks(hardware) {
        let size = format!("memory-backend-ram,id=spare,size={SPARE_MIB}M,merge=off");
        command.args(["-object", &size, "-device", "pc-dimm,memdev=spare"]);
    }
    if let Some(file) = hardware.disk {
        let mut drive = OsString::from(DISK);
        drive.push(file);
        command.arg("-drive").arg(drive);
        command.args(["-device", "virtio-blk-pci,drive=disk"]);
    }
    let mut machine = "q35,mem-merge=off".to_owned();
    if hardware.machine == Machine::Numa {
        command.args(numa(hardware));
    } else if hardware.preallocate {
        machine.push_str(",memory-backend=ram");
        let size = hardware.memory_mib;
        command.arg("-object").arg(format!(
            "memory-backend-ram,id=ram,size={size}M,prealloc=on,merge=off"
        ));
    }
    command.args(["-machine", &machine]);
    let mut console = false;
    for (number, (name, path)) in (1..).zip(sockets.paths()) {
        let id = name.replace('.', "-");
        let mut chardev = OsString::from(format!("socket,id={id},path="));
        chardev.push(path);
        command.arg("-chardev").arg(chardev);
        if name == CONSOLE {
            console = true;
            command.args(["-serial", &format!("chardev:{id}")]);
        } else {
            command.args([
                "-device",
                &format!("virtserialport,nr={number},chardev={id},name={name}"),
            ]);
        }
    }
    if console {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    } else {
        // A person uses the console; Ctrl-C is for the guest's programs.
        command.args([
            "-chardev",
            "stdio,id=console,signal=off",
            "-serial",
            "chardev:console",
        ]);
        command.stdin(Stdio::inherit());
    }
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
    }
    command
}

fn parameters(hardware: &Hardware) -> String {
    let mut text = PARAMETERS.to_owned();
    if hardware.accel.is_emulated() {
        text.push(' ');
        text.push_str(SLOW_WATCHDOGS);
    }
    for parameter in hardware.parameters {
        text.push(' ');
        text.push_str(parameter);
    }
    text
}

/// The emulated processor, or `UKSM_VM_CPU`, with which experiments are repeated on another.
///
/// Five-level page tables make every emulated TLB miss longer. If the processor claims fast string
/// instructions, the kernel clears pages with them, and emulation executes them byte by byte: a new
/// page then takes 8 µs to clear, twenty times the time of a loop, unlike on any real processor.
fn emulated_cpu() -> String {
    std::env::var("UKSM_VM_CPU").unwrap_or_else(|_| "max,la57=off,erms=off,fsrm=off".to_owned())
}

/// Memory blocks of the machine beyond its boot memory: seven blocks of Linux, of which four
/// tests use up one each, and one may. Kernel parameters keep them offline until a test needs them.
const SPARE_MIB: u32 = 7 * 128;

fn has_spare_blocks(hardware: &Hardware) -> bool {
    hardware.machine == Machine::Faults
}

fn memory(hardware: &Hardware) -> String {
    let size = hardware.memory_mib;
    match has_spare_blocks(hardware) {
        true => format!("{size}M,slots=1,maxmem={}M", size + SPARE_MIB),
        false => format!("{size}M"),
    }
}

/// CPUs of two nodes must lie in two sockets, or the kernel warns.
fn processors(hardware: &Hardware) -> String {
    match hardware.machine {
        Machine::Numa => format!("{0},sockets={0},cores=1,threads=1", hardware.cpus),
        _ => hardware.cpus.to_string(),
    }
}

/// Two nodes that share CPUs and memory evenly.
fn numa(hardware: &Hardware) -> Vec<String> {
    let half = hardware.memory_mib / 2;
    let per_node = hardware.cpus.div_ceil(2);
    (0..2)
        .flat_map(|node| {
            let first = node * per_node;
            let last = (first + per_node - 1).min(hardware.cpus - 1);
            let size = if node == 0 {
                half
            } else {
                hardware.memory_mib - half
            };
            [
                "-object".to_owned(),
                format!("memory-backend-ram,id=node{node},size={size}M"),
                "-numa".to_owned(),
                format!("node,nodeid={node},cpus={first}-{last},memdev=node{node}"),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QEMU's arguments.
    fn arguments(accel: Accel) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let sockets = Sockets::listen(folder.path(), true).unwrap();
        let hardware = Hardware {
            kernel: Path::new("/kernel"),
            initramfs: Path::new("/initramfs"),
            accel,
            memory_mib: 512,
            preallocate: false,
            disk: None,
            cpus: 1,
            machine: Machine::Stock,
            parameters: &[],
            plugin: None,
        };
        command(&hardware, &sockets)
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect()
    }

    /// The value of an option that is given once.
    fn value(arguments: &[String], option: &str) -> Option<String> {
        let mut places = arguments
            .iter()
            .enumerate()
            .filter(|(_, own)| *own == option);
        let found = places.next().map(|(place, _)| arguments[place + 1].clone());
        assert_eq!(places.next(), None, "{option} is given twice");
        found
    }

    #[test]
    fn a_counted_guest_runs_in_one_thread_and_its_clock_is_its_instructions() {
        let counted = arguments(Accel::Counted);
        assert_eq!(
            value(&counted, "-icount").as_deref(),
            Some("shift=0,sleep=off")
        );
        assert_eq!(
            value(&counted, "-accel").as_deref(),
            Some("tcg,thread=single")
        );
    }

    #[test]
    fn no_other_guest_counts_instructions() {
        for (accel, shown) in [
            (Accel::Kvm, "kvm"),
            (Accel::Emulated, "tcg,thread=multi"),
            (Accel::InTurn, "tcg,thread=single"),
        ] {
            let arguments = arguments(accel);
            assert_eq!(value(&arguments, "-icount"), None, "{accel}");
            assert_eq!(value(&arguments, "-accel").as_deref(), Some(shown));
        }
    }

    #[test]
    fn a_counted_guest_is_the_same_machine_as_any_emulated_one() {
        let of = |accel| {
            let arguments = arguments(accel);
            ["-cpu", "-append", "-m", "-machine"].map(|option| value(&arguments, option))
        };
        assert_eq!(of(Accel::Counted), of(Accel::Emulated));
    }
}

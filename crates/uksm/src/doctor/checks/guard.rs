//! The guard: whether the module may map frames, and which processes the guard restricts.
//!
//! # Problem
//! Migration of memory to a GPU loses merged pages. `uksm_guard.ko` keeps the kernel from it, by a
//! kprobe that root can switch off; then the module maps no frame, and only zeros are merged.
//!
//! # Source
//! `kernel/guard_migration.c`.

use super::processes::{nothing, of, verdict_on};
use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::guard::KPROBES;
use crate::doctor::host::processes::HostProcess;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "guard",
        finds: "the module maps no frames, because migration to a GPU would lose them; a warning \
                if gpu_migration=1 asks for this",
        reads: "the device; /sys/module/uksm_guard, /proc/sys/kernel/ftrace_enabled, /sys/kernel/debug/kprobes/enabled",
        worst: Severity::Error,
        cost: "only zeros are merged; a merged page that a driver migrates meanwhile is lost, with its process and perhaps the kernel",
        mend: "switch on what the kprobe of uksm_guard needs; after a change of gpu_migration, or if nothing else helps, reboot",
        judge: guard,
    },
    Check {
        name: "gpu-memory",
        finds: "a process can migrate memory to a GPU (/dev/kfd, /dev/nvidia-uvm)",
        reads: "/proc/PID/fd",
        worst: Severity::Warning,
        cost: "from the first load of uksm until the next boot, no memory that a processor has touched moves to a GPU: programs that share their memory with it get slow, and its atomics on such memory may fail",
        mend: "echo options uksm_guard gpu_migration=1 >> /etc/modprobe.d/uksm.conf, and reboot: then only zeros are merged",
        judge: gpu_memory,
    },
];

fn guard(host: &Host) -> Verdict {
    let state = &host.guard;
    match &host.module.opened {
        Err(_) => Verdict::unknown("the device cannot be queried"),
        Ok(true) => Verdict::ok("migration to a GPU leaves merged pages alone"),
        Ok(false) if state.gpu_migration.text() == "Y" => {
            Verdict::warning("gpu_migration=1 leaves migration to a GPU alone, so no frame is made")
                .mend("grep -r gpu_migration /etc/modprobe.d")
        }
        Ok(false) if state.ftrace.text() == "0" => {
            Verdict::error("ftrace is switched off, and with it the protection of merged pages")
                .mend("sysctl -w kernel.ftrace_enabled=1")
        }
        Ok(false) if state.kprobes.text() == "0" => {
            Verdict::error("kprobes are switched off, and with them the protection of merged pages")
                .mend(format!("echo 1 > /{KPROBES}"))
        }
        Ok(false) => {
            Verdict::error("the kernel no longer calls the function that protects merged pages")
        }
    }
}

fn gpu_memory(host: &Host) -> Verdict {
    let resident = |process: &HostProcess| process.gpu.then_some(process.resident);
    let found = host.processes.with(resident);
    let what = |size| format!("processes with {size} can migrate memory to a GPU");
    verdict_on(
        &found,
        "no process can migrate memory to a GPU",
        of(&found),
        what,
        nothing,
    )
    .in_part(host.processes.why_in_part())
}

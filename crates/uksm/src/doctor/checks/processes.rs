//! Memory of processes that uksm cannot reach, by name and amount.
//!
//! # Problem
//! uksm merges private memory. Sandboxes and virtual machines often have their memory in shared
//! mappings, in huge pages of hugetlbfs, in files of the kernel, or locked or pinned: then nothing
//! is merged, even if much is equal.
//!
//! # Approach
//! `/proc/PID/status` has the amounts, and any user may read it. The kind of memory follows from
//! the names of mappings and of open files, which need the right to trace; they are read only of
//! processes that have [`MIN_REPORTED_BYTES`] of memory. Unreadable processes are counted. `smaps`
//! and `smaps_rollup` are not read: they walk the page tables of a process while its mappings are
//! locked, which slows a large virtual machine. All is bounded: processes, mappings, open files.
//!
//! # Units
//! Bytes. The kernel's `kB` are 1024.
//!
//! # Source
//! proc(5); the kernel's `virt/kvm/guest_memfd.c` and `drivers/vfio/vfio_main.c` for the names of
//! their files.

use uksm_policy::report::counted;

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::processes::{HostProcess, MIN_REPORTED_BYTES};
use crate::doctor::probe::size;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "processes-read",
        finds: "some processes could not be read, or there are more than 32,768",
        reads: "/proc/PID/{status,maps,fd}",
        worst: Severity::Note,
        cost: "the findings about processes are of a part of them only",
        mend: "run the command with CAP_SYS_PTRACE, as root on the host has it",
        judge: read_in_part,
    },
    Check {
        name: "hugetlb-memory",
        finds: "processes have memory in hugetlbfs",
        reads: "/proc/PID/status",
        worst: Severity::Warning,
        cost: "huge pages of hugetlbfs are never merged, nor split",
        mend: "back these programs with ordinary memory; the kernel makes huge pages of it by itself",
        judge: hugetlb,
    },
    Check {
        name: "shared-memory",
        finds: "processes have shared memory; a warning if it is a virtual machine's or sandbox's",
        reads: "/proc/PID/{status,maps}",
        worst: Severity::Warning,
        cost: "several processes share this memory already, and uksm does not merge it with \
               other memory (gVisor, and Kata with virtio-fs, keep all memory of a sandbox so)",
        mend: "for Kata: shared_fs = \"none\" or virtio-9p, so that memory need not be shared; for gVisor there is none",
        judge: shared,
    },
    Check {
        name: "guest-memfd",
        finds: "a process holds a guest_memfd",
        reads: "/proc/PID/fd",
        worst: Severity::Warning,
        cost: "memory of a guest_memfd belongs to a virtual machine alone, often encrypted: nobody can merge it",
        mend: "none: such a machine is closed to its host",
        judge: guest_memfd,
    },
    Check {
        name: "vfio",
        finds: "a process holds a device of VFIO",
        reads: "/proc/PID/fd",
        worst: Severity::Warning,
        cost: "a device that is passed through pins all memory of its machine: no page of it can be merged",
        mend: "give the machine a virtio device instead",
        judge: vfio,
    },
    Check {
        name: "dax",
        finds: "processes map a device for memory",
        reads: "/proc/PID/maps",
        worst: Severity::Warning,
        cost: "memory of a device is mapped without the kernel's pages: it cannot be merged",
        mend: "use ordinary memory for what shall be merged",
        judge: dax,
    },
    Check {
        name: "locked-memory",
        finds: "processes have locked memory, and locked is not set",
        reads: "/proc/PID/status; `locked` of the configuration",
        worst: Severity::Warning,
        cost: "mlocked memory is left alone unless locked is set; if it is merged, a write to it \
               may wait for memory, which its program may not expect",
        mend: "set locked, if its owners agree, or do not lock",
        judge: locked,
    },
    Check {
        name: "pinned-memory",
        finds: "processes have pinned memory",
        reads: "/proc/PID/status",
        worst: Severity::Note,
        cost: "pages that a device or io_uring holds are busy, and stay unmerged while it holds \
               them",
        mend: "none: it ends when the program releases the pages",
        judge: pinned,
    },
    Check {
        name: "ksm-memory",
        finds: "processes offer memory to KSM, or KSM has merged some; a note while KSM does not \
                run",
        reads: "/proc/PID/ksm_stat",
        worst: Severity::Warning,
        cost: "uksm leaves alone the pages that KSM has merged and, while KSM runs, all memory \
               offered to it",
        mend: "stop KSM, or do not name these processes",
        judge: of_ksm,
    },
];

/// Maximum number of processes that are listed with a verdict.
const MAX_LISTED: usize = 8;

/// None for an amount that is not reported.
fn much(bytes: u64) -> Option<u64> {
    (bytes >= MIN_REPORTED_BYTES).then_some(bytes)
}

/// The severity for processes whose memory cannot be merged: it matters for targets; for others it
/// is a note.
pub(in crate::doctor) fn severity<'a>(
    found: impl IntoIterator<Item = &'a HostProcess>,
) -> Severity {
    let mut found = found.into_iter();
    match found.any(|process| process.is_target) {
        true => Severity::Warning,
        false => Severity::Note,
    }
}

/// A list of processes with amounts; those beyond [`MAX_LISTED`] are counted.
fn listed(found: &[(u64, &HostProcess)], more: impl Fn(&HostProcess) -> String) -> Vec<String> {
    let lines = found.iter().take(MAX_LISTED);
    let mut lines: Vec<String> = lines
        .map(|(bytes, process)| {
            let (called, more) = (process.called(), more(process));
            format!("{called}: {}{more}", size(*bytes))
        })
        .collect();
    let rest = &found[found.len().min(MAX_LISTED)..];
    if !rest.is_empty() {
        let bytes = rest.iter().map(|(bytes, _)| bytes).sum();
        lines.push(format!("and {} more: {}", rest.len(), size(bytes)));
    }
    lines
}

/// The verdict on these processes; `what` makes the finding from the sum.
pub(in crate::doctor) fn verdict_on(
    found: &[(u64, &HostProcess)],
    none: &str,
    severity: Severity,
    what: impl Fn(String) -> String,
    more: impl Fn(&HostProcess) -> String,
) -> Verdict {
    if found.is_empty() {
        return Verdict::ok(none);
    }
    let total = found.iter().map(|(bytes, _)| bytes).sum();
    Verdict::new(severity, what(size(total))).about(listed(found, more))
}

/// The severity for these processes.
pub(in crate::doctor) fn of(found: &[(u64, &HostProcess)]) -> Severity {
    severity(found.iter().map(|(_, process)| *process))
}

pub(in crate::doctor) fn nothing(_: &HostProcess) -> String {
    String::new()
}

fn read_in_part(host: &Host) -> Verdict {
    match (host.processes.why_in_part(), host.processes.all.len()) {
        (None, 0) => Verdict::unknown("/proc shows no processes"),
        (None, count) => Verdict::ok(format!(
            "{} read",
            counted(count as u64, "process was", "processes were")
        )),
        (Some(why), _) => {
            let closed = &host.processes.closed;
            let named = closed.iter().take(MAX_LISTED).cloned();
            Verdict::note(why).about(named.collect())
        }
    }
}

fn hugetlb(host: &Host) -> Verdict {
    let found = host.processes.with(|process| much(process.hugetlb));
    let what = |size| format!("processes have {size} in huge pages of hugetlbfs");
    verdict_on(
        &found,
        "no process has memory of hugetlbfs",
        of(&found),
        what,
        nothing,
    )
}

fn shared(host: &Host) -> Verdict {
    let found = host.processes.with(|process| much(process.shared));
    let what = |size| format!("processes have {size} of shared memory, counted in each");
    let largest = |process: &HostProcess| {
        let largest = process.mappings.iter().max_by_key(|(_, bytes)| **bytes);
        largest.map_or_else(String::new, |(name, _)| format!(", as {name}"))
    };
    // A database's buffers are shared on purpose; a sandbox's memory is the finding.
    let sandboxes = found.iter().map(|(_, process)| *process).filter(|process| {
        process.machine.is_some() || process.mappings.keys().any(|name| is_sandbox(name))
    });
    let severity = severity(sandboxes);
    verdict_on(
        &found,
        "no process has much shared memory",
        severity,
        what,
        largest,
    )
}

/// Names that gVisor, Kata, QEMU, crosvm and cloud-hypervisor give to the memory of a machine or
/// sandbox.
fn is_sandbox(name: &str) -> bool {
    const NAMES: [&str; 5] = [
        "runsc-memory",
        "memory-backend-",
        "ch_ram",
        "crosvm_guest",
        "kata",
    ];
    NAMES.iter().any(|part| name.contains(part))
}

fn guest_memfd(host: &Host) -> Verdict {
    let machines = |process: &HostProcess| process.guest_memfd.then_some(process.resident);
    let found = host.processes.with(machines);
    let what = |size| format!("machines keep memory in guest_memfd, beside {size} of other memory");
    verdict_on(
        &found,
        "no process holds a guest_memfd",
        of(&found),
        what,
        nothing,
    )
    .in_part(host.processes.why_in_part())
}

fn vfio(host: &Host) -> Verdict {
    let pinned = |process: &HostProcess| {
        let pinned = process.locked.max(process.resident);
        process.vfio.then_some(pinned)
    };
    let found = host.processes.with(pinned);
    let what = |size| format!("devices are passed through, which pins up to {size}");
    verdict_on(
        &found,
        "no process holds a device of VFIO",
        of(&found),
        what,
        nothing,
    )
    .in_part(host.processes.why_in_part())
}

fn dax(host: &Host) -> Verdict {
    let found = host.processes.with(|process| much(process.dax));
    let what = |size| format!("processes map {size} of devices for memory (DAX)");
    verdict_on(
        &found,
        "no process maps a device for memory",
        of(&found),
        what,
        nothing,
    )
    .in_part(host.processes.why_in_part())
}

fn locked(host: &Host) -> Verdict {
    // VFIO counts its pinned memory as locked, and has a check of its own.
    let found = host
        .processes
        .with(|process| much(process.locked).filter(|_| !process.vfio));
    if host.configuration.merges_locked() && !found.is_empty() {
        return Verdict::ok("there is mlocked memory, and uksm is set to merge it (locked)");
    }
    let what = |size| format!("processes have locked {size}");
    verdict_on(
        &found,
        "no process has locked much memory",
        of(&found),
        what,
        nothing,
    )
}

fn pinned(host: &Host) -> Verdict {
    let found = host.processes.with(|process| much(process.pinned));
    let what = |size| format!("{size} are pinned for devices or io_uring");
    verdict_on(
        &found,
        "no process has pinned much memory",
        Severity::Note,
        what,
        nothing,
    )
}

fn of_ksm(host: &Host) -> Verdict {
    let found = host
        .processes
        .with(|process| process.ksm.then_some(process.resident));
    let severity = match host.memory.ksm_runs() {
        true => of(&found),
        false => Severity::Note,
    };
    let what = |size| format!("processes offer {size} to KSM, or KSM has merged it");
    verdict_on(
        &found,
        "no process offers memory to KSM",
        severity,
        what,
        nothing,
    )
}

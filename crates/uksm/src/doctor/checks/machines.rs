//! Virtual machines of QEMU: their options decide whether their memory can be merged.
//!
//! # Approach
//! The options are read from the command line, which any user may read, in both of its forms:
//! `key=value,...` and the JSON of libvirt. Options that are read from a file (`-readconfig`) are
//! not seen. A later option on a line wins, as in QEMU.
//!
//! # Source
//! qemu(1): `-machine mem-merge=`, `-mem-prealloc`, `-object memory-backend-*`, `-overcommit
//! mem-lock=`, `-device virtio-balloon-*`.

use super::processes::severity;
use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::machines::Machine;
use crate::doctor::host::processes::HostProcess;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "qemu-mem-merge",
        finds: "KSM runs, and machines advise their memory to it",
        reads: "/proc/PID/cmdline, /sys/kernel/mm/ksm/run",
        worst: Severity::Warning,
        cost: "QEMU advises guest memory to KSM by default: while KSM runs, uksm leaves that \
               memory to it",
        mend: "start the machine with -machine mem-merge=off (libvirt: <nosharepages/> in <memoryBacking>), or stop KSM",
        judge: mem_merge,
    },
    Check {
        name: "qemu-shared",
        finds: "guest memory is shared",
        reads: "/proc/PID/cmdline",
        worst: Severity::Warning,
        cost: "guest memory that is shared with another process (share=on) cannot be merged",
        mend: "leave share=on out, if no vhost-user or virtiofsd needs it (libvirt: <access mode='private'/>)",
        judge: shared,
    },
    Check {
        name: "qemu-prealloc",
        finds: "guest memory is taken at the start",
        reads: "/proc/PID/cmdline",
        worst: Severity::Note,
        cost: "all guest memory is taken at the start, of zeros: it is merged with the zero page, and taken again when the guest writes",
        mend: "leave -mem-prealloc and prealloc=on out (libvirt: <allocation mode='ondemand'/>)",
        judge: prealloc,
    },
    Check {
        name: "qemu-mem-lock",
        finds: "guest memory is locked, and locked is not set",
        reads: "/proc/PID/cmdline; `locked` of the configuration",
        worst: Severity::Warning,
        cost: "guest memory is mlocked: uksm leaves it alone unless locked is set",
        mend: "leave -overcommit mem-lock=on out (libvirt: <locked/>), or set locked",
        judge: mem_lock,
    },
    Check {
        name: "qemu-balloon",
        finds: "machines have no balloon",
        reads: "/proc/PID/cmdline",
        worst: Severity::Note,
        cost: "a machine without a balloon cannot be made larger or smaller: it gets no memory \
               that its group freed",
        mend: "add a virtio balloon (libvirt: <memballoon model='virtio'/>)",
        judge: balloon,
    },
];

/// Maximum number of machines that are named with a verdict.
const MAX_LISTED: usize = 8;

/// The machines for which `holds` is true, by id.
fn those(host: &Host, holds: impl Fn(&Machine) -> bool) -> Vec<&HostProcess> {
    let all = host.processes.all.iter();
    all.filter(|process| process.machine.as_ref().is_some_and(&holds))
        .collect()
}

/// The verdict about the machines `found`; `none` is the result without them.
fn about_machines(host: &Host, found: &[&HostProcess], none: &str, verdict: Verdict) -> Verdict {
    if those(host, |_| true).is_empty() {
        return Verdict::not_applicable("no machine of QEMU runs");
    }
    if found.is_empty() {
        return Verdict::ok(none);
    }
    let named = found.iter().take(MAX_LISTED);
    let mut details: Vec<String> = named.map(|process| process.called()).collect();
    if found.len() > MAX_LISTED {
        details.push(format!("and {} more", found.len() - MAX_LISTED));
    }
    verdict.about(details)
}

fn mem_merge(host: &Host) -> Verdict {
    let found = those(host, |machine| machine.merges);
    if !host.memory.ksm_runs() {
        return Verdict::ok("KSM does not run, and merges no machine");
    }
    let verdict = Verdict::new(
        severity(found.iter().copied()),
        "KSM runs, and these machines advise their memory to it",
    )
    .mend("echo 0 > /sys/kernel/mm/ksm/run");
    about_machines(
        host,
        &found,
        "no machine advises its memory to KSM",
        verdict,
    )
}

fn shared(host: &Host) -> Verdict {
    let found = those(host, |machine| machine.shares);
    let verdict = Verdict::new(
        severity(found.iter().copied()),
        "memory of these machines is shared with other processes",
    );
    about_machines(
        host,
        &found,
        "no machine of QEMU shares its memory",
        verdict,
    )
}

fn prealloc(host: &Host) -> Verdict {
    let found = those(host, |machine| machine.preallocates);
    let verdict = Verdict::note("these machines take all their memory at the start");
    about_machines(
        host,
        &found,
        "no machine of QEMU takes all memory at its start",
        verdict,
    )
}

fn mem_lock(host: &Host) -> Verdict {
    if host.configuration.merges_locked() {
        return Verdict::ok("uksm is set to merge locked memory (locked)");
    }
    let found = those(host, |machine| machine.locks);
    let verdict = Verdict::new(
        severity(found.iter().copied()),
        "these machines lock their memory, and locked is not set",
    );
    about_machines(host, &found, "no machine of QEMU locks its memory", verdict)
}

fn balloon(host: &Host) -> Verdict {
    let found = those(host, |machine| !machine.balloon);
    let verdict = Verdict::note("these machines have no balloon");
    about_machines(
        host,
        &found,
        "no machine of QEMU is without a balloon",
        verdict,
    )
}

//! Programs that offer all their memory to in-kernel KSM, on kernels that keep their mappings
//! apart.
//!
//! # Problem
//! From `PR_SET_MEMORY_MERGE` on (`uksm exec --merge all`, `MemoryKSM=yes`), Linux 6.4 to 6.16 do
//! not join neighboring mappings of a program. A program that makes many reaches
//! `vm.max_map_count`, and its next mmap(2) fails.
//!
//! # Approach
//! Whether this kernel does so is tried with this program's own memory
//! ([`offering_keeps_mappings_apart`](uksm_linux::ksm::memory::offering_keeps_mappings_apart)).
//! Programs are known by `ksm_merge_any` of their `ksm_stat`; if the kernel does not report that,
//! by neighbours that another kernel would have joined: at least [`MIN_APART`], in memory that KSM
//! scans.
//!
//! # Source
//! The kernel's `mm/mmap.c` and `mm/vma.c` (`__mmap_new_vma()`, `ksm_add_vma()`).

use super::processes::severity;
use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::processes::HostProcess;
use crate::doctor::probe::size;

pub(in crate::doctor) const CHECKS: &[Check] = &[Check {
    name: "mappings-apart",
    finds: "programs offer all their memory to KSM, and this kernel joins no neighboring mappings of them",
    reads: "/proc/PID/{ksm_stat,maps}, /proc/sys/vm/max_map_count; what the kernel does with two mappings of uksm itself",
    worst: Severity::Warning,
    cost: "a program that makes many mappings reaches vm.max_map_count, and can make no more (Linux 6.4 to 6.16)",
    mend: "a higher vm.max_map_count, or uksm exec --merge advised in place of --merge all",
    judge: mappings_apart,
}];

/// Minimum number of neighbours that could be one mapping; programs without this problem have
/// fewer.
const MIN_APART: u64 = 1000;

/// Maximum number of programs that are named.
const MAX_LISTED: usize = 8;

fn mappings_apart(host: &Host) -> Verdict {
    if !host.mappings.are_apart {
        return Verdict::ok(
            "the kernel joins neighboring mappings of programs that offer their memory to KSM",
        );
    }
    let offers = |process: &HostProcess| match process.merges_any {
        Some(offers) => offers,
        None => process.ksm && process.apart >= MIN_APART,
    };
    let found = host
        .processes
        .with(|process| offers(process).then_some(process.resident));
    if found.is_empty() {
        return Verdict::ok("no program offers all its memory to KSM")
            .in_part(host.processes.why_in_part());
    }
    let max = host.mappings.max;
    let line = |(resident, process): &(u64, &HostProcess)| {
        let (called, mappings) = (process.called(), process.mapping_count);
        format!(
            "{called}: {}, {mappings} of {max} mappings",
            size(*resident)
        )
    };
    let severity = match host.configuration.drives_ksm() {
        true => Severity::Warning,
        false => severity(found.iter().map(|(_, process)| *process)),
    };
    let what = "this kernel joins no neighboring mappings of programs that offer all their memory to KSM (Linux 6.4 to 6.16): \
                one that makes many mappings needs a higher vm.max_map_count, or --merge advised";
    Verdict::new(severity, what)
        .about(found.iter().take(MAX_LISTED).map(line).collect())
        .mend(format!("sysctl vm.max_map_count={}", 4 * max))
        .in_part(host.processes.why_in_part())
}

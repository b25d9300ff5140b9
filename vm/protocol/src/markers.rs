//! Lines of a kernel log that fail a run.
//!
//! Problem: a kernel with damaged page tables often goes on running, and tests go on passing; only
//! its log shows that something broke. But the log also has words like "bug" in ordinary lines.
//!
//! Approach: a fixed table of phrases as the kernel prints them, each with the place in the line
//! where it must stand. A run with one such line has failed, whatever the results of its tests.
//! [`Severity::Fatal`] ones end the machine at once: its later messages cannot be trusted.
//!
//! Source: lib/bug.c, kernel/panic.c, kernel/fork.c (check_mm), mm/debug.c,
//! mm/page_alloc.c (bad_page), mm/memory.c (print_bad_pte), mm/kasan/report.c,
//! kernel/locking/lockdep.c, kernel/hung_task.c, kernel/watchdog.c,
//! kernel/rcu/tree_stall.h, lib/ubsan.c, mm/kmemleak.c.

/// The effect of a marker on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The run has failed; it goes on to learn more.
    Complaint,
    /// The kernel is dying or dead: end the machine.
    Fatal,
}

/// The place of a phrase in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkerPosition {
    /// At the beginning, behind time stamp and caller.
    Start,
    /// Anywhere.
    Anywhere,
}

struct Marker {
    phrase: &'static str,
    place: MarkerPosition,
    severity: Severity,
}

const fn marker(phrase: &'static str, place: MarkerPosition, severity: Severity) -> Marker {
    Marker {
        phrase,
        place,
        severity,
    }
}

use MarkerPosition::{Anywhere, Start};
use Severity::{Complaint, Fatal};

const MARKERS: &[Marker] = &[
    marker("Kernel panic - not syncing", Anywhere, Fatal),
    marker("Oops: ", Start, Fatal),
    marker("general protection fault", Start, Fatal),
    marker("kernel BUG at", Anywhere, Fatal),
    marker("invalid opcode: ", Start, Fatal),
    marker("int3: ", Start, Fatal),
    marker("stack segment: ", Start, Fatal),
    marker("double fault: ", Start, Fatal),
    marker("PANIC: double fault", Start, Fatal),
    marker("Missing ENDBR", Anywhere, Fatal),
    marker("BUG: unable to handle", Start, Fatal),
    marker("BUG: kernel NULL pointer", Start, Fatal),
    // Under emulation two CPUs share the time that QEMU gets; a long pause is no proof of a bug,
    // but it spoils the run's figures, so it is reported.
    marker("watchdog: BUG: soft lockup", Start, Complaint),
    marker("BUG: ", Start, Complaint),
    marker("WARNING: CPU:", Start, Complaint),
    marker("WARNING: possible", Start, Complaint),
    marker("WARNING: inconsistent lock state", Start, Complaint),
    marker("WARNING: suspicious RCU usage", Start, Complaint),
    marker("WARNING: bad unlock balance", Start, Complaint),
    marker("WARNING: lock held", Start, Complaint),
    marker("WARNING: held lock freed", Start, Complaint),
    marker("WARNING: Nested lock was not taken", Start, Complaint),
    marker("WARNING: HARDIRQ-safe", Start, Complaint),
    marker("WARNING: SOFTIRQ-safe", Start, Complaint),
    marker("WARNING: stack going", Start, Complaint),
    marker("WARNING: kernel stack", Start, Complaint),
    marker("Bad page map in process", Anywhere, Complaint),
    marker("Bad page state in process", Anywhere, Complaint),
    marker("Bad rss-counter state", Anywhere, Complaint),
    marker("bad pmd ", Anywhere, Complaint),
    marker("bad pte ", Anywhere, Complaint),
    marker("non-zero pgtables_bytes on freeing mm", Anywhere, Complaint),
    marker("page dumped because: ", Start, Complaint),
    marker("KASAN: ", Anywhere, Complaint),
    marker("KFENCE: ", Anywhere, Complaint),
    marker("UBSAN: ", Start, Complaint),
    marker("possible circular locking dependency", Anywhere, Complaint),
    marker("possible recursive locking", Anywhere, Complaint),
    marker("INFO: task ", Start, Complaint),
    marker("INFO: rcu", Start, Complaint),
    marker("rcu: INFO: rcu", Start, Complaint),
    marker("kmemleak: ", Start, Complaint),
    marker("refcount_t: ", Start, Complaint),
    marker("list_add corruption", Start, Complaint),
    marker("list_del corruption", Start, Complaint),
    marker("pagealloc: memory corruption", Start, Complaint),
    marker("pagealloc: single bit error", Start, Complaint),
];

/// Lines with a marker's phrase that report success, or that do not concern this module.
const ORDINARY: &[&str] = &[
    "kmemleak: Kernel memory leak detector initialized",
    "kmemleak: Automatic memory scanning thread started",
    "KFENCE: initialized",
    "kasan: KernelAddressSanitizer initialized",
    // The reason why memory stays online that a test wants to take offline: it has pages that
    // cannot be moved, or that could not be moved at once.
    "page dumped because: unmovable page",
    "page dumped because: migration failure",
];

/// The severity of a line of the kernel's log or console, if it is a marker.
///
/// ```
/// use uksm_vm_protocol::markers::{Severity, severity};
/// assert_eq!(severity("[   12.3] Kernel panic - not syncing: VFS"), Some(Severity::Fatal));
/// assert_eq!(severity("[    0.0] Debugging: CONFIG_DEBUG_BUGVERBOSE"), None);
/// ```
#[must_use]
pub fn severity(line: &str) -> Option<Severity> {
    if ORDINARY.iter().any(|ordinary| line.contains(ordinary)) {
        return None;
    }
    let text = without_prefix(line);
    MARKERS
        .iter()
        .find(|marker| match marker.place {
            MarkerPosition::Start => text.starts_with(marker.phrase),
            MarkerPosition::Anywhere => text.contains(marker.phrase),
        })
        .map(|marker| marker.severity)
}

/// Strips console escapes, the time stamp, the caller (`CONFIG_PRINTK_CALLER`)
/// and the module's printk prefix.
fn without_prefix(line: &str) -> &str {
    let mut text = line.trim_start_matches(['\r', '\0']).trim_start();
    while let Some(rest) = text.strip_prefix('[') {
        let Some((inside, after)) = rest.split_once(']') else {
            break;
        };
        let stamp = inside.trim();
        let is_time = !stamp.is_empty() && stamp.chars().all(|c| c.is_ascii_digit() || c == '.');
        let is_caller =
            stamp.starts_with(['T', 'C']) && stamp[1..].chars().all(|c| c.is_ascii_digit());
        if !is_time && !is_caller {
            break;
        }
        text = after.trim_start();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_marker_is_detected_as_the_kernel_prints_it() {
        for marker in MARKERS {
            for line in [
                format!("[    5.123456] {}x", marker.phrase),
                format!("[    5.123456][  T123] {}x", marker.phrase),
                format!("{}x", marker.phrase),
            ] {
                assert!(severity(&line).is_some(), "{line}");
            }
        }
    }

    #[test]
    fn real_splats_are_detected() {
        let fatal = [
            "[    9.1] BUG: unable to handle page fault for address: ffff888000000000",
            "[    9.1] Oops: 0002 [#1] PREEMPT SMP NOPTI",
            "[    9.1] kernel BUG at mm/rmap.c:1234!",
            "[    9.1] general protection fault, probably for non-canonical address",
            "[    1.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
        ];
        for line in fatal {
            assert_eq!(severity(line), Some(Severity::Fatal), "{line}");
        }
        let complaints = [
            "[    9.1] WARNING: CPU: 1 PID: 77 at mm/page_counter.c:57 page_counter_uncharge+0x4b/0x60",
            "[    9.1] BUG: Bad page state in process uksm-guest  pfn:12345",
            "[    9.1] BUG: Bad rss-counter state mm:000000003b type:MM_ANONPAGES val:5",
            "[    9.1] BUG: Bad page map in process worker  pte:8000 pmd:1200",
            "[    9.1] WARNING: possible circular locking dependency detected",
            "[    9.1] BUG: KASAN: slab-use-after-free in uksm_fold+0x10/0x20 [uksm]",
            "[  243.1] INFO: task uksm:77 blocked for more than 120 seconds.",
            "[    9.1] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [ksmd:31]",
            "[    9.1] UBSAN: array-index-out-of-bounds in kernel/fold.c:12:3",
            "[    9.1] BUG: sleeping function called from invalid context at mm/page_alloc.c:1",
            "[    9.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        ];
        for line in complaints {
            assert_eq!(severity(line), Some(Severity::Complaint), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_not_markers() {
        let lines = [
            "",
            "[",
            "[    0.000000] Linux version 6.12.117+deb12-cloud-amd64 (debian-kernel@lists.debian.org)",
            "[    0.000000] Command line: panic=-1 oops=panic console=ttyS0",
            "[    0.51] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible",
            "[    0.1] x86/fpu: x87 FPU will use FXSAVE",
            "[    2.1] uksm: loading out-of-tree module taints kernel.",
            "[    2.1] uksm: module verification failed: signature and/or required key missing - tainting kernel",
            "[    3.1] debug: BUG: as a word inside a line is no report",
            "[    3.1] traps: uksm-guest[71] general protection fault ip:401000 sp:7ffc error:0",
            "[    3.2] Out of memory: Killed process 71 (hog)",
            "[    3.3] lockdep: debugging information INFO: none",
            "[   13.2] page dumped because: unmovable page",
            "[    0.4] kfence: KFENCE: initialized - using 2097152 bytes for 255 objects",
        ];
        for line in lines {
            assert_eq!(severity(line), None, "{line}");
        }
    }
}

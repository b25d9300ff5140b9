//! Memory of the host: settings of the kernel that decide how much can be merged, other programs
//! that merge, and whether there is room for merged pages to come apart again.
//!
//! # Source
//! Kernel documentation `admin-guide/mm/{transhuge,hugetlbpage,ksm,zswap}.rst`,
//! `mm/overcommit-accounting.rst`, `admin-guide/cgroup-v2.rst`.

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::probe::{FileContent, size};
use crate::doctor::prospect::chosen;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "huge-pages",
        finds: "the kernel makes huge pages wherever it can: a note; with thp = \"never\" a warning",
        reads: "/sys/kernel/mm/transparent_hugepage/{enabled,defrag}",
        worst: Severity::Warning,
        cost: "pages of a huge page are merged only after it was split, and that is done only where a share thp_share of them have partners: less is saved, and later",
        mend: "madvise gives huge pages to programs that ask for them; or lower thp_share",
        judge: huge_pages,
    },
    Check {
        name: "khugepaged",
        finds: "khugepaged may make huge pages of ranges that are mostly zeros, or the kernel splits such when memory is short: a note; the former with merge = \"zero\" a warning",
        reads: "/sys/kernel/mm/transparent_hugepage/{enabled,shrink_underused,khugepaged/max_ptes_none}",
        worst: Severity::Warning,
        cost: "khugepaged undoes merges with the zero page, and uksm leaves zeros in such huge pages alone then; with shrink_underused the kernel splits huge pages with more than max_ptes_none pages of zeros, whether or not anything else is merged there",
        mend: "max_ptes_none = 0: khugepaged makes huge pages of full ranges only, and fewer; shrink_underused = 0 beside it: huge pages with some zeros stay whole, and uksm splits where thp_share pays",
        judge: khugepaged,
    },
    Check {
        name: "hugetlb-reserved",
        finds: "huge pages are set aside",
        reads: "/sys/kernel/mm/hugepages/*/nr_hugepages",
        worst: Severity::Warning,
        cost: "this memory is set aside for hugetlbfs: none of it can be merged, or used for \
               anything else",
        mend: "reserve less; back virtual machines with ordinary memory",
        judge: hugetlb_reserved,
    },
    Check {
        name: "ksm",
        finds: "KSM runs; a note if it is set to unmerge all",
        reads: "/sys/kernel/mm/ksm/{run,pages_to_scan,sleep_millisecs}",
        worst: Severity::Warning,
        cost: "ksmd takes processor time of its own, and uksm leaves alone what it has merged, and memory that is offered to it as long as it runs; `echo 2 > run` unmerges pages of uksm, too, in memory that was advised to KSM",
        mend: "stop KSM with 0, which leaves its pages merged; give them back with 2 before uksm starts, if there is memory for the copies",
        judge: ksm,
    },
    Check {
        name: "ksm-tuner",
        finds: "ksmtuned or its like runs, or KSM's advisor sets the pace of a KSM that runs",
        reads: "/proc/PID/status, /sys/kernel/mm/ksm/advisor_mode",
        worst: Severity::Warning,
        cost: "a tuner starts KSM whenever memory gets short, and the advisor lets it take up to advisor_max_cpu percent of a core",
        mend: "stop the tuner, or choose no advisor",
        judge: ksm_tuner,
    },
    Check {
        name: "overcommit",
        finds: "the kernel does not overcommit memory",
        reads: "/proc/sys/vm/overcommit_memory",
        worst: Severity::Warning,
        cost: "the kernel limits reserved memory, not used memory: programs cannot reserve the \
               memory that merging frees",
        mend: "let the kernel overcommit: 0, its default",
        judge: overcommit,
    },
    Check {
        name: "swap",
        finds: "there is no swap",
        reads: "/proc/swaps",
        worst: Severity::Note,
        cost: "copies of merged pages that are written again need free memory; merged pages \
               themselves are never swapped",
        mend: "add swap, or keep as much memory free as uksm saves",
        judge: swap,
    },
    Check {
        name: "compressed-swap",
        finds: "zswap is on, or swap is on zram",
        reads: "/sys/module/zswap/parameters/enabled, /proc/swaps",
        worst: Severity::Note,
        cost: "a page that is compressed is not merged until it is back; merged pages are not compressed",
        mend: "none is needed: let uksm run before memory gets short",
        judge: compressed_swap,
    },
    Check {
        name: "headroom",
        finds: "uksm saves more than is available, or less than 5 % of memory is",
        reads: "/proc/meminfo; the daemon's status",
        worst: Severity::Warning,
        cost: "if processes write their merged pages again, or uksm break is used, memory may \
               not suffice for all copies",
        mend: "add swap or memory, or bound what is merged with max_frames",
        judge: headroom,
    },
    Check {
        name: "cgroup-v2",
        finds: "control groups of version 2 are not mounted at /sys/fs/cgroup",
        reads: "/sys/fs/cgroup/cgroup.controllers",
        worst: Severity::Warning,
        cost: "no process can be named by control group, unit or virtual machine; if they are \
               mounted elsewhere (hybrid), processes can be named so, but no control group can pay \
               for a group or get the memory that it freed",
        mend: "boot with systemd.unified_cgroup_hierarchy=1",
        judge: cgroup_v2,
    },
    Check {
        name: "memory-controller",
        finds: "control groups do not count memory",
        reads: "/sys/fs/cgroup/cgroup.controllers",
        worst: Severity::Warning,
        cost: "frames are charged to no control group, and members of a group cannot receive the \
               memory that it freed",
        mend: "boot without cgroup_disable=memory, or with cgroup_enable=memory",
        judge: memory_controller,
    },
    Check {
        name: "numa",
        finds: "the host has several nodes of memory",
        reads: "/sys/devices/system/node",
        worst: Severity::Note,
        cost: "a merged page lies on the node of the first page that became it: processes of other nodes read it across nodes",
        mend: "merge_across_nodes = false, where pages shall not leave their node",
        judge: numa,
    },
];

/// The part of memory below which available memory is little: the default of `headroom_take`.
const LITTLE: f64 = 0.05;

/// Programs that start and stop KSM.
const TUNERS: [&str; 2] = ["ksmtuned", "ksm-throttler"];

fn huge_pages(host: &Host) -> Verdict {
    let memory = &host.memory;
    let FileContent::There(enabled) = &memory.enabled else {
        return match &memory.enabled {
            FileContent::Unread(why) => Verdict::unknown(why),
            FileContent::There(_) | FileContent::Absent => {
                Verdict::ok("the kernel makes no huge pages by itself")
            }
        };
    };
    let madvise = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    match chosen(enabled) {
        Some("always") => {
            let eager = chosen(memory.defrag.text()) == Some("always");
            let what = match eager {
                true => {
                    "the kernel makes huge pages wherever it can, and waits to make room for them"
                }
                false => "the kernel makes huge pages wherever it can",
            };
            match host.configuration.splits_huge_pages() {
                true => Verdict::note(what).mend(madvise),
                false => Verdict::warning(format!(
                    "{what}, and uksm is set to leave them alone (thp = \"never\")"
                ))
                .mend(madvise),
            }
        }
        Some(mode) => Verdict::ok(format!("transparent huge pages: {mode}")),
        None => Verdict::unknown("/sys/kernel/mm/transparent_hugepage/enabled names no mode"),
    }
}

/// `max_ptes_none` at which the kernel never counts a huge page as underused.
const ALL_BUT_ONE: u64 = 511;

fn khugepaged(host: &Host) -> Verdict {
    let memory = &host.memory;
    let is_off = chosen(memory.enabled.text()) == Some("never");
    if is_off
        || memory.enabled == FileContent::Absent
        || memory.max_ptes_none == FileContent::Absent
    {
        return Verdict::ok("khugepaged makes no huge pages");
    }
    if let FileContent::Unread(why) = &memory.max_ptes_none {
        return Verdict::unknown(why);
    }
    let Ok(max_ptes_none) = memory.max_ptes_none.text().parse::<u64>() else {
        return Verdict::unknown(
            "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none holds no number",
        );
    };
    let splits = memory.shrink_underused.text() == "1";
    let keep = "echo 0 > /sys/kernel/mm/transparent_hugepage/shrink_underused";
    if max_ptes_none == 0 {
        return match splits {
            false => Verdict::ok("khugepaged makes huge pages of full ranges only"),
            true => Verdict::note(
                "the kernel splits every huge page with a page of zeros when memory is short \
                 (shrink_underused is 1, max_ptes_none 0)",
            )
            .mend(keep),
        };
    }
    let what = format!(
        "khugepaged makes a huge page of a range in which {max_ptes_none} pages of 512 are zeros or not there"
    );
    let verdict = match host.configuration.merges_zeros_only() {
        true => Verdict::warning(format!("{what}, and uksm merges zeros only")),
        false => Verdict::note(what),
    };
    let about = match splits {
        true if max_ptes_none < ALL_BUT_ONE => vec![format!(
            "shrink_underused is 1: when memory is short the kernel splits huge pages with more than {max_ptes_none} pages of zeros"
        )],
        true => {
            vec!["shrink_underused is 1, and does nothing while max_ptes_none is 511".to_owned()]
        }
        false => vec![],
    };
    let verdict = verdict
        .about(about)
        .mend("echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none");
    match splits {
        true => verdict.mend(keep),
        false => verdict,
    }
}

fn hugetlb_reserved(host: &Host) -> Verdict {
    let reserved = host.memory.reserved.iter().filter(|(_, count)| *count > 0);
    let bytes = |(of, count): &(u64, u64)| of.saturating_mul(*count);
    let total: u64 = reserved.clone().map(bytes).sum();
    if total == 0 {
        return Verdict::ok("no memory is set aside for hugetlbfs");
    }
    let details = reserved
        .clone()
        .map(|one| format!("{} of {}: {}", one.1, size(one.0), size(bytes(one))));
    let verdict = Verdict::warning(format!("{} are set aside for hugetlbfs", size(total)))
        .about(details.collect());
    reserved.fold(verdict, |verdict, (of, _)| {
        let kib = of >> 10;
        verdict.mend(format!(
            "echo 0 > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
        ))
    })
}

fn ksm(host: &Host) -> Verdict {
    let memory = &host.memory;
    match &memory.run {
        FileContent::There(run) => match run.trim() {
            "1" => {
                let (pages, sleep) = (memory.scan.0.text(), memory.scan.1.text());
                Verdict::warning(format!(
                    "KSM runs beside uksm: it looks at {pages} pages each {sleep} ms"
                ))
                .mend("echo 0 > /sys/kernel/mm/ksm/run")
            }
            "2" => {
                Verdict::note("KSM is set to unmerge all memory that was advised to it (run is 2)")
                    .mend("echo 0 > /sys/kernel/mm/ksm/run")
            }
            _ => Verdict::ok("KSM does not run"),
        },
        FileContent::Absent => Verdict::ok("the kernel has no KSM"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn ksm_tuner(host: &Host) -> Verdict {
    let running = host.processes.all.iter();
    let mut running = running.filter(|process| TUNERS.contains(&process.comm.as_str()));
    if let Some(tuner) = running.next() {
        return Verdict::warning(format!("{} runs, process {}", tuner.comm, tuner.pid))
            .mend(format!("systemctl disable --now {}", tuner.comm));
    }
    match chosen(host.memory.advisor.text()) {
        Some("none") | None => Verdict::ok("no tuner turns KSM on and off"),
        Some(mode) if host.memory.ksm_runs() => {
            Verdict::warning(format!("KSM's own advisor sets its pace: {mode}"))
                .mend("echo none > /sys/kernel/mm/ksm/advisor_mode")
        }
        Some(_) => Verdict::ok("KSM's advisor is chosen, and KSM does not run"),
    }
}

fn overcommit(host: &Host) -> Verdict {
    match &host.memory.overcommit {
        FileContent::There(text) if text.trim() == "2" => {
            Verdict::warning("the kernel does not overcommit memory (overcommit_memory is 2)")
                .mend("sysctl vm.overcommit_memory=0")
        }
        FileContent::There(text) => Verdict::ok(format!("overcommit_memory is {}", text.trim())),
        FileContent::Absent => Verdict::unknown("/proc/sys/vm/overcommit_memory is not there"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn swap(host: &Host) -> Verdict {
    match &host.memory.swaps {
        FileContent::Unread(why) => Verdict::unknown(why),
        _ if host.memory.swaps().next().is_none() => Verdict::note("there is no swap"),
        _ => Verdict::ok(
            "there is swap: if the kernel can hibernate, frames take at most 25 % of memory instead \
             of 40 % (frame_percent of the module uksm decides otherwise)",
        ),
    }
}

fn compressed_swap(host: &Host) -> Verdict {
    let zram = host
        .memory
        .swaps()
        .any(|name| name.starts_with("/dev/zram"));
    let zswap = host.memory.zswap.text() == "Y" && host.memory.swaps().next().is_some();
    match (zswap, zram) {
        (false, false) => Verdict::ok("swap is not compressed"),
        (true, false) => Verdict::note("what is swapped out is compressed first (zswap)"),
        (false, true) => Verdict::note("swap lies in memory, compressed (zram)"),
        (true, true) => Verdict::note("swap lies in memory, compressed twice (zswap, zram)"),
    }
}

fn headroom(host: &Host) -> Verdict {
    let meminfo = match &host.memory.meminfo {
        Ok(meminfo) => meminfo,
        Err(why) => return Verdict::unknown(why),
    };
    let Some(available) = meminfo.mem_available else {
        return Verdict::unknown("/proc/meminfo: no MemAvailable");
    };
    let room = available.saturating_add(meminfo.swap_free);
    let (room_text, total) = (size(room), meminfo.mem_total);
    let status = "uksm status";
    match host.configuration.saved_bytes() {
        Some(saved) if saved > room => Verdict::warning(format!(
            "uksm saves {}, and only {room_text} are available, swap included",
            size(saved)
        ))
        .mend(status),
        _ if (available as f64) < total as f64 * LITTLE => Verdict::warning(format!(
            "only {} of {} are available",
            size(available),
            size(total)
        )),
        Some(saved) => Verdict::ok(format!(
            "uksm saves {}, and {room_text} are available, swap included",
            size(saved)
        )),
        None => Verdict::ok(format!("{room_text} are available, swap included")),
    }
}

fn cgroup_v2(host: &Host) -> Verdict {
    match &host.memory.controllers {
        FileContent::There(_) => Verdict::ok("control groups are those of version 2"),
        FileContent::Absent if host.memory.is_hybrid => {
            Verdict::warning("control groups of version 2 lie beside those of version 1 (hybrid)")
        }
        FileContent::Absent => Verdict::warning("no control groups of version 2 at /sys/fs/cgroup"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn memory_controller(host: &Host) -> Verdict {
    match &host.memory.controllers {
        FileContent::There(text) if text.split_ascii_whitespace().any(|name| name == "memory") => {
            Verdict::ok("control groups count memory")
        }
        FileContent::There(_) => {
            Verdict::warning("control groups of version 2 do not count memory")
        }
        FileContent::Absent => Verdict::not_applicable("there are no control groups of version 2"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}

fn numa(host: &Host) -> Verdict {
    match host.memory.nodes {
        0 | 1 => Verdict::ok("the host has one node of memory"),
        nodes => Verdict::note(format!("the host has {nodes} nodes of memory")),
    }
}

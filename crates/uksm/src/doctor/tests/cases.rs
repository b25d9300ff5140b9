//! Faults of a host, one at a time, and the findings that must result.

use std::path::PathBuf;

use uksm_linux::module;

use super::fake::{
    CONFIG, Fake, MODULE, RELEASE, VERSION, daemon, file_of_module, file_of_other_build,
};
use crate::control::{Answer, NoAnswer};
use crate::doctor::check::Severity::{self, Error, Note, Warning};
use crate::status::groups::{GroupStatus, GroupsStatus};

/// One fault.
pub(super) struct Case {
    /// The check that must find it.
    pub(super) check: &'static str,
    /// Its severity.
    pub(super) severity: Severity,
    /// Some of the text of the finding.
    pub(super) says: &'static [&'static str],
    /// Causes the fault.
    pub(super) spoil: fn(&mut Fake),
}

/// A row of the table: which check says how bad and what of a host that was spoiled so.
macro_rules! cases {
    ($($check:literal $severity:ident [$($says:literal),*] $spoil:expr;)+) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            check: $check,
            severity: $severity,
            says: &[$($says),*],
            spoil: $spoil,
        },)+];
    };
}

/// The module is neither loaded nor installed.
fn without_module(fake: &Fake) {
    for path in ["sys/module/uksm", "lib/modules", "usr/src"] {
        if fake.root.path().join(path).exists() {
            fake.remove(path);
        }
    }
    fake.write(&format!("lib/modules/{RELEASE}/build/Makefile"), "all:\n");
}

/// The module is installed, and not loaded.
fn unloaded(fake: &Fake) {
    if fake.root.path().join("sys/module/uksm").exists() {
        fake.remove("sys/module/uksm");
    }
}

fn secure_boot(fake: &Fake) {
    let name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    fake.put(name, &[6, 0, 0, 0, 1]);
    fake.write(
        "sys/kernel/security/lockdown",
        "none [integrity] confidentiality\n",
    );
}

fn maps(fake: &Fake, pid: u32, line: &str) {
    fake.write(&format!("proc/{pid}/maps"), &format!("{line}\n"));
}

const KVM: &str = "/usr/bin/kvm -machine q35,mem-merge=off -device virtio-balloon,id=b";

/// A machine started with one more option.
fn machine(fake: &Fake, more: &str, amounts: &str) {
    fake.process(73, "kvm", &format!("{KVM} {more}"), amounts);
}

const PLENTY: i64 = 1 << 20;

cases! {
    "architecture" Error ["aarch64"] |fake| fake.write("proc/sys/kernel/arch", "aarch64\n");
    "kernel-version" Error ["5.10.0-8-amd64 is older", "tried: Debian"] |fake| fake.boot("5.10.0-8-amd64", VERSION);
    "kernel-version" Error ["not tried on 6.8.12-4-pve (Proxmox): the module refuses", "tried: Debian 6.1 ("] |fake| {
        fake.boot("6.8.12-4-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4");
    };
    // A series of the future.
    "kernel-version" Error ["not tried on 8.1.2+deb15-amd64 (Debian)"] |fake| fake.boot("8.1.2+deb15-amd64", "#1 SMP Debian 8.1.2-1");
    "kernel-version" Error ["built without CONFIG_KALLSYMS_ALL"] |fake| {
        unloaded(fake);
        fake.write(&format!("boot/config-{RELEASE}"), "CONFIG_MODULES=y\nCONFIG_KSM=y\nCONFIG_KPROBES=y\nCONFIG_KALLSYMS=y\n");
    };
    "kernel-version" Warning ["6.18.1 (unknown vendor): untested=1 loaded the module"] |fake| {
        fake.write("proc/sys/kernel/osrelease", "6.18.1\n");
        fake.write("proc/sys/kernel/version", "#1 SMP\n");
        fake.write("sys/module/uksm/parameters/untested", "Y\n");
    };
    "kernel-version" Note ["without need", "/etc/modprobe.d"] |fake| fake.write("sys/module/uksm/parameters/untested", "Y\n");
    "kernel-ksm" Error ["CONFIG_KSM"] |fake| fake.remove("sys/kernel/mm/ksm");
    "kernel-options" Error ["CONFIG_KPROBES is not set", "CONFIG_NO_PAGE_MAPCOUNT is set"] |fake| {
        fake.write(&format!("boot/config-{RELEASE}"), "CONFIG_MODULES=y\nCONFIG_KSM=y\n# CONFIG_KPROBES is not set\nCONFIG_NO_PAGE_MAPCOUNT=y\n");
    };
    "kernel-options" Warning ["CONFIG_KALLSYMS_ALL"] |fake| {
        fake.write(&format!("boot/config-{RELEASE}"), "CONFIG_MODULES=y\nCONFIG_KSM=y\nCONFIG_KPROBES=y\nCONFIG_KALLSYMS=y\n");
    };
    "kernel-symbols" Error ["folio_add_anon_rmap_ptes or page_add_anon_rmap", "ptrace_may_access"] |fake| {
        fake.write("proc/kallsyms", "0000 T kallsyms_lookup_name\n0000 T pidfd_get_pid\n");
    };
    "lockdown" Warning ["confidentiality"] |fake| fake.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    "signature" Error ["has none", "mokutil --import", "reboot"] |fake| {
        secure_boot(fake);
        unloaded(fake);
        fake.put(MODULE, &file_of_module(RELEASE, "ABC", false));
    };
    "signature" Note ["must be enrolled"] |fake| {
        fake.write("sys/module/module/parameters/sig_enforce", "Y\n");
        unloaded(fake);
    };
    "btf" Warning ["BTF"] |fake| fake.remove("sys/kernel/btf");
    "btf" Note ["turned off"] |fake| {
        fake.remove("sys/kernel/btf");
        fake.write(CONFIG, "hint_runs = 0\n[targets]\nall = true\n");
    };
    "pressure" Note ["PSI"] |fake| fake.remove("proc/pressure");
    "process-events" Note ["new processes"] |fake| fake.write(&format!("boot/config-{RELEASE}"), "CONFIG_KSM=y\n");
    "module-loaded" Error ["modprobe uksm"] |fake| unloaded(fake);
    "module-loaded" Error ["make -C kernel dkms-source DESTDIR=/usr/src dkms install uksm/0.1.0 modprobe uksm"] |fake| without_module(fake);
    "module-loaded" Error ["apt install linux-headers-6.12.0-1-amd64 make -C kernel dkms-source DESTDIR=/usr/src dkms install uksm/0.1.0 modprobe uksm"] |fake| {
        without_module(fake);
        fake.remove("lib/modules");
    };
    "module-installed" Error ["apt install linux-headers-6.12.0-1-amd64 dkms install uksm/0.1.0"] |fake| {
        unloaded(fake);
        fake.remove("lib/modules");
    };
    "module-loaded" Error ["when it is built, `modprobe uksm untested=1`"] |fake| {
        fake.boot("6.8.12-4-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4");
    };
    "signature" Error ["apt install linux-headers-6.12.0-1-amd64 dkms remove"] |fake| {
        secure_boot(fake);
        unloaded(fake);
        fake.put(MODULE, &file_of_module(RELEASE, "ABC", false));
        fake.remove(&format!("lib/modules/{RELEASE}/build"));
    };
    "daemon" Note ["needs the module first"] |fake| {
        without_module(fake);
        fake.daemon = || Err(NoAnswer::NotRunning);
    };
    "module-at-start" Note ["must be built again first"] |fake| {
        unloaded(fake);
        fake.remove("etc/modules-load.d");
        fake.remove("etc/systemd/system/multi-user.target.wants");
        fake.put(MODULE, &file_of_module("6.1.0-9-amd64", "ABC", true));
    };
    "module-installed" Error ["6.12.0-1-amd64", "dkms-source"] |fake| without_module(fake);
    "module-loaded" Error ["not loaded; `modprobe uksm untested=1`", "own risk"] |fake| {
        unloaded(fake);
        fake.write("proc/sys/kernel/version", "#1 SMP\n");
        fake.put(MODULE, &file_of_other_build("#1 SMP"));
    };
    "module-loaded" Error ["cannot be built: CONFIG_KPROBES is not set", "--backend ksm"] |fake| {
        without_module(fake);
        fake.write(&format!("boot/config-{RELEASE}"), "CONFIG_MODULES=y\n# CONFIG_KPROBES is not set\nCONFIG_KSM=y\nCONFIG_KALLSYMS=y\n");
    };
    "module-installed" Error ["none can be built: the module builds for kernels from 6.1 on", "--backend ksm"] |fake| {
        fake.boot("5.14.0-503.el9.x86_64", "#1 SMP");
    };
    "module-installed" Warning ["though one is loaded", "dkms install"] |fake| fake.remove(MODULE);
    "module-current" Error ["built for kernel 6.1.0-9-amd64", "-k 6.12.0-1-amd64"] |fake| {
        unloaded(fake);
        fake.put(MODULE, &file_of_module("6.1.0-9-amd64", "ABC", true));
    };
    "module-current" Error ["two builds of one name", "#2 SMP", "dkms remove uksm/0.1.0 -k 6.12.0-1-amd64"] |fake| {
        unloaded(fake);
        fake.put(MODULE, &file_of_other_build("#2 SMP PREEMPT_DYNAMIC Debian 6.12.1-2"));
    };
    "module-current" Warning ["not the one that is installed", "rmmod"] |fake| {
        fake.put(MODULE, &file_of_module(RELEASE, "DEF", true));
    };
    "module-current" Warning ["updates/dkms/uksm.ko is no module", "dkms build --force uksm/0.1.0 -k"] |fake| fake.write(MODULE, "no ELF");
    "module-current" Error ["is damaged"] |fake| {
        unloaded(fake);
        fake.write(MODULE, "");
    };
    "module-loaded" Error ["dkms build --force uksm/0.1.0", "modprobe uksm"] |fake| {
        unloaded(fake);
        fake.write(MODULE, "");
    };
    "module-loaded" Error ["refuses the installed one (signature)"] |fake| {
        secure_boot(fake);
        unloaded(fake);
        fake.put(MODULE, &file_of_module(RELEASE, "ABC", false));
    };
    "module-installed" Error ["apt install dkms dkms install uksm/0.1.0"] |fake| {
        without_module(fake);
        fake.write("usr/src/uksm-0.1.0/dkms.conf", "");
        fake.remove("usr/sbin/dkms");
    };
    "kernel-options" Note ["config-6.12.0-1-amd64 has no option"] |fake| fake.write(&format!("boot/config-{RELEASE}"), "");
    "module-at-start" Note ["/etc/modules-load.d/uksm.conf"] |fake| {
        fake.remove("etc/modules-load.d");
        fake.remove("etc/systemd/system/multi-user.target.wants");
    };
    "guard" Warning ["gpu_migration=1", "/etc/modprobe.d"] |fake| {
        fake.device = Ok(false);
        fake.write("sys/module/uksm_guard/parameters/gpu_migration", "Y\n");
    };
    "guard" Error ["sysctl -w kernel.ftrace_enabled=1"] |fake| {
        fake.device = Ok(false);
        fake.write("proc/sys/kernel/ftrace_enabled", "0\n");
    };
    "guard" Error ["echo 1 > /sys/kernel/debug/kprobes/enabled"] |fake| {
        fake.device = Ok(false);
        fake.write("sys/kernel/debug/kprobes/enabled", "0\n");
    };
    "guard" Error ["no longer calls"] |fake| fake.device = Ok(false);
    "gpu-memory" Warning ["redis-server (71): 64 MiB"] |fake| fake.open(71, "/dev/kfd");
    "headers" Error ["apt install linux-headers-6.12.0-1-amd64"] |fake| {
        without_module(fake);
        fake.remove("lib/modules");
    };
    "headers" Error ["no package is known", "kernel's build"] |fake| fake.boot("6.12.48-own", "#3 SMP PREEMPT_DYNAMIC");
    "headers" Note ["6.12.0-1-amd64"] |fake| fake.remove(&format!("lib/modules/{RELEASE}/build"));
    // Too long for a line: the command must be continued.
    "headers" Note ["linux-headers-6.12.12345+deb13-with-a-very-long-name-amd64"] |fake| {
        fake.write("proc/sys/kernel/osrelease", "6.12.12345+deb13-with-a-very-long-name-amd64\n");
    };
    "device" Error ["/dev/uksm is not there", "modprobe uksm"] |fake| {
        fake.device = Err(module::Error::Missing { path: PathBuf::from("/dev/uksm") });
    };
    "device" Error ["version 3", "rmmod uksm"] |fake| {
        fake.device = Err(module::Error::Version { path: PathBuf::from("/dev/uksm"), found: 3 });
    };
    "capabilities" Warning ["CAP_SYS_PTRACE, to attach"] |fake| fake.write("proc/self/status", "CapEff:\t0000000000200000\n");
    "capabilities" Warning ["user namespace"] |fake| fake.write("proc/self/uid_map", "0 100000 65536\n");
    "ptrace-scope" Error ["3"] |fake| fake.write("proc/sys/kernel/yama/ptrace_scope", "3\n");
    "huge-pages" Note ["wherever it can", "echo madvise"] |fake| {
        fake.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    };
    "huge-pages" Warning ["waits to make room", "never"] |fake| {
        fake.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
        fake.write("sys/kernel/mm/transparent_hugepage/defrag", "[always] madvise never\n");
        fake.write(CONFIG, "thp = \"never\"\n[targets]\nall = true\n");
    };
    "khugepaged" Note ["511 pages of 512", "does nothing", "max_ptes_none"] |fake| {
        fake.write("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none", "511\n");
        fake.write("sys/kernel/mm/transparent_hugepage/shrink_underused", "1\n");
    };
    "khugepaged" Note ["every huge page with a page of zeros", "echo 0 > /sys/kernel/mm/transparent_hugepage/shrink_underused"] |fake| {
        fake.write("sys/kernel/mm/transparent_hugepage/shrink_underused", "1\n");
    };
    "khugepaged" Warning ["128 pages of 512", "zeros only", "more than 128 pages"] |fake| {
        fake.write("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none", "128\n");
        fake.write("sys/kernel/mm/transparent_hugepage/shrink_underused", "1\n");
        fake.write(CONFIG, "merge = \"zero\"\n[targets]\nall = true\n");
    };
    "hugetlb-reserved" Warning ["1.0 GiB", "hugepages-2048kB/nr_hugepages"] |fake| {
        fake.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    };
    "ksm" Warning ["100 pages each 20 ms", "echo 0"] |fake| fake.write("sys/kernel/mm/ksm/run", "1\n");
    "ksm" Note ["run is 2"] |fake| fake.write("sys/kernel/mm/ksm/run", "2\n");
    "ksm-tuner" Warning ["process 74", "disable --now ksmtuned"] |fake| fake.process(74, "ksmtuned", "ksmtuned", "");
    "ksm-tuner" Warning ["scan-time"] |fake| {
        fake.write("sys/kernel/mm/ksm/run", "1\n");
        fake.write("sys/kernel/mm/ksm/advisor_mode", "none [scan-time]\n");
    };
    "overcommit" Warning ["sysctl vm.overcommit_memory=0"] |fake| fake.write("proc/sys/vm/overcommit_memory", "2\n");
    "swap" Note ["no swap"] |fake| fake.write("proc/swaps", "Filename Type Size Used Priority\n");
    "compressed-swap" Note ["zram"] |fake| {
        fake.write("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n");
    };
    "compressed-swap" Note ["zswap"] |fake| fake.write("sys/module/zswap/parameters/enabled", "Y\n");
    "headroom" Warning ["uksm saves 4.0 GiB", "206 MiB"] |fake| fake.daemon = || Ok(daemon("0.1.0", PLENTY));
    "headroom" Warning ["only 7.8 MiB of 246 MiB"] |fake| {
        fake.write("proc/meminfo", &include_str!("meminfo").replace("210508", "8000"));
    };
    "cgroup-v2" Warning ["/sys/fs/cgroup"] |fake| fake.remove("sys/fs/cgroup");
    "cgroup-v2" Warning ["hybrid"] |fake| {
        fake.remove("sys/fs/cgroup/cgroup.controllers");
        fake.write("sys/fs/cgroup/unified/cgroup.controllers", "");
    };
    "memory-controller" Warning ["do not count memory"] |fake| fake.write("sys/fs/cgroup/cgroup.controllers", "cpu pids\n");
    "numa" Note ["2 nodes"] |fake| fake.write("sys/devices/system/node/node1/cpulist", "4-7\n");
    "processes-read" Note ["redis-server (71)", "proc/71/maps"] |fake| fake.spoil("proc/71/maps");
    "hugetlb-memory" Warning ["kvm (73): 2.0 GiB"] |fake| machine(fake, "", "HugetlbPages:\t 2097152 kB\n");
    "shared-memory" Warning ["kvm (73): 256 MiB, as /memfd:memory-backend-memfd"] |fake| {
        machine(fake, "", "RssShmem:\t 262144 kB\n");
        maps(fake, 73, "7f0000000000-7f0010000000 rw-s 00000000 00:01 12 /memfd:memory-backend-memfd (deleted)");
    };
    "shared-memory" Note ["redis-server (71): 32 MiB"] |fake| fake.process(71, "redis-server", "redis-server", "RssShmem:\t 32768 kB\n");
    "shared-memory" Note ["redis-server (71): 32 MiB, as /SYSV1"] |fake| {
        fake.process(71, "redis-server", "redis-server", "RssShmem:\t 32768 kB\n");
        maps(fake, 71, "7f0000000000-7f0002000000 rw-s 00000000 00:01 12 /SYSV1");
    };
    "guest-memfd" Warning ["kvm (72): 64 MiB"] |fake| fake.open(72, "anon_inode:[kvm-gmem]");
    "vfio" Warning ["kvm (73): 1.0 GiB"] |fake| {
        machine(fake, "", "VmLck:\t 1048576 kB\n");
        fake.open(73, "/dev/vfio/12");
    };
    "dax" Warning ["redis-server (71): 256 MiB"] |fake| {
        maps(fake, 71, "7f0000000000-7f0010000000 rw-s 00000000 00:05 12 /dev/dax0.0");
    };
    "locked-memory" Warning ["redis-server (71): 32 MiB"] |fake| fake.process(71, "redis-server", "redis-server", "VmLck:\t 32768 kB\n");
    "pinned-memory" Note ["redis-server (71): 32 MiB"] |fake| fake.process(71, "redis-server", "redis-server", "VmPin:\t 32768 kB\n");
    "ksm-memory" Warning ["redis-server (71): 64 MiB"] |fake| {
        fake.write("sys/kernel/mm/ksm/run", "1\n");
        fake.write("proc/71/ksm_stat", "ksm_rmap_items 900\nksm_mergeable: no\n");
    };
    "mappings-apart" Warning ["redis-server (71): 64 MiB, 2 of 65530 mappings", "vm.max_map_count=262120", "--merge advised"] |fake| {
        fake.mappings_apart = true;
        fake.write("proc/71/ksm_stat", "ksm_rmap_items 0\nksm_merge_any: yes\nksm_mergeable: no\n");
        maps(fake, 71, "1000-3000 rw-p 00000000 00:00 0\n3000-4000 rw-p 00000000 00:00 0");
    };
    "mappings-apart" Warning ["redis-server (71)"] |fake| {
        // A kernel that does not tell who offers all memory.
        fake.mappings_apart = true;
        fake.write("proc/71/ksm_stat", "ksm_rmap_items 900\n");
        let line = |at: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0\n", at << 12, (at + 1) << 12);
        let lines: String = (1..1200).map(line).collect();
        maps(fake, 71, &lines);
    };
    "ksm-memory" Note ["redis-server (71)"] |fake| fake.write("proc/71/ksm_stat", "ksm_rmap_items 0\nksm_mergeable: yes\n");
    "qemu-mem-merge" Warning ["kvm (73)"] |fake| {
        fake.write("sys/kernel/mm/ksm/run", "1\n");
        machine(fake, "-machine mem-merge=on", "");
    };
    "qemu-shared" Warning ["kvm (73)"] |fake| machine(fake, "-object memory-backend-file,id=m,share=on", "");
    "qemu-prealloc" Note ["kvm (73)"] |fake| machine(fake, "-mem-prealloc", "");
    "qemu-mem-lock" Warning ["kvm (73)"] |fake| machine(fake, "-overcommit mem-lock=on", "");
    "qemu-balloon" Note ["kvm (74)"] |fake| fake.process(74, "kvm", "kvm -m 512", "");
    "configuration" Error ["config.toml:2: comn", "no such key"] |fake| fake.write(CONFIG, "[targets]\ncomn = \"a\"\n");
    "configuration" Error ["config.toml:1: cpu", "must be"] |fake| fake.write(CONFIG, "cpu = \"200%\"\n");
    "configuration" Error ["cannot both be named"] |fake| {
        fake.write(CONFIG, "[targets]\nall = true\n[group.a]\ncomm = \"a\"\n");
    };
    "configuration" Error ["config.toml:2: thp", "no meaning"] |fake| fake.write(CONFIG, "backend = \"ksm\"\nthp = \"never\"\n");
    "configuration" Error ["keeps no groups apart"] |fake| fake.write(CONFIG, "backend = \"ksm\"\n[group.a]\ncomm = \"a\"\n");
    "configuration" Error ["conf.d/10.toml:1"] |fake| fake.write("etc/uksm/conf.d/10.toml", "x = 1\n");
    "targets" Warning ["names no processes", "uksm group suggest"] |fake| fake.write(CONFIG, "governor = \"low\"\n");
    "targets" Note ["no configuration"] |fake| fake.remove(CONFIG);
    "named-cgroups" Note ["/sys/fs/cgroup/tenats"] |fake| fake.write(CONFIG, "[targets]\ncgroup = \"/tenats\"\n");
    "zero-and-hints" Note ["only zeros"] |fake| fake.write(CONFIG, "merge = \"zero\"\n[targets]\nall = true\n");
    "dry-run" Warning ["dry_run"] |fake| fake.write(CONFIG, "dry_run = true\n[targets]\nall = true\n");
    "daemon" Warning ["hangs", "systemctl restart"] |fake| fake.daemon = || Err(NoAnswer::Failed("it hangs".to_owned()));
    "daemon" Note ["uksm run --backend ksm --comm NAME"] |fake| {
        fake.boot("6.8.12-4-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4");
        fake.daemon = || Err(NoAnswer::NotRunning);
    };
    "daemon" Note ["no daemon runs", "enable --now"] |fake| fake.daemon = || Err(NoAnswer::NotRunning);
    "daemon-version" Warning ["version 0.0.9", "restart"] |fake| fake.daemon = || Ok(daemon("0.0.9", 0));
    "groups-run" Warning ["web: died"] |fake| fake.daemon = || Ok(Answer::Groups(Box::new(GroupsStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        groups: vec![GroupStatus {
            name: "web".to_owned(),
            fault: Some("died".to_owned()),
            ..GroupStatus::default()
        }],
        ..GroupsStatus::default()
    })));
    "daemon-rights" Warning ["CAP_DAC_READ_SEARCH, for rules by env: t", "uksm.service.d/rights.conf"] |fake| {
        fake.write(CONFIG, "[rule.t]\nby = \"env:TENANT\"\n");
        fake.write("proc/9/status", "CapEff:\t0000000000281001\n");
        fake.daemon = || Ok(Answer::Groups(Box::new(GroupsStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: 9,
            ..GroupsStatus::default()
        })));
    };
    "stored-frames" Warning ["257 groups", "stores 200 files", "FileDescriptorStoreMax=257"] |fake| {
        fake.write(CONFIG, "[rule.t]\nby = \"user\"\n[group.a]\ncomm = \"a\"\n");
        fake.write("etc/systemd/system/uksm.service", "[Service]\nFileDescriptorStoreMax=1024\n");
        fake.write("etc/systemd/system/uksm.service.d/a.conf", "[Service]\nFileDescriptorStoreMax=200\n");
    };
    "stored-frames" Warning ["257 groups", "stores 100 files"] |fake| {
        fake.write(CONFIG, "[rule.t]\nby = \"user\"\n[group.a]\ncomm = \"a\"\n");
        fake.write("etc/systemd/system/uksm.service", "[Service]\nFileDescriptorStoreMax=1024\n");
        // A file of the same name in /etc stands in its place, and a later name counts for more.
        fake.write("usr/lib/systemd/system/uksm.service.d/a.conf", "[Service]\nFileDescriptorStoreMax=9\n");
        fake.write("etc/systemd/system/uksm.service.d/a.conf", "[Service]\nFileDescriptorStoreMax=8\n");
        fake.write("run/systemd/system/uksm.service.d/b.conf", "[Service]\nFileDescriptorStoreMax=100\n");
    };
    "unit" Note ["systemctl enable uksm"] |fake| fake.remove("etc/systemd/system/multi-user.target.wants");
    "daemon" Note ["uksm run"] |fake| {
        fake.daemon = || Err(NoAnswer::NotRunning);
        fake.remove("etc/systemd/system");
    };
    "daemon" Note ["none starts with this configuration"] |fake| {
        fake.daemon = || Err(NoAnswer::NotRunning);
        fake.write(CONFIG, "nonsense\n");
    };
    "targets" Warning ["uksm analyze"] |fake| fake.write(CONFIG, "backend = \"ksm\"\n");
    "unit" Note ["not installed", "make install"] |fake| fake.remove("etc/systemd/system");
}

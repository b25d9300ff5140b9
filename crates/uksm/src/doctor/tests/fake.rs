//! A host made of files, on which all is right; tests cause single faults.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness, SectionKind};
use ruzstd::encoding::CompressionLevel;
use tempfile::TempDir;
use uksm_linux::module;

use crate::control::{Answer, NoAnswer};
use crate::doctor::host::Host;
use crate::doctor::probe::Root;
use crate::doctor::report::DoctorReport;
use crate::doctor::sources::Sources;
use crate::status::{DaemonStatus, SavingsStatus, Status};

pub(super) const RELEASE: &str = "6.12.0-1-amd64";
/// The version of that kernel.
pub(super) const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.1-1 (2026-11-26)";
/// Where DKMS puts the module.
pub(super) const MODULE: &str = "lib/modules/6.12.0-1-amd64/updates/dkms/uksm.ko";
pub(super) const CONFIG: &str = "etc/uksm/config.toml";

const OPTIONS: &str = "CONFIG_MODULES=y\nCONFIG_KSM=y\nCONFIG_KPROBES=y\nCONFIG_KALLSYMS=y\n\
                       CONFIG_KALLSYMS_ALL=y\nCONFIG_PROC_EVENTS=y\n# CONFIG_NO_PAGE_MAPCOUNT is not set\n";
const SYMBOLS: &str = "0000000000000000 T kallsyms_lookup_name\n\
                       0000000000000000 T flush_tlb_mm_range\n\
                       0000000000000000 T __mmu_notifier_invalidate_range_start\n\
                       0000000000000000 T __mmu_notifier_invalidate_range_end.llvm.123\n\
                       0000000000000000 T folio_add_anon_rmap_ptes\n\
                       0000000000000000 T folio_remove_rmap_ptes\n\
                       0000000000000000 T folio_free_swap\n\
                       0000000000000000 T lru_add_drain_all\n\
                       0000000000000000 T pidfd_get_pid\n\
                       0000000000000000 T ptrace_may_access\n\
                       0000000000000000 t uksm_init\t[uksm]\n";

/// A way to pack a file.
type Packer = fn(&[u8]) -> Vec<u8>;

/// The ends of names of packed files.
pub(super) const PACKERS: [(&str, Packer); 3] = [("gz", gzip), ("xz", xz), ("zst", zstd)];

pub(super) fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(contents).unwrap();
    writer.finish().unwrap()
}

fn xz(contents: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::default()).unwrap();
    writer.write_all(contents).unwrap();
    writer.finish().unwrap()
}

fn zstd(contents: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(contents, CompressionLevel::Fastest)
}

/// A host.
pub(super) struct Fake {
    pub(super) root: TempDir,
    pub(super) device: module::Result<bool>,
    pub(super) daemon: fn() -> Result<Answer, NoAnswer>,
    pub(super) mappings_apart: bool,
}

/// A folder in memory, if possible: a hundred hosts have ten thousand files.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(memory);
    folder.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A daemon of this version with these savings.
pub(super) fn daemon(version: &str, pages: i64) -> Answer {
    Answer::Status(Box::new(Status {
        daemon: DaemonStatus {
            version: version.to_owned(),
            ..DaemonStatus::default()
        },
        saved: SavingsStatus {
            frames_pages: pages,
            ..SavingsStatus::default()
        },
        ..Status::default()
    }))
}

impl Fake {
    /// A host where all is right.
    pub(super) fn right() -> Fake {
        let fake = Fake {
            root: folder(),
            device: Ok(true),
            daemon: || Ok(daemon(env!("CARGO_PKG_VERSION"), 100)),
            mappings_apart: false,
        };
        for (path, text) in [
            ("proc/sys/kernel/arch", "x86_64\n"),
            ("proc/sys/kernel/osrelease", "6.12.0-1-amd64\n"),
            ("proc/sys/kernel/version", VERSION),
            (
                "etc/os-release",
                "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n",
            ),
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("proc/sys/vm/overcommit_memory", "0\n"),
            ("proc/kallsyms", SYMBOLS),
            ("proc/meminfo", include_str!("meminfo")),
            (
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/vda2 partition 1048572 0 -2\n",
            ),
            ("proc/pressure/memory", "some avg10=0.00\n"),
            (
                "proc/self/status",
                "Name:\tuksm\nCapEff:\t000001ffffffffff\n",
            ),
            ("proc/self/uid_map", "         0          0 4294967295\n"),
            ("boot/config-6.12.0-1-amd64", OPTIONS),
            ("usr/sbin/dkms", "#!/bin/bash\n"),
            ("sys/kernel/mm/ksm/run", "0\n"),
            ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
            ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
            ("sys/kernel/mm/ksm/advisor_mode", "[none] scan-time\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/defrag",
                "always defer [madvise] never\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
                "0\n",
            ),
            ("sys/kernel/mm/transparent_hugepage/shrink_underused", "0\n"),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "0\n",
            ),
            (
                "sys/kernel/security/lockdown",
                "[none] integrity confidentiality\n",
            ),
            ("sys/kernel/btf/vmlinux", "btf"),
            ("sys/module/uksm/version", "0.1.0\n"),
            ("sys/module/uksm/srcversion", "ABC\n"),
            ("sys/module/uksm/parameters/untested", "N\n"),
            ("sys/module/uksm_guard/parameters/gpu_migration", "N\n"),
            ("proc/sys/kernel/ftrace_enabled", "1\n"),
            ("sys/kernel/debug/kprobes/enabled", "1\n"),
            ("sys/module/zswap/parameters/enabled", "N\n"),
            ("sys/module/module/parameters/sig_enforce", "N\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
            ("sys/fs/cgroup/tenants/cgroup.procs", ""),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/online", "0\n"),
            ("lib/modules/6.12.0-1-amd64/build/Makefile", "all:\n"),
            ("usr/src/uksm-0.1.0/dkms.conf", "PACKAGE_NAME=uksm\n"),
            ("etc/modules-load.d/uksm.conf", "# comment\nuksm\n"),
            ("etc/systemd/system/uksm.service", "[Unit]\n"),
            (
                "etc/systemd/system/multi-user.target.wants/uksm.service",
                "[Unit]\n",
            ),
            ("run/systemd/system/started", ""),
            (
                CONFIG,
                "[targets]\ncomm = [\"redis-server\", \"kvm\"]\ncgroup = \"/tenants\"\n",
            ),
        ] {
            fake.write(path, text);
        }
        fake.put(MODULE, &file_of_module(RELEASE, "ABC", true));
        fake.process(1, "systemd", "/sbin/init", "");
        fake.process(71, "redis-server", "redis-server *:6379", "");
        fake.process(
            72,
            "kvm",
            "/usr/bin/kvm -machine q35,mem-merge=off -device virtio-balloon,id=b",
            "",
        );
        fake
    }

    /// The report on it.
    pub(super) fn report(&self) -> DoctorReport {
        let sources = Sources {
            device: &|_| self.device.clone(),
            daemon: &|_| (self.daemon)(),
            mappings_apart: &|| self.mappings_apart,
        };
        let root = Root::at_path(self.root.path());
        DoctorReport::of(&Host::read(&root, None, &sources))
    }

    /// Makes the kernel another one, with its own folder of modules, and no module.
    pub(super) fn boot(&self, release: &str, version: &str) {
        self.remove("sys/module/uksm");
        self.remove("lib/modules");
        self.write("proc/sys/kernel/osrelease", &format!("{release}\n"));
        self.write("proc/sys/kernel/version", &format!("{version}\n"));
        self.write(&format!("boot/config-{release}"), OPTIONS);
        std::fs::create_dir_all(self.root.path().join("lib/modules").join(release)).unwrap();
    }

    /// Makes a file.
    pub(super) fn write(&self, path: &str, text: &str) {
        self.put(path, text.as_bytes());
    }

    /// Makes a file of bytes.
    pub(super) fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Removes a file or folder.
    pub(super) fn remove(&self, path: &str) {
        let path = self.root.path().join(path);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }

    /// Makes a file that cannot be read, not even by root.
    pub(super) fn spoil(&self, path: &str) {
        if self.root.path().join(path).exists() {
            self.remove(path);
        }
        std::fs::create_dir_all(self.root.path().join(path)).unwrap();
    }

    /// Adds a program of 64 MiB; `amounts` are further lines of its status.
    pub(super) fn process(&self, pid: u32, comm: &str, line: &str, amounts: &str) {
        let of = |file: &str| format!("proc/{pid}/{file}");
        let status = format!("Name:\t{comm}\nVmRSS:\t   65536 kB\n{amounts}");
        self.write(&of("status"), &status);
        let fields = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 1";
        self.write(&of("stat"), &format!("{pid} ({comm}) {fields}\n"));
        self.write(&of("cgroup"), "0::/other\n");
        self.put(&of("cmdline"), line.replace(' ', "\0").as_bytes());
        self.write(&of("ksm_stat"), "ksm_rmap_items 0\nksm_mergeable: no\n");
        self.write(&of("maps"), "");
        std::fs::create_dir_all(self.root.path().join(of("fd"))).unwrap();
    }

    /// Lets a process have a file open.
    pub(super) fn open(&self, pid: u32, target: &str) {
        let link = self.root.path().join(format!("proc/{pid}/fd/3"));
        symlink(Path::new(target), link).unwrap();
    }
}

/// A file like that of a module.
pub(super) fn file_of_module(kernel: &str, sources: &str, is_signed: bool) -> Vec<u8> {
    long_file_of_module(kernel, sources, is_signed, 0)
}

/// The same, built for another build of the kernel of the host.
pub(super) fn file_of_other_build(build: &str) -> Vec<u8> {
    modinfo_file(
        &format!("built_for={build}\0vermagic={RELEASE} SMP mod_unload \0"),
        0,
    )
}

/// The same with debug information, which is before the table of sections.
pub(super) fn long_file_of_module(
    kernel: &str,
    sources: &str,
    is_signed: bool,
    debug_bytes: usize,
) -> Vec<u8> {
    let modinfo = format!(
        "license=GPL\0built_for={VERSION}\0srcversion={sources}\0vermagic={kernel} SMP mod_unload \0"
    );
    let mut bytes = modinfo_file(&modinfo, debug_bytes);
    if is_signed {
        bytes.extend(b"~Module signature appended~\n");
    }
    bytes
}

fn modinfo_file(modinfo: &str, debug_bytes: usize) -> Vec<u8> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let section = file.add_section(vec![], b".modinfo".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(section, modinfo.as_bytes(), 1);
    let section = file.add_section(vec![], b".debug_info".to_vec(), SectionKind::Debug);
    file.append_section_data(section, &vec![7; debug_bytes], 1);
    file.write().unwrap()
}

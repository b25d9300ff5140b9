//! The kernel: its release, options, symbols and security.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use procfs_core::{ConfigSetting, FromBufRead as _, KernelConfig};
use uksm_input::regular_file::open_regular;

use crate::doctor::probe::{FileContent, MAX_FILE_BYTES, Root, unread};

/// Functions that the module finds by name: the kernel has one of each list. Functions that only
/// some configurations need are left out.
pub(in crate::doctor) const SYMBOLS: [&[&str]; 10] = [
    &["kallsyms_lookup_name"],
    &["flush_tlb_mm_range"],
    &["__mmu_notifier_invalidate_range_start"],
    &["__mmu_notifier_invalidate_range_end"],
    &["folio_add_anon_rmap_ptes", "page_add_anon_rmap"],
    &["folio_remove_rmap_ptes", "page_remove_rmap"],
    &["folio_free_swap"],
    &["lru_add_drain_all"],
    &["pidfd_get_pid"],
    &["ptrace_may_access"],
];

/// The name of the variable contains the GUID of UEFI's own variables.
const SECURE_BOOT: &str =
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// `linux/version.h` of the headers.
const VERSION_HEADER: &str = "include/generated/uapi/linux/version.h";

/// The state of the kernel.
pub(in crate::doctor) struct HostKernel {
    pub(in crate::doctor) release: FileContent<String>,
    pub(in crate::doctor) architecture: FileContent<String>,
    pub(in crate::doctor) ksm: FileContent<String>,
    pub(in crate::doctor) config: FileContent<KernelConfig>,
    /// Names in [`SYMBOLS`] that it has.
    pub(in crate::doctor) symbols: FileContent<BTreeSet<String>>,
    pub(in crate::doctor) lockdown: FileContent<String>,
    pub(in crate::doctor) secure_boot: FileContent<Vec<u8>>,
    pub(in crate::doctor) enforced: FileContent<String>,
    pub(in crate::doctor) btf: bool,
    pub(in crate::doctor) pressure: FileContent<String>,
    /// Its headers are of Red Hat's source, by which the module knows a kernel without a mark.
    pub(in crate::doctor) is_red_hat_source: bool,
}

impl HostKernel {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root) -> HostKernel {
        let release = root
            .text("proc/sys/kernel/osrelease")
            .map(|text| text.trim().to_owned());
        let config = options(root, release.text());
        let headers = format!("lib/modules/{}/build/{VERSION_HEADER}", release.text());
        HostKernel {
            release,
            architecture: root.text("proc/sys/kernel/arch"),
            ksm: root.text("sys/kernel/mm/ksm/run"),
            config: match config.map(|text| KernelConfig::from_buf_read(&text[..])) {
                FileContent::There(Ok(config)) => FileContent::There(config),
                FileContent::There(Err(error)) => {
                    FileContent::Unread(format!("the kernel's options: {error}"))
                }
                FileContent::Absent => FileContent::Absent,
                FileContent::Unread(why) => FileContent::Unread(why),
            },
            symbols: found_symbols(root, "proc/kallsyms"),
            lockdown: root.text("sys/kernel/security/lockdown"),
            secure_boot: root.bytes(SECURE_BOOT),
            enforced: root.text("sys/module/module/parameters/sig_enforce"),
            btf: root.has("sys/kernel/btf/vmlinux"),
            pressure: root.text("proc/pressure/memory"),
            is_red_hat_source: root.text(&headers).text().contains("#define RHEL_MAJOR "),
        }
    }

    /// Whether an option is set; none if the options are unknown.
    pub(in crate::doctor) fn has(&self, option: &str) -> Option<bool> {
        let config = self.config.there()?;
        let setting = config.0.get(option);
        Some(matches!(
            setting,
            Some(ConfigSetting::Yes | ConfigSetting::Module)
        ))
    }
}

/// The text of the options, of the first place that has some: a user may not read each of them,
/// and a full disk leaves an empty file.
fn options(root: &Root, release: &str) -> FileContent<Vec<u8>> {
    let mut seen = FileContent::Absent;
    for place in [
        format!("boot/config-{release}"),
        "proc/config.gz".to_owned(),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ] {
        match root.unpacked(&place, MAX_FILE_BYTES) {
            FileContent::There(text) if text.windows(7).any(|part| part == b"CONFIG_") => {
                return FileContent::There(text);
            }
            FileContent::There(_) => {
                seen = FileContent::Unread(format!("/{place} has no option"));
            }
            FileContent::Unread(why) => seen = FileContent::Unread(why),
            FileContent::Absent => {}
        }
    }
    seen
}

/// Searches the list for [`SYMBOLS`]. It has hundreds of thousands of lines and is not kept.
/// Link-time optimisation of LLVM adds a suffix to a name, which the kernel ignores as well.
fn found_symbols(root: &Root, path: &str) -> FileContent<BTreeSet<String>> {
    let file = match open_regular(&root.at(Path::new(path))) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return FileContent::Absent,
        Err(error) => return FileContent::Unread(unread(path, &error)),
    };
    let wanted: BTreeSet<&str> = SYMBOLS.into_iter().flatten().copied().collect();
    let mut found = BTreeSet::new();
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return FileContent::There(found),
            Ok(_) => {}
            Err(error) => return FileContent::Unread(unread(path, &error)),
        }
        // ADDRESS TYPE NAME, and the module's name for symbols of modules.
        let name = line
            .split(u8::is_ascii_whitespace)
            .nth(2)
            .and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name else { continue };
        let name = name.split(".llvm.").next().unwrap_or(name);
        if wanted.contains(name) {
            found.insert(name.to_owned());
        }
    }
}

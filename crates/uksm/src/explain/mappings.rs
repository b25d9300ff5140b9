//! The mappings of a process, read on request.
//!
//! # Problem
//! Memory that uksm never checks is in no region: shared mappings, devices, hugetlbfs. Only the
//! kernel knows the kind of a mapping, and its amount in memory.
//!
//! # Approach
//! `/proc/PID/smaps` is read once, mapping after mapping, and given up after [`MAPPINGS_TIMEOUT`]:
//! a process can have 60,000 mappings, and the kernel walks the page tables of each. A cut list is
//! used, with a note. The rules are those of the module (`kernel/walk.c`) and of
//! `crates/linux/src/mapping_kinds.rs`, by the flags that smaps shows.
//!
//! # Units
//! Bytes for addresses; pages.
//!
//! # Source
//! proc_pid_smaps(5); the kernel's `show_smap_vma_flags()`.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::smaps::{Fault, SmapsEntries, SmapsEntry};

/// Timeout for the mappings of one process.
const MAPPINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// The kind of a mapping for uksm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappingKind {
    /// Its private pages can be merged.
    Mergeable,
    /// Shared.
    Shared,
    /// In hugetlbfs.
    Hugetlb,
    /// Without ordinary pages.
    Device,
    /// Write-protected or shared by userfaultfd.
    Userfault,
    /// Memory of a driver, droppable memory, or a shadow stack.
    Special,
    /// Private, of a file, and not to be written.
    ReadOnlyFile,
    /// Not to be touched.
    NoAccess,
    /// Offered to in-kernel KSM, which runs.
    LeftToKsm,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// Its name, or empty.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: MappingKind,
    /// Pages in memory, those of hugetlbfs too.
    pub(crate) resident: u64,
    /// Of these, the process's own.
    pub(crate) own: u64,
    /// Pages swapped out.
    pub(crate) swapped: u64,
}

/// The mappings of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mappings {
    /// Ascending.
    pub(crate) all: Vec<Mapping>,
    /// Why some are missing: one line.
    pub(crate) fault: Option<String>,
}

impl Mappings {
    /// Reads the mappings of a process, given whether in-kernel KSM runs; none if it is gone.
    pub(crate) fn read(root: &Path, pid: u32, ksm_runs: bool) -> Option<Mappings> {
        let path = root.join(pid.to_string()).join("smaps");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if is_gone(&error) => return None,
            Err(error) => {
                let hint = match error.kind() {
                    ErrorKind::PermissionDenied => {
                        ": run the command with CAP_SYS_PTRACE, as root on the host has it"
                    }
                    _ => "",
                };
                return Some(Mappings {
                    all: vec![],
                    fault: Some(format!("{}: {error}{hint}", path.display())),
                });
            }
        };
        let name = path.display().to_string();
        let until = Instant::now() + MAPPINGS_TIMEOUT;
        Mappings::parse(BufReader::new(file), &name, until, ksm_runs)
    }

    /// Reads a list until the deadline; none if its process went away before its first mapping.
    fn parse(lines: impl BufRead, name: &str, until: Instant, ksm_runs: bool) -> Option<Mappings> {
        let mut mappings = Mappings::default();
        for entry in SmapsEntries::of(lines) {
            match entry {
                Ok(entry) => mappings.all.push(Mapping::of(&entry, ksm_runs)),
                Err(fault) if fault.is_gone() && mappings.all.is_empty() => return None,
                Err(fault @ Fault::Read { .. }) => {
                    mappings.fault = Some(format!("{name}:{fault}"));
                    break;
                }
                Err(fault @ Fault::Malformed { .. }) => {
                    let _first = mappings
                        .fault
                        .get_or_insert_with(|| format!("{name}:{fault}"));
                }
            }
            if Instant::now() > until {
                let count = mappings.all.len();
                mappings.fault = Some(format!(
                    "{name}: only the first {count} mappings were read in {} s",
                    MAPPINGS_TIMEOUT.as_secs()
                ));
                break;
            }
        }
        Some(mappings)
    }
}

/// Whether the process ended.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

impl Mapping {
    fn of(entry: &SmapsEntry, ksm_runs: bool) -> Mapping {
        Mapping {
            start: entry.start,
            end: entry.end,
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            kind: kind(entry, ksm_runs),
            resident: entry.resident.saturating_add(entry.hugetlb),
            own: entry.anonymous,
            swapped: entry.swapped,
        }
    }
}

/// The kind of a mapping, by its permissions and by the kernel's flags.
fn kind(entry: &SmapsEntry, ksm_runs: bool) -> MappingKind {
    let is_file = entry.inode != 0;
    if entry.has_flag(&["ht"]) {
        MappingKind::Hugetlb
    } else if entry.has_flag(&["pf", "io", "mm"]) {
        MappingKind::Device
    } else if entry.has_flag(&["sh", "ms"]) || !entry.is_private() {
        MappingKind::Shared
    } else if entry.has_flag(&["de", "dp", "ss"]) {
        MappingKind::Special
    } else if entry.has_flag(&["uw", "ui"]) {
        MappingKind::Userfault
    } else if !entry.is_usable() {
        MappingKind::NoAccess
    } else if is_file && !entry.is_writable() {
        MappingKind::ReadOnlyFile
    } else if ksm_runs && entry.has_flag(&["mg"]) {
        MappingKind::LeftToKsm
    } else {
        MappingKind::Mergeable
    }
}

#[cfg(test)]
mod tests;

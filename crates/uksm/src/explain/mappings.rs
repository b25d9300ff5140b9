//! The mappings of a process, read when somebody asks.
//!
//! # Problem
//! Memory that uksm never looks at is in no region: shared mappings, devices, hugetlbfs. What a mapping is, and how much of it is in memory,
//! only the kernel knows.
//!
//! # Approach
//! `/proc/PID/smaps` is read once, mapping after mapping, and given up after [`PATIENCE`]: a process can have 60,000 mappings, and the kernel walks
//! the page tables of each. What was read until then counts, and that it was cut is said. The rules are those of the module
//! (`kernel/walk.c`) and of `crates/linux/src/maps.rs`, by the flags that smaps shows.
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

use procfs_core::FromBufRead as _;
use procfs_core::process::{MMPermissions, MemoryMap, MemoryMaps};
use rustix::io::Errno;
use uksm_policy::command::PAGE_SIZE;

/// Longest that the mappings of one process are read.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line that is none of a broken file: a path has 4096 bytes.
const LONGEST_LINE: usize = 16_384;

/// What a mapping is to uksm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its private pages can be merged.
    Mergeable,
    /// Shared.
    Shared,
    /// Of hugetlbfs.
    Hugetlb,
    /// Without ordinary pages.
    Device,
    /// Write-protected or shared by userfaultfd.
    Userfault,
    /// Of a driver, droppable, or a shadow stack.
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
    /// What it is.
    pub(crate) kind: Kind,
    /// Pages in memory, those of hugetlbfs too.
    pub(crate) resident: u64,
    /// Of these, the process's own.
    pub(crate) own: u64,
    /// Pages swapped out.
    pub(crate) swapped: u64,
}

/// Those of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mappings {
    /// Ascending.
    pub(crate) all: Vec<Mapping>,
    /// Why not all are among them: one line.
    pub(crate) fault: Option<String>,
}

impl Mappings {
    /// Reads those of a process, knowing whether in-kernel KSM runs; none if it is gone.
    pub(crate) fn read(root: &Path, pid: u32, ksm_runs: bool) -> Option<Mappings> {
        let path = root.join(pid.to_string()).join("smaps");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if is_gone(&error) => return None,
            Err(error) => {
                let hint = match error.kind() {
                    ErrorKind::PermissionDenied => ": ask as root, with CAP_SYS_PTRACE",
                    _ => "",
                };
                return Some(Mappings {
                    all: vec![],
                    fault: Some(format!("{}: {error}{hint}", path.display())),
                });
            }
        };
        let name = path.display().to_string();
        let until = Instant::now() + PATIENCE;
        Mappings::parse(BufReader::new(file), &name, until, ksm_runs)
    }

    /// Reads a list until then; none if its process went away before its first line.
    fn parse(
        mut lines: impl BufRead,
        name: &str,
        until: Instant,
        ksm_runs: bool,
    ) -> Option<Mappings> {
        let mut mappings = Mappings::default();
        let mut text = String::new();
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            let read =
                std::io::Read::take(&mut lines, LONGEST_LINE as u64).read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_gone(&error) && number == 0 => return None,
                Err(error) => {
                    mappings.fault = Some(format!("{name}:{}: {error}", number + 1));
                    return Some(mappings);
                }
            }
            number += 1;
            let is_head = line.first().is_some_and(|byte| !byte.is_ascii_uppercase());
            if is_head && !text.is_empty() {
                mappings.add(&text, (name, number), ksm_runs);
                text.clear();
                if Instant::now() > until {
                    let count = mappings.all.len();
                    mappings.fault = Some(format!(
                        "{name}: only the first {count} mappings were read in {} s",
                        PATIENCE.as_secs()
                    ));
                    return Some(mappings);
                }
            }
            text += &String::from_utf8_lossy(&line);
        }
        if !text.is_empty() {
            mappings.add(&text, (name, number), ksm_runs);
        }
        Some(mappings)
    }

    /// Adds one mapping with all its lines, the last of which is of this number.
    fn add(&mut self, text: &str, (name, number): (&str, u64), ksm_runs: bool) {
        let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
        let (head, path) = without_path(head);
        let parsed = MemoryMaps::from_buf_read(format!("{head} \n{rest}").as_bytes());
        let Some(map) = parsed.ok().and_then(|maps| maps.0.into_iter().next()) else {
            let before = self.fault.get_or_insert_default();
            if before.is_empty() {
                *before =
                    format!("{name}:{number}: a mapping before this line cannot be understood");
            }
            return;
        };
        self.all.push(Mapping::of(&map, path, text, ksm_runs));
    }
}

/// Whether the process ended.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

impl Mapping {
    fn of(map: &MemoryMap, path: &str, text: &str, ksm_runs: bool) -> Mapping {
        let pages = |field: &str| map.extension.map.get(field).copied().unwrap_or(0) / PAGE_SIZE;
        let hugetlb = pages("Shared_Hugetlb") + pages("Private_Hugetlb");
        let (start, end) = map.address;
        Mapping {
            start,
            end,
            name: path.to_owned(),
            kind: kind(map, text, ksm_runs),
            resident: pages("Rss") + hugetlb,
            own: pages("Anonymous"),
            swapped: pages("Swap"),
        }
    }
}

/// What a mapping is, by its permissions and by the kernel's flags, of which the library does not know all.
fn kind(map: &MemoryMap, text: &str, ksm_runs: bool) -> Kind {
    let flags = text.lines().find_map(|line| line.strip_prefix("VmFlags:"));
    let flags: Vec<&str> = flags.into_iter().flat_map(str::split_whitespace).collect();
    let has = |any: &[&str]| any.iter().any(|flag| flags.contains(flag));
    let is_file = map.inode != 0;
    let may = |permissions| map.perms.intersects(permissions);
    if has(&["ht"]) {
        Kind::Hugetlb
    } else if has(&["pf", "io", "mm"]) {
        Kind::Device
    } else if has(&["sh", "ms"]) || map.perms.contains(MMPermissions::SHARED) {
        Kind::Shared
    } else if has(&["de", "dp", "ss"]) {
        Kind::Special
    } else if has(&["uw", "ui"]) {
        Kind::Userfault
    } else if !may(MMPermissions::READ | MMPermissions::WRITE | MMPermissions::EXECUTE) {
        Kind::NoAccess
    } else if is_file && !may(MMPermissions::WRITE) {
        Kind::ReadOnlyFile
    } else if ksm_runs && has(&["mg"]) {
        Kind::LeftToKsm
    } else {
        Kind::Mergeable
    }
}

/// The first line of a mapping without its path, and the path: whoever is looked at chooses it, and the library takes some for more than a
/// name.
fn without_path(head: &str) -> (&str, &str) {
    let mut rest = head;
    for _ in 0..5 {
        rest = rest.trim_start_matches(' ');
        rest = rest.find(' ').map_or("", |at| &rest[at..]);
    }
    (&head[..head.len() - rest.len()], rest.trim())
}

#[cfg(test)]
mod tests;

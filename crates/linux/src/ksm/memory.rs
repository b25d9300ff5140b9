//! Memory of a process that can be offered to KSM: its place, its contents, and whether it is
//! merged.
//!
//! # Problem
//! To find the ranges that pay, pages are read from outside, without bringing in a page that is not
//! there, and without reading another process by mistake.
//!
//! # Approach
//! An open `/proc/PID/mem` and `/proc/PID/pagemap` name one address space for good: after an exec
//! they read nothing. A page is read only if the kernel has just shown that it is present and the
//! process's own. With the right to see frame numbers, `/proc/kpageflags` shows merged pages;
//! without it a page with several mappings counts as merged. The kernel's page of zeros counts as
//! no page: it has nothing to save.
//!
//! # Units
//! Addresses in bytes, pages of 4096 bytes.
//!
//! # Source
//! proc(5); `Documentation/admin-guide/mm/pagemap.rst`; `ksm_stat` in ksm.rst.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use uksm_policy::advice::estimates::ProbedPage;
use uksm_policy::command::{Mapping, PAGE_LINES, PAGE_SIZE};
use uksm_policy::hash::LineHash;

use crate::contents::mappings;
use crate::contents::pagemap::{EXCLUSIVE, FILE, PRESENT, Pagemap};
use crate::proc::{self, Proc};
use crate::smaps::{NameKind, SmapsEntries, SmapsEntry};

const PAGE: usize = 4096;
/// Bits of an entry of pagemap with the frame's number.
const FRAME: u64 = (1 << 55) - 1;
/// `KPF_KSM` and `KPF_ZERO_PAGE`.
const MERGED: u64 = 1 << 21;
const ZEROS: u64 = 1 << 24;
/// `KPF_MAPPEDTODISK`, later `KPF_OWNER_2`: of an anonymous page, that it is its process's own
/// (`PG_anon_exclusive`). 6.12 shows `KPF_KSM` for every anonymous page; merged ones are never so.
const OWN: u64 = 1 << 34;

/// The kernel's flags of all frames; none without the right to read them.
#[derive(Debug)]
pub struct Frames {
    flags: Option<File>,
}

/// The KSM state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessKsmState {
    /// The process has offered some or all of its memory itself.
    pub is_offered: bool,
    /// Pages of it that map merged frames.
    pub merged: u64,
}

/// The memory of one process.
#[derive(Debug)]
pub struct Memory {
    contents: File,
    pagemap: Pagemap,
    pid: u32,
}

impl Frames {
    /// The frames of this host, or of a folder that looks like its `/proc`.
    #[must_use]
    pub fn of(proc_root: &Path) -> Frames {
        Frames {
            flags: File::open(proc_root.join("kpageflags")).ok(),
        }
    }

    /// The flags of a frame, if they can be read.
    fn of_frame(&self, frame: u64) -> Option<u64> {
        let mut word = [0; 8];
        let file = self.flags.as_ref().filter(|_| frame != 0)?;
        file.read_exact_at(&mut word, frame * 8).ok()?;
        Some(u64::from_le_bytes(word))
    }
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// Gone, or no right; the process blocks the read.
    pub fn of(proc: &Proc, pid: u32) -> proc::Result<Memory> {
        let files = proc.clone();
        proc.wait_for(pid, move || {
            Ok(Memory {
                contents: files.open(pid, "mem")?,
                pagemap: Pagemap::of(&files, pid)?,
                pid,
            })
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The contents of these pages.
    ///
    /// # Errors
    /// The address space is gone; the process blocks the read.
    pub fn see_each(
        self: &Arc<Memory>,
        proc: &Proc,
        pages: &[u64],
        hash: &LineHash,
        frames: &Arc<Frames>,
    ) -> proc::Result<Vec<ProbedPage>> {
        let (memory, frames) = (Arc::clone(self), Arc::clone(frames));
        let (pages, hash) = (pages.to_vec(), hash.clone());
        proc.wait_for(self.pid, move || {
            let pages = pages.into_iter();
            pages.map(|page| memory.see(page, &hash, &frames)).collect()
        })
    }

    /// The content of a page.
    ///
    /// # Errors
    /// The address space is gone.
    fn see(&self, address: u64, hash: &LineHash, frames: &Frames) -> proc::Result<ProbedPage> {
        let word = self.pagemap.word(address)?;
        if word & PRESENT == 0 || word & FILE != 0 {
            return Ok(ProbedPage::Absent);
        }
        let flags = frames.of_frame(word & FRAME);
        let is_merged = match flags {
            Some(flags) => flags & (MERGED | OWN) == MERGED,
            None => word & EXCLUSIVE == 0,
        };
        let is_zeros = flags.is_some_and(|flags| flags & ZEROS != 0);
        // A page shared by fork has nothing to save, either.
        if is_zeros || (!is_merged && word & EXCLUSIVE == 0) {
            return Ok(ProbedPage::Absent);
        }
        let mut page = [0; PAGE];
        match self.contents.read_exact_at(&mut page, address) {
            Ok(()) => {}
            Err(_) => return Ok(ProbedPage::Absent),
        }
        let hash = hash.page(
            &page,
            uksm_policy::command::Lines {
                from: 0,
                to: PAGE_LINES,
            },
        );
        Ok(match is_merged {
            true => ProbedPage::Merged(hash),
            false => ProbedPage::Alone(hash),
        })
    }
}

/// The private anonymous mappings of a process, ascending; adjacent ones are joined.
///
/// # Errors
/// Gone, unreadable, or malformed; the process blocks the read.
pub fn anonymous(proc: &Proc, pid: u32) -> proc::Result<Vec<Mapping>> {
    let files = proc.clone();
    let mut joined: Vec<Mapping> = Vec::new();
    for mapping in proc.wait_for(pid, move || mappings(&files, pid, is_anonymous))? {
        match joined.last_mut() {
            Some(last) if last.end == mapping.start => last.end = mapping.end,
            _ => joined.push(mapping),
        }
    }
    Ok(joined)
}

fn is_anonymous(entry: &SmapsEntry) -> bool {
    let is_named_so = matches!(
        entry.name_kind(),
        NameKind::Anonymous | NameKind::Heap | NameKind::Named
    );
    let is_usable = entry.is_private() && entry.is_usable();
    is_named_so && is_usable && entry.inode == 0 && entry.bytes() >= PAGE_SIZE
}

/// Offers all present and future memory of this process to KSM; a child, and another program in
/// this process, inherit that.
///
/// # Errors
/// The kernel lacks the call (before 6.4), or has no KSM.
pub fn offer_all() -> Result<(), Errno> {
    // SAFETY: the call takes numbers only, and changes nothing in memory but whether equal pages
    // may be one.
    let done = unsafe { libc::prctl(libc::PR_SET_MEMORY_MERGE, 1, 0, 0, 0) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Whether the kernel keeps neighbouring mappings of a process apart that offers all its memory.
/// The memory is offered for the test, and withdrawn again unless it was offered before.
///
/// # Errors
/// As [`keeps_mappings_apart`].
pub fn offering_keeps_mappings_apart() -> std::io::Result<bool> {
    // SAFETY: the call takes numbers only, and changes nothing.
    let before = unsafe { libc::prctl(libc::PR_GET_MEMORY_MERGE, 0, 0, 0, 0) };
    // Before 6.4, or without KSM, no process can offer all its memory.
    if before < 0 || offer_all().is_err() {
        return Ok(false);
    }
    let apart = keeps_mappings_apart();
    if before == 0 {
        // SAFETY: the call takes numbers only, and gives pages that are merged already copies of
        // their own.
        unsafe { libc::prctl(libc::PR_SET_MEMORY_MERGE, 0, 0, 0, 0) };
    }
    apart
}

/// Whether the kernel keeps neighbouring mappings of this process apart that it would otherwise
/// join. Linux 6.4 to 6.16 do so after [`offer_all`]: a program then has a mapping for each one
/// that it makes, up to the limit `vm.max_map_count`.
///
/// # Errors
/// No memory for two pages, or `/proc/self/maps` cannot be read.
pub fn keeps_mappings_apart() -> std::io::Result<bool> {
    let length = 2 * PAGE;
    let map = |at: *mut libc::c_void, length: usize, access: i32, fixed: i32| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: without an address the kernel chooses a free place; with one, the pages are those
        // of the mapping that was made here and that nothing points into.
        let mapped = unsafe { libc::mmap(at, length, access, flags, -1, 0) };
        match mapped {
            libc::MAP_FAILED => Err(std::io::Error::last_os_error()),
            mapped => Ok(mapped),
        }
    };
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let place = map(std::ptr::null_mut(), length, libc::PROT_NONE, 0)?;
    let apart = map(place, PAGE, both, libc::MAP_FIXED)
        .and_then(|_| map(place.wrapping_byte_add(PAGE), PAGE, both, libc::MAP_FIXED))
        .and_then(|second| {
            let maps = std::fs::read_to_string("/proc/self/maps")?;
            let begin = format!("{:x}-", second.addr());
            Ok(maps.lines().any(|line| line.starts_with(&begin)))
        });
    // SAFETY: the pages were mapped above, and nothing points into them.
    unsafe { libc::munmap(place, length) };
    apart
}

/// The KSM state of a process. Kernels before 6.12 show the offered memory only for each mapping,
/// in `smaps`, for which they walk all page tables: that is read only if `closely`, otherwise
/// nothing counts as offered there.
///
/// # Errors
/// Gone or unreadable; the process blocks the read.
pub fn offered(proc: &Proc, pid: u32, closely: bool) -> proc::Result<ProcessKsmState> {
    let files = proc.clone();
    proc.wait_for(pid, move || offered_now(&files, pid, closely))
}

fn offered_now(proc: &Proc, pid: u32, closely: bool) -> proc::Result<ProcessKsmState> {
    let mut offered = ProcessKsmState::default();
    let mut is_listed = false;
    for line in BufReader::new(proc.open(pid, "ksm_stat")?).lines() {
        let line = line.map_err(|_| proc::Error::Gone { pid })?;
        let mut words = line.split_ascii_whitespace();
        let (name, value) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        match name.trim_end_matches(':') {
            "ksm_merging_pages" => offered.merged = value.parse().unwrap_or(0),
            "ksm_merge_any" | "ksm_mergeable" => {
                is_listed |= name.starts_with("ksm_mergeable");
                offered.is_offered |= value == "yes";
            }
            _ => {}
        }
    }
    if closely && !is_listed && !offered.is_offered {
        let smaps = BufReader::new(proc.open(pid, "smaps")?);
        let mut entries = SmapsEntries::of(smaps).map_while(Result::ok);
        offered.is_offered = entries.any(|entry| entry.has_flag(&["mg"]));
    }
    Ok(offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        for (name, bytes) in files {
            std::fs::write(root.path().join(name), bytes).unwrap();
        }
        let proc = Proc::at(root.path());
        (root, proc)
    }

    #[test]
    fn merged_pages_are_distinguished_from_others_and_zeros_and_forks_are_none() {
        let words = [
            PRESENT | EXCLUSIVE | 1,
            PRESENT | 2,
            PRESENT | 3,
            PRESENT | 4,
            PRESENT | FILE | 1,
            0,
        ];
        let pagemap: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let flags = [0, 0, MERGED, ZEROS, 0];
        let flags: Vec<u8> = flags.into_iter().flat_map(u64::to_le_bytes).collect();
        let contents: Vec<u8> = (0..6u8).flat_map(|page| [page; PAGE]).collect();
        let (root, proc) = process(&[
            ("7/pagemap", &pagemap),
            ("7/mem", &contents),
            ("kpageflags", &flags),
        ]);
        let memory = Memory::of(&proc, 7).unwrap();
        let hash = LineHash::new(3);
        let frames = Frames::of(root.path());
        let see = |page, frames: &Frames| memory.see(page * PAGE_SIZE, &hash, frames).unwrap();
        assert!(matches!(see(0, &frames), ProbedPage::Alone(_)));
        assert!(matches!(see(1, &frames), ProbedPage::Merged(_)));
        for none in 2..6 {
            assert_eq!(see(none, &frames), ProbedPage::Absent, "{none}");
        }
        let unseen = Frames { flags: None };
        assert_eq!(see(0, &frames), see(0, &unseen));
        assert!(
            matches!(see(3, &unseen), ProbedPage::Merged(_)),
            "by several, as far as is known"
        );
        assert!(matches!(
            memory.see(6 * PAGE_SIZE, &hash, &frames),
            Err(proc::Error::Gone { pid: 7 })
        ));
    }

    #[test]
    fn only_private_anonymous_mappings_are_taken_and_neighbours_are_one() {
        let maps = "\
1000-3000 rw-p 00000000 00:00 0\x20
3000-4000 r--p 00000000 00:00 0\x20
5000-6000 rw-s 00000000 00:01 9 /dev/zero (deleted)
6000-7000 rw-p 00000000 08:01 9 /lib/x.so
7000-8000 ---p 00000000 00:00 0\x20
8000-9000 rw-p 00000000 00:00 0 [heap]
a000-b000 rw-p 00000000 00:00 0 [anon: pool]
c000-d000 rw-p 00000000 00:00 0 [stack]
e000-f000 rw-p 00000000 00:01 9 /SYSV1
";
        let no_text = [maps.as_bytes(), b"f000-10000 rw-p 0 00:01 9 /\xff\n"].concat();
        let (_root, proc) = process(&[("7/maps", &no_text)]);
        let found = anonymous(&proc, 7).unwrap();
        let found: Vec<_> = found.iter().map(|m| (m.start, m.end)).collect();
        assert_eq!(
            found,
            [(0x1000, 0x4000), (0x8000, 0x9000), (0xa000, 0xb000)]
        );
    }

    #[test]
    fn kernels_tell_in_two_ways_what_is_offered() {
        let of = |stat: &str, smaps: &str| {
            let files = [
                ("7/ksm_stat", stat.as_bytes()),
                ("7/smaps", smaps.as_bytes()),
            ];
            let (_root, proc) = process(&files);
            assert!(!offered(&proc, 7, false).unwrap().is_offered || stat.contains("yes"));
            offered(&proc, 7, true).unwrap()
        };
        let new = "ksm_rmap_items 0\nksm_merging_pages 12\nksm_merge_any: no\nksm_mergeable: yes\n";
        let yes = |merged| ProcessKsmState {
            is_offered: true,
            merged,
        };
        assert_eq!(of(new, ""), yes(12));
        assert_eq!(of("ksm_merge_any: yes\nksm_mergeable: no\n", ""), yes(0));
        let none = of(
            "ksm_mergeable: no\n",
            "1000-2000 rw-p 0 00:00 0\nVmFlags: rd mg\n",
        );
        assert_eq!(none, ProcessKsmState::default());
        assert_eq!(
            of(
                "ksm_rmap_items 9\n",
                "1000-2000 rw-p 0 00:00 0\nVmFlags: rd wr\n2000-3000 rw-p 0 00:00 0\nVmFlags: rd wr mg ac\n"
            ),
            yes(0)
        );
        assert_eq!(
            of(
                "ksm_rmap_items 9\n",
                "1000-2000 rw-p 0 00:01 9 /mg\nVmFlags: rd wr\n"
            ),
            ProcessKsmState::default()
        );
    }

    #[test]
    fn mappings_of_a_process_that_offers_nothing_are_joined() {
        assert!(!keeps_mappings_apart().unwrap());
        // On any kernel, this process is as before.
        offering_keeps_mappings_apart().unwrap();
        assert!(!keeps_mappings_apart().unwrap());
    }

    #[test]
    fn own_memory_is_read_as_it_is() {
        let page = vec![5u8; 3 * PAGE];
        let address = (page.as_ptr() as u64).next_multiple_of(PAGE_SIZE);
        let memory = Memory::of(&Proc::default(), std::process::id()).unwrap();
        let hash = LineHash::new(3);
        let lines = uksm_policy::command::Lines {
            from: 0,
            to: PAGE_LINES,
        };
        let expected = hash.page(&[5; PAGE], lines);
        let frames = Frames::of(Path::new("/proc"));
        assert_eq!(
            memory.see(address, &hash, &frames).unwrap(),
            ProbedPage::Alone(expected)
        );
    }
}

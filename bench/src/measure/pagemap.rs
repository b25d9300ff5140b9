//! Memory saved, counted from page tables.
//!
//! Problem: in-kernel KSM and uksm each count their own savings in their own way, and KSM's
//! counters do not fall while ksmd is stopped. Approach: read the page frame of every private
//! anonymous page of the workload. The saving is pages mapped minus distinct page frames (the zero
//! page costs none), the same for both. One bit a page frame of the machine keeps this cheap enough
//! to be polled. Source: Documentation/admin-guide/mm/pagemap.rst. Needs CAP_SYS_ADMIN.

use crate::contents::PAGE;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use uksm_testkit::pagemap::{Pagemap, PagemapEntry};

/// Entries read at a time.
const CHUNK: usize = 8192;

/// A page of a process: its process id, and its address.
pub(crate) type Place = (u32, u64);

/// Page frames, a bit each.
#[derive(Debug, Default)]
pub(crate) struct FrameSet(Vec<u64>);

impl FrameSet {
    /// Removes all frames; the memory of the set is kept.
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Adds a frame; returns whether it is new.
    pub(super) fn insert(&mut self, pfn: u64) -> bool {
        let word = usize::try_from(pfn / 64).expect("64-bit machine");
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (pfn % 64);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// The number of frames.
    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Counts from the page tables of some processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Private anonymous pages mapped, the zero page included.
    pub mapped: usize,
    /// Of these, mappings of the zero page.
    pub zero: usize,
    /// Distinct page frames under them, the zero page not counted.
    pub page_frames: usize,
    /// Pages swapped out.
    pub swapped: usize,
}

impl Count {
    /// Pages that cost no frame of their own.
    pub(crate) fn saved(&self) -> usize {
        self.mapped - self.page_frames
    }
}

/// The pages that are examined.
#[derive(Debug, Clone)]
enum Which {
    /// Pages of mappings of at least this many bytes.
    Long(u64),
    /// These pages, half-open byte ranges by process.
    Listed(BTreeMap<u32, Vec<(u64, u64)>>),
}

impl Which {
    const ALL: Which = Which::Long(0);

    /// These pages, neighbours together.
    fn listed(mut places: Vec<Place>) -> Which {
        places.sort_unstable();
        let mut ranges: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for (pid, address) in places {
            let ranges = ranges.entry(pid).or_default();
            match ranges.last_mut() {
                Some((_, end)) if *end == address => *end += PAGE as u64,
                _ => ranges.push((address, address + PAGE as u64)),
            }
        }
        Which::Listed(ranges)
    }

    /// The ranges of a process, as half-open byte ranges; `None` if it is gone.
    fn ranges(&self, pid: u32) -> Result<Option<Vec<(u64, u64)>>> {
        match self {
            Which::Long(least) => {
                let mut ranges = anonymous_ranges(Path::new("/proc"), pid)?;
                if let Some(ranges) = &mut ranges {
                    ranges.retain(|(start, end)| end - start >= *least);
                }
                Ok(ranges)
            }
            Which::Listed(pages) => Ok(pages.get(&pid).cloned()),
        }
    }
}

/// Counts repeatedly, keeping its buffers.
pub(crate) struct Counter {
    zero_pfn: u64,
    which: Which,
    seen: FrameSet,
    buffer: Vec<u8>,
}

impl Counter {
    /// # Errors
    /// If this process may not see page frame numbers.
    pub(crate) fn new() -> Result<Counter> {
        let zero_pfn = zero_pfn()?;
        Ok(Counter {
            zero_pfn,
            which: Which::ALL,
            seen: FrameSet::default(),
            buffer: Vec::new(),
        })
    }

    /// The same, for mappings of at least this length alone.
    pub(crate) fn of_long(least_bytes: u64) -> Result<Counter> {
        Ok(Counter {
            which: Which::Long(least_bytes),
            ..Counter::new()?
        })
    }

    /// The same, for these pages alone, each a process id and an address: if few of many pages can
    /// be merged, that is many times as fast.
    pub(crate) fn of_places(places: Vec<Place>) -> Result<Counter> {
        Ok(Counter {
            which: Which::listed(places),
            ..Counter::new()?
        })
    }

    /// The same, for these half-open byte ranges of processes alone.
    pub(crate) fn of_ranges(ranges: BTreeMap<u32, Vec<(u64, u64)>>) -> Result<Counter> {
        Ok(Counter {
            which: Which::Listed(ranges),
            ..Counter::new()?
        })
    }

    /// Counts the pages of all these processes together. One that is gone has none.
    pub(crate) fn count(&mut self, pids: &[u32]) -> Result<Count> {
        let mut count = Count::default();
        self.seen.clear();
        for &pid in pids {
            self.add(pid, &mut count)?;
        }
        count.page_frames = self.seen.len();
        Ok(count)
    }

    fn add(&mut self, pid: u32, count: &mut Count) -> Result<()> {
        for_each_entry(pid, &self.which, &mut self.buffer, &mut |_, entry| {
            take(entry, self.zero_pfn, &mut self.seen, count);
        })
    }
}

/// Calls with the address and the pagemap entry of every selected page of the private anonymous
/// mappings.
fn for_each_entry(
    pid: u32,
    which: &Which,
    buffer: &mut Vec<u8>,
    each: &mut dyn FnMut(u64, PagemapEntry),
) -> Result<()> {
    let Some(ranges) = which.ranges(pid)? else {
        return Ok(());
    };
    let pagemap = match Pagemap::open(pid) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for (start, end) in ranges {
        let mut page = start / 4096;
        while page < end / 4096 {
            let left = usize::try_from(end / 4096 - page)
                .unwrap_or(CHUNK)
                .min(CHUNK);
            let entries = pagemap.read(page * 4096, left, buffer)?;
            if entries.len() == 0 {
                break; // the address space ended under us
            }
            for entry in entries {
                each(page * 4096, entry);
                page += 1;
            }
        }
    }
    Ok(())
}

/// Neighbouring pages that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PresentPages {
    /// Address of the first.
    pub start: u64,
    /// Their number.
    pub count: usize,
}

/// The private anonymous pages of a process that are in memory.
pub(crate) fn present_pages(pid: u32) -> Result<Vec<PresentPages>> {
    let mut runs: Vec<PresentPages> = Vec::new();
    for_each_entry(pid, &Which::ALL, &mut Vec::new(), &mut |address, entry| {
        if entry.pfn().is_none() || entry.is_file() {
            return;
        }
        match runs.last_mut() {
            Some(run) if run.start + (run.count as u64) * 4096 == address => run.count += 1,
            _ => runs.push(PresentPages {
                start: address,
                count: 1,
            }),
        }
    })?;
    Ok(runs)
}

/// The private anonymous pages of a process that are in memory: the address of each, and its frame.
pub(crate) fn page_frames(pid: u32) -> Result<Vec<(u64, u64)>> {
    let mut pages = Vec::new();
    for_each_entry(pid, &Which::ALL, &mut Vec::new(), &mut |address, entry| {
        if let Some(pfn) = entry.pfn()
            && !entry.is_file()
        {
            pages.push((address, pfn));
        }
    })?;
    Ok(pages)
}

/// Adds one pagemap entry to the count.
fn take(entry: PagemapEntry, zero_pfn: u64, seen: &mut FrameSet, count: &mut Count) {
    let Some(pfn) = entry.pfn() else {
        count.swapped += usize::from(entry.is_swapped());
        return;
    };
    if entry.is_file() {
        return;
    }
    count.mapped += 1;
    if pfn == zero_pfn {
        count.zero += 1;
        return;
    }
    seen.insert(pfn);
}

/// The largest private anonymous mapping of a process, as a half-open byte range.
pub(crate) fn largest_mapping(pid: u32) -> Result<Option<(u64, u64)>> {
    let ranges = accessible_ranges(pid)?;
    Ok(ranges.into_iter().max_by_key(|(start, end)| end - start))
}

/// The private anonymous mappings of a process with these lengths, one for each length, in the
/// order of their addresses: half-open byte ranges.
///
/// # Errors
/// For one of these lengths there is no mapping behind those before it.
pub(crate) fn mappings_of(pid: u32, lengths: &[u64]) -> Result<Vec<(u64, u64)>> {
    let mut ranges = accessible_ranges(pid)?.into_iter();
    let found = lengths
        .iter()
        .map(|&length| ranges.find(|(start, end)| end - start == length));
    let found: Option<Vec<_>> = found.collect();
    found.with_context(|| format!("process {pid} has no mappings of {lengths:?} bytes"))
}

/// The start of the private anonymous mapping of a process with this length.
pub(crate) fn mapping_of(pid: u32, bytes: u64) -> Result<Option<u64>> {
    let ranges = accessible_ranges(pid)?;
    let mut fitting = ranges.iter().filter(|(start, end)| end - start == bytes);
    Ok(fitting.next().map(|&(start, _)| start))
}

/// A private anonymous mapping: a half-open byte range, and whether its process may read or write
/// there.
type AnonymousRange = ((u64, u64), bool);

/// The private anonymous mappings of a process, half-open byte ranges; `None` if it is gone.
fn anonymous_ranges(proc: &Path, pid: u32) -> Result<Option<Vec<(u64, u64)>>> {
    let mappings = anonymous_mappings(proc, pid)?;
    let ranges = |found: Vec<AnonymousRange>| found.into_iter().map(|(range, _)| range).collect();
    Ok(mappings.map(ranges))
}

/// The ranges that a process may read or write. Others are only reserved: the heap of a new thread
/// is for a moment as long as a workload of 64 MiB.
fn accessible_ranges(pid: u32) -> Result<Vec<(u64, u64)>> {
    let found = anonymous_mappings(Path::new("/proc"), pid)?.unwrap_or_default();
    let accessible = found
        .into_iter()
        .filter(|&(_, is_accessible)| is_accessible);
    Ok(accessible.map(|(range, _)| range).collect())
}

fn anonymous_mappings(proc: &Path, pid: u32) -> Result<Option<Vec<AnonymousRange>>> {
    let path = proc.join(pid.to_string()).join("maps");
    let maps = match fs::read_to_string(&path) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            return Ok(None);
        }
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut ranges = Vec::new();
    for (number, line) in maps.lines().enumerate() {
        let parsed = parse(line)
            .with_context(|| format!("{}:{}: bad line '{line}'", path.display(), number + 1))?;
        ranges.extend(parsed);
    }
    Ok(Some(ranges))
}

/// One line of a maps file: its mapping, if that is private, of no file and not the kernel's own.
fn parse(line: &str) -> Option<Option<AnonymousRange>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let range = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    let permissions = fields.next()?;
    let private = permissions.ends_with('p');
    let is_accessible = permissions.contains(['r', 'w']);
    let file = fields.nth(2)? != "0";
    let name = fields.next().unwrap_or("");
    let kernels = name.starts_with("[v") || name == "[uprobes]";
    Some((private && !file && !kernels).then_some((range, is_accessible)))
}

/// The PFN of the zero page, which a read of a fresh mapping maps.
fn zero_pfn() -> Result<u64> {
    let probe = probe_page()?;
    let mut buffer = Vec::new();
    let entry = Pagemap::open(std::process::id())?
        .read(probe, 1, &mut buffer)?
        .next();
    match entry.and_then(PagemapEntry::pfn) {
        None => bail!("the probe page is not mapped"),
        Some(0) => bail!("page frame numbers are hidden: run as root (CAP_SYS_ADMIN)"),
        Some(pfn) => Ok(pfn),
    }
}

/// The address of a page that was read and never written. It stays mapped for good: one page.
fn probe_page() -> Result<u64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    // SAFETY: a fresh mapping aliases nothing.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            4096,
            ProtFlags::READ,
            MapFlags::PRIVATE,
        )
    }
    .context("cannot map a page")?;
    // SAFETY: keeps huge pages, which have a zero page of their own, away from our page.
    let _ = unsafe { rustix::mm::madvise(page, 4096, Advice::LinuxNoHugepage) };
    // SAFETY: mapped readable above.
    let byte = unsafe { page.cast::<u8>().read_volatile() };
    ensure!(byte == 0, "a fresh page is not zero");
    Ok(page.addr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

    #[test]
    fn short_mappings_are_left_out_where_only_long_ones_are_counted() {
        let memory = vec![1_u8; 48 << 20];
        let own = std::process::id();
        let visited = |which: &Which| {
            let mut count = 0_usize;
            let mut found = false;
            let page = memory.as_ptr().addr() as u64 / 4096 * 4096;
            for_each_entry(own, which, &mut Vec::new(), &mut |address, _| {
                count += 1;
                found |= address == page;
            })
            .unwrap();
            (count, found)
        };
        let long = |bytes| visited(&Which::Long(bytes));
        let (all, some, none) = (long(0), long(40 << 20), long(1 << 46));
        assert!(some.1 && all.0 > some.0, "{all:?} {some:?}");
        assert_eq!(none, (0, false));
        let address = memory.as_ptr().addr() as u64;
        let page = address / 4096 * 4096;
        let listed = |pages| visited(&Which::Listed([(own, vec![pages])].into()));
        assert_eq!(listed((page, page + 3 * 4096)), (3, true));
        assert_eq!(listed((page + 4096, page + 2 * 4096)), (1, false));
    }

    #[test]
    fn pages_that_are_named_are_counted_by_runs() {
        let places = [(2, 0x9000), (1, 0x5000), (1, 0x3000), (1, 0x4000)];
        let which = Which::listed(places.into());
        let ranges = |pid| which.ranges(pid).unwrap().unwrap();
        assert_eq!(ranges(1), [(0x3000, 0x6000)]);
        assert_eq!(ranges(2), [(0x9000, 0xa000)]);
        assert_eq!(which.ranges(3).unwrap(), None);
    }

    #[test]
    fn room_that_is_only_reserved_is_no_mapping_of_a_workload() {
        const PAGE: usize = 1 << 12;
        let bytes = (37 << 20) + 5 * PAGE;
        let reserved = bytes + 2 * PAGE;
        // SAFETY: a fresh mapping aliases nothing.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = mapped.unwrap();
        let own = std::process::id();
        let found = |length: usize| mapping_of(own, length as u64).unwrap();
        assert_eq!(found(reserved), None);
        assert!(mappings_of(own, &[reserved as u64]).is_err());
        // Between reserved pages it is no part of a mapping that others make meanwhile.
        let middle = start.wrapping_byte_add(PAGE);
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: mapped above, and there is no reference into it.
        unsafe { rustix::mm::mprotect(middle, bytes, access) }.unwrap();
        assert_eq!(found(bytes), Some(middle.addr() as u64));
        // SAFETY: as above.
        unsafe { rustix::mm::munmap(start, reserved) }.unwrap();
    }

    #[test]
    fn private_mappings_without_a_file_are_counted_and_no_others() {
        let anonymous = "7f00-7f10 rw-p 00000000 00:00 0 ";
        assert_eq!(parse(anonymous), Some(Some(((0x7f00, 0x7f10), true))));
        let reserved = "7f00-7f10 ---p 00000000 00:00 0 ";
        assert_eq!(parse(reserved), Some(Some(((0x7f00, 0x7f10), false))));
        assert!(
            parse("7f00-7f10 rw-p 00000000 00:00 0    [heap]")
                .unwrap()
                .is_some()
        );
        assert!(
            parse("7f00-7f10 rw-p 00000000 00:00 0    [anon: x]")
                .unwrap()
                .is_some()
        );
        assert!(parse("7f00-7f10 rw-s 00000000 00:00 0 ").unwrap().is_none());
        assert!(
            parse("7f00-7f10 r--p 00000000 08:01 7    /bin/x")
                .unwrap()
                .is_none()
        );
        assert!(
            parse("7f00-7f10 r-xp 00000000 00:00 0    [vdso]")
                .unwrap()
                .is_none()
        );
        assert_eq!(parse("7f00 rw-p"), None);
    }

    #[test]
    fn shared_frames_and_zero_pages_are_saved_and_file_pages_not_counted() {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const FILE: u64 = 1 << 61;
        let mut seen = FrameSet::default();
        let mut count = Count::default();
        for entry in [
            PRESENT | 70,
            PRESENT | 70,
            PRESENT | 71,
            PRESENT | 9,
            SWAPPED,
            0,
        ] {
            take(PagemapEntry::from_bits(entry), 9, &mut seen, &mut count);
        }
        let file = PagemapEntry::from_bits(PRESENT | FILE | 72);
        take(file, 9, &mut seen, &mut count);
        count.page_frames = seen.len();
        assert_eq!(
            count,
            Count {
                mapped: 4,
                zero: 1,
                page_frames: 2,
                swapped: 1
            }
        );
        assert_eq!(count.saved(), 2);
    }

    #[test]
    fn a_process_that_is_gone_has_no_ranges() {
        assert_eq!(
            anonymous_ranges(Path::new("/proc"), u32::MAX).unwrap(),
            None
        );
    }
}

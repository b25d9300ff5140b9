//! Parses `/proc/PID/maps` and `/proc/PID/smaps`.
//!
//! # Problem
//! A process decides how many mappings it has and the names of mapped files. A name is bytes, not
//! text: it can be no UTF-8, can be longer than `PATH_MAX` (a tree of folders may be that deep),
//! and can look like a name that the kernel gives. A parser that takes a name for more than bytes
//! fails at some names, and then one process keeps the daemon from reading any.
//!
//! # Approach
//! [`SmapsEntries`] reads one line at a time. A line that is longer than [`MAX_LINE_BYTES`] is cut
//! there and its rest is skipped, so memory is bounded by one line and one mapping. Only the fixed
//! fields before a name are parsed; the name stays bytes, and [`SmapsEntry::name_kind`] compares it
//! with the few names of the kernel, which have no inode. The kernel writes a newline in a name as
//! `\012`, so a name cannot begin a line of its own. A malformed line is an error with its number;
//! the caller may go on with the next mapping.
//!
//! The daemon parses these files here only; `xtask/tests/layering/imports.rs` forbids the parsers
//! of other crates.
//!
//! # Units
//! Addresses in bytes, ranges half-open, amounts in pages of 4 KiB.
//!
//! # Source
//! `proc_pid_maps(5)`, `proc_pid_smaps(5)`; the kernel's `show_map_vma()`, `seq_path()`,
//! `show_smap_vma_flags()`.

use std::io::{self, BufRead, Read as _};

use crate::proc::bounded::MAX_LINE_BYTES;

/// KiB of a page.
const PAGE_KIB: u64 = 4;

/// One mapping. Fields of `smaps` are zero or empty if they come from `maps`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmapsEntry {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// `r`, `w`, `x` and `p` or `s`, as the kernel writes them.
    pub permissions: [u8; 4],
    /// Inode of the mapped file; zero for anonymous memory.
    pub inode: u64,
    /// Name of the file, or the kernel's or the program's own name in brackets; empty for other
    /// anonymous memory. Chosen by the process.
    pub name: Vec<u8>,
    /// Pages in memory, without those of hugetlbfs.
    pub resident: u64,
    /// Anonymous pages in memory.
    pub anonymous: u64,
    /// Anonymous pages in huge pages.
    pub huge: u64,
    /// Pages of hugetlbfs.
    pub hugetlb: u64,
    /// Pages swapped out.
    pub swapped: u64,
    /// The kernel's flags, two letters each, separated by spaces.
    pub flags: String,
}

/// Kind of memory, by the name of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Anonymous memory without a name.
    Anonymous,
    /// The heap of `brk`.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Anonymous memory that the program gave a name (`PR_SET_VMA_ANON_NAME`).
    Named,
    /// Memory that the kernel puts into each process: `[vdso]`, `[vvar]`, `[uprobes]`.
    Kernel,
    /// A file.
    File,
}

/// Reason why a list of mappings cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kernel does not give the next line.
    #[error("{line}: {source}")]
    Read {
        /// The line, from 1.
        line: u64,
        /// The reason.
        source: io::Error,
    },
    /// A malformed line. The next mapping can be read.
    #[error("{line}: {what}")]
    Malformed {
        /// The line, from 1.
        line: u64,
        /// The fault; without the line's text, which the process can choose.
        what: &'static str,
    },
}

impl Fault {
    /// Whether the process ended: the kernel answers ESRCH then.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Fault::Read { source, .. } => source.raw_os_error() == Some(libc::ESRCH),
            Fault::Malformed { .. } => false,
        }
    }
}

/// The mappings of a list, one after another.
#[derive(Debug)]
pub struct SmapsEntries<R> {
    lines: R,
    line: Vec<u8>,
    number: u64,
    /// The mapping whose fields are being read.
    begun: Option<SmapsEntry>,
    /// A fault that follows the mapping before it.
    waiting: Option<Fault>,
    /// A line was malformed: fields are skipped until a mapping begins.
    is_skipping: bool,
    is_ended: bool,
}

impl<R: BufRead> SmapsEntries<R> {
    /// The mappings of an open file, or of its contents.
    pub fn of(lines: R) -> SmapsEntries<R> {
        SmapsEntries {
            lines,
            line: Vec::new(),
            number: 0,
            begun: None,
            waiting: None,
            is_skipping: false,
            is_ended: false,
        }
    }

    /// Lines that were read.
    #[must_use]
    pub fn lines_read(&self) -> u64 {
        self.number
    }

    /// Reads the next line, at most [`MAX_LINE_BYTES`] of it, without its newline. False at the
    /// end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut part = (&mut self.lines).take(MAX_LINE_BYTES as u64);
        if part.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        match self.line.last() {
            Some(b'\n') => {
                self.line.pop();
            }
            _ => self.skip_rest()?,
        }
        self.number += 1;
        Ok(true)
    }

    /// Skips to the next line without storing the rest.
    fn skip_rest(&mut self) -> io::Result<()> {
        loop {
            let bytes = match self.lines.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (length, is_end) = match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            };
            self.lines.consume(length);
            if is_end {
                return Ok(());
            }
        }
    }

    /// Drops the current mapping: lines up to the next one are skipped.
    fn malformed(&mut self, what: &'static str) -> Fault {
        self.begun = None;
        self.is_skipping = true;
        let line = self.number;
        Fault::Malformed { line, what }
    }

    /// Processes the line that was read. Returns a mapping or fault that is ready.
    fn take_line(&mut self) -> Option<Result<SmapsEntry, Fault>> {
        // A field of a mapping begins with a capital letter, a mapping with its address.
        if self.line.first().is_some_and(u8::is_ascii_uppercase) {
            let taken = match &mut self.begun {
                Some(entry) => entry.take_field(&self.line),
                None if self.is_skipping => Some(()),
                None => None,
            };
            return match taken {
                Some(()) => None,
                None => Some(Err(self.malformed("not a field of a mapping"))),
            };
        }
        let before = self.begun.take();
        match head(&self.line) {
            Some(entry) => {
                self.begun = Some(entry);
                self.is_skipping = false;
                before.map(Ok)
            }
            None => {
                let fault = self.malformed("not a mapping");
                match before {
                    Some(entry) => {
                        self.waiting = Some(fault);
                        Some(Ok(entry))
                    }
                    None => Some(Err(fault)),
                }
            }
        }
    }
}

impl<R: BufRead> Iterator for SmapsEntries<R> {
    type Item = Result<SmapsEntry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(fault) = self.waiting.take() {
            return Some(Err(fault));
        }
        while !self.is_ended {
            match self.read_line() {
                Ok(true) => {
                    if let Some(ready) = self.take_line() {
                        return Some(ready);
                    }
                }
                Ok(false) => self.is_ended = true,
                Err(source) => {
                    self.is_ended = true;
                    self.begun = None;
                    let line = self.number + 1;
                    return Some(Err(Fault::Read { line, source }));
                }
            }
        }
        self.begun.take().map(Ok)
    }
}

impl SmapsEntry {
    /// Whether writes stay the process's own.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.permissions[3] == b'p'
    }

    /// Whether it can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.permissions[1] == b'w'
    }

    /// Whether it can be read, written or executed; else it is a reservation.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.permissions.iter().take(3).any(|&may| may != b'-')
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// The kind of its name.
    #[must_use]
    pub fn name_kind(&self) -> NameKind {
        match self.name.as_slice() {
            b"" => NameKind::Anonymous,
            // A file's path begins with a slash, or is of a kernel's own file system without
            // brackets.
            name if self.inode != 0 || !name.starts_with(b"[") => NameKind::File,
            b"[heap]" => NameKind::Heap,
            name if name == b"[stack]" || name.starts_with(b"[stack:") => NameKind::Stack,
            name if name.starts_with(b"[anon:") => NameKind::Named,
            _ => NameKind::Kernel,
        }
    }

    /// Whether the kernel shows one of these flags for it.
    #[must_use]
    pub fn has_flag(&self, any: &[&str]) -> bool {
        let mut flags = self.flags.split_ascii_whitespace();
        flags.any(|flag| any.contains(&flag))
    }

    /// Reads a line of `smaps`; none if it has no amount where there should be one.
    fn take_field(&mut self, line: &[u8]) -> Option<()> {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        let amount = match name {
            b"Rss" => &mut self.resident,
            b"Anonymous" => &mut self.anonymous,
            b"AnonHugePages" => &mut self.huge,
            b"Shared_Hugetlb" | b"Private_Hugetlb" => &mut self.hugetlb,
            b"Swap" => &mut self.swapped,
            b"VmFlags" => {
                std::str::from_utf8(value)
                    .ok()?
                    .trim()
                    .clone_into(&mut self.flags);
                return Some(());
            }
            _ => return Some(()),
        };
        let kib = std::str::from_utf8(value).ok()?.trim().strip_suffix("kB")?;
        let pages = kib.trim().parse::<u64>().ok()? / PAGE_KIB;
        *amount = amount.saturating_add(pages);
        Some(())
    }
}

/// The mapping of a line; none if its fixed fields are not those of one.
fn head(line: &[u8]) -> Option<SmapsEntry> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|&byte| byte != b' ')?;
        let from = rest.get(start..)?;
        let length = from.iter().position(|&byte| byte == b' ');
        let (field, after) = from.split_at(length.unwrap_or(from.len()));
        rest = after;
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?.as_bytes().try_into().ok()?;
    let (_offset, _device) = (field()?, field()?);
    let inode = field()?.parse().ok()?;
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let name = rest.iter().position(|&byte| byte != b' ');
    let name = name.and_then(|at| rest.get(at..)).unwrap_or_default();
    (start <= end).then(|| SmapsEntry {
        start,
        end,
        permissions,
        inode,
        name: name.to_vec(),
        ..SmapsEntry::default()
    })
}

#[cfg(test)]
mod tests;

//! This process's own memory: its kind, and advice about it.
//!
//! # Problem
//! The daemon saw a range from outside, some time ago. By now it may be a file, shared memory, or
//! nothing.
//!
//! # Approach
//! `/proc/self/maps` is read once for a message. A range is advised only if all of it is private
//! and anonymous: no inode, and no name except that of the heap or one that the program gave it. If
//! the program changes it between that check and the advice, then either other mergeable memory is
//! offered than was requested, or the kernel returns an error; neither changes the contents.
//!
//! # Source
//! proc(5), madvise(2).

use rustix::fs::{Mode, OFlags, open, stat};
use rustix::mm::Advice as Kernel;
use uksm_interface::advice::{Advice, DONE, MAX_RANGES, Message, NOT_ANONYMOUS, Outcomes, Range};

/// Maximum length of a line of maps: a longer one has a name, and so is no anonymous memory.
const LINE: usize = 512;

/// Performs the request of a message, as far as permitted.
pub(crate) fn advise(message: &Message) -> Outcomes {
    let mut reached = [0u64; MAX_RANGES];
    for (reached, range) in reached.iter_mut().zip(message.ranges()) {
        *reached = range.start;
    }
    let is_read = each_line(|line| {
        let Some(own) = anonymous(line) else { return };
        for (reached, range) in reached.iter_mut().zip(message.ranges()) {
            if (own.start..own.end).contains(reached) {
                *reached = own.end.min(range.end);
            }
        }
    });
    let mut outcomes = [DONE; MAX_RANGES];
    let ranges = message.ranges();
    for ((outcome, range), reached) in outcomes.iter_mut().zip(ranges).zip(reached) {
        *outcome = match is_read && reached >= range.end {
            true => pass_on(message.advice, *range),
            false => NOT_ANONYMOUS,
        };
    }
    Outcomes::new(outcomes.get(..ranges.len()).unwrap_or_default())
}

fn pass_on(advice: Advice, range: Range) -> u32 {
    let advice = match advice {
        Advice::Merge => Kernel::LinuxMergeable,
        Advice::Unmerge => Kernel::LinuxUnmergeable,
    };
    let (Ok(start), Ok(length)) = (
        usize::try_from(range.start),
        usize::try_from(range.end - range.start),
    ) else {
        return NOT_ANONYMOUS;
    };
    let start = std::ptr::without_provenance_mut(start);
    // SAFETY: neither advice changes what memory holds, only whether equal pages may share a frame.
    match unsafe { rustix::mm::madvise(start, length, advice) } {
        Ok(()) => DONE,
        Err(errno) => u32::try_from(errno.raw_os_error()).unwrap_or(NOT_ANONYMOUS),
    }
}

/// Calls `show` for the lines of maps; lines that are too long are cut. Returns whether all were
/// read.
fn each_line(mut show: impl FnMut(&[u8])) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(maps) = open(c"/proc/self/maps", flags, Mode::empty()) else {
        return false;
    };
    let mut part = [0u8; 4096];
    let mut line = [0u8; LINE];
    let mut length = 0;
    loop {
        let count = match rustix::io::read(&maps, &mut part) {
            Ok(0) => return true,
            Ok(count) => count,
            Err(_) => return false,
        };
        for &byte in part.iter().take(count) {
            if byte == b'\n' {
                show(line.get(..length).unwrap_or_default());
                length = 0;
            } else if let Some(place) = line.get_mut(length) {
                *place = byte;
                length += 1;
            }
        }
    }
}

/// The range of a line of maps, if it is of private anonymous memory.
fn anonymous(line: &[u8]) -> Option<Range> {
    let mut fields = line
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty());
    let range = fields.next()?;
    let is_private = fields.next()?.get(3) == Some(&b'p');
    let inode = fields.nth(2)?;
    let is_own = match fields.next() {
        None => true,
        Some(name) => name == b"[heap]" || name.starts_with(b"[anon:"),
    };
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let range = Range {
        start: hexadecimal(range.get(..dash)?)?,
        end: hexadecimal(range.get(dash + 1..)?)?,
    };
    (is_private && is_own && inode == b"0").then_some(range)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Whether the main thread and all others have ended: without this thread the process would be
/// gone.
pub(crate) fn is_alone() -> bool {
    // `.`, `..`, and a folder for each thread; the main thread keeps its own until the end.
    let threads = stat(c"/proc/self/task").map_or(0, |found| found.st_nlink);
    if threads != 4 {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = open(c"/proc/self/stat", flags, Mode::empty()) else {
        return false;
    };
    let mut text = [0u8; LINE];
    let length = rustix::io::read(&file, &mut text).unwrap_or(0);
    let text = text.get(..length).unwrap_or_default();
    // The name before it can contain any character, but ends with the last parenthesis.
    let state = text.iter().rposition(|&byte| byte == b')');
    state.and_then(|at| text.get(at + 2)) == Some(&b'Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_anonymous_memory_is_told_from_all_other() {
        let range = |line: &str| anonymous(line.as_bytes()).map(|range| (range.start, range.end));
        let some = Some((0x7f00_0000, 0x7f00_2000));
        for name in ["", " [heap]", "    [anon: Go: heap]"] {
            let line = format!("7f000000-7f002000 rw-p 00000000 00:00 0{name}");
            assert_eq!(range(&line), some, "{line}");
        }
        for line in [
            "7f000000-7f002000 rw-s 00000000 00:00 0",
            "7f000000-7f002000 rw-p 00000000 08:01 77",
            "7f000000-7f002000 rw-p 00000000 08:01 77 /lib/x.so",
            "7f000000-7f002000 rw-p 00000000 00:00 0 [stack]",
            "7f000000-7f002000 r-xp 00000000 00:00 0 [vdso]",
            "7f000000 rw-p 00000000 00:00 0",
            "x-y rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(range(line), None, "{line}");
        }
    }

    #[test]
    fn maps_are_read_to_the_end() {
        let mut lines = 0;
        let mut own = 0;
        let here = &raw const lines as u64;
        assert!(each_line(|line| {
            lines += 1;
            let text = std::str::from_utf8(line).unwrap();
            let (start, rest) = text.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let [start, end] = [start, end].map(|word| u64::from_str_radix(word, 16).unwrap());
            own += u32::from((start..end).contains(&here));
        }));
        assert!(lines > 10 && own == 1, "{lines} lines, {own} of the stack");
    }

    #[test]
    fn a_process_whose_threads_run_is_not_alone() {
        assert!(!is_alone());
    }
}

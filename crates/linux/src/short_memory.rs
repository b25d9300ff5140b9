//! Whether the host is short of memory.
//!
//! # Problem
//! Frames that save nothing can wait while there is memory, and must go soon when there is not. A
//! confined worker opens no files, and one that sleeps most of the time must not wake for this.
//!
//! # Approach
//! The kernel's own estimate of available memory is read before a sleep, at most every
//! [`INTERVAL`]. The file is opened at the start.
//!
//! # Source
//! Kernel documentation, `filesystems/proc.rst`, meminfo.

use std::fs::File;
use std::os::unix::fs::FileExt;

use procfs_core::{FromBufRead as _, Meminfo};
use uksm_policy::command::Nanos;

const PATH: &str = "/proc/meminfo";
/// Shortest time between two looks: one takes some ten microseconds.
const INTERVAL: Nanos = 4_000_000_000;
/// Memory is short if less than one part in this many is available. Redistribution stops giving
/// memory at the same mark.
const SHORT_DIVISOR: u64 = 10;
/// More than the file has.
const MAX_BYTES: usize = 8192;

/// The state of the host's memory.
#[derive(Debug)]
pub(crate) struct ShortMemory {
    /// None where it cannot be opened: memory never counts as short then.
    meminfo: Option<File>,
    /// No look before this time.
    next: Nanos,
}

impl ShortMemory {
    /// That of this host.
    pub(crate) fn of_host() -> ShortMemory {
        ShortMemory {
            meminfo: File::open(PATH).ok(),
            next: 0,
        }
    }

    /// Whether a look was due, and found memory short.
    pub(crate) fn is_found(&mut self, now: Nanos) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now.saturating_add(INTERVAL);
        let mut text = [0; MAX_BYTES];
        let read = self.meminfo.as_ref().map(|file| file.read_at(&mut text, 0));
        matches!(read, Some(Ok(bytes)) if is_short(&text[..bytes]))
    }
}

/// The same of the text of the file; not short if that is not as it should be.
fn is_short(text: &[u8]) -> bool {
    Meminfo::from_buf_read(text).is_ok_and(|seen| {
        let available = seen.mem_available.unwrap_or(seen.mem_total);
        available < seen.mem_total / SHORT_DIVISOR
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This machine's file with other figures.
    fn meminfo(available: u64) -> String {
        let text = std::fs::read_to_string(PATH).unwrap();
        let figures = [("MemTotal:", 1000), ("MemAvailable:", available)];
        let lines = text.lines().map(|line| {
            let other = figures.iter().find(|(name, _)| line.starts_with(name));
            other.map_or(line.to_owned(), |(name, kib)| format!("{name} {kib} kB"))
        });
        lines.map(|line| line + "\n").collect()
    }

    #[test]
    fn memory_is_short_below_a_tenth() {
        assert!(is_short(meminfo(99).as_bytes()));
        for other in [&meminfo(100), "", "MemTotal: 1000 kB\n", "MemAvailable: 1"] {
            assert!(!is_short(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn the_file_is_read_anew_and_seldom() {
        let path = std::env::temp_dir().join(format!("uksm-meminfo-{}", std::process::id()));
        std::fs::write(&path, meminfo(500)).unwrap();
        let mut memory = ShortMemory {
            meminfo: Some(File::open(&path).unwrap()),
            next: 0,
        };
        assert!(!memory.is_found(1));
        std::fs::write(&path, meminfo(50)).unwrap();
        assert!(!memory.is_found(INTERVAL));
        assert!(memory.is_found(1 + INTERVAL));
        assert!(!memory.is_found(2 + INTERVAL));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn this_host_names_both_figures() {
        let mut memory = ShortMemory::of_host();
        let mut text = [0; MAX_BYTES];
        let file = memory.meminfo.as_ref().unwrap();
        let bytes = file.read_at(&mut text, 0).unwrap();
        let seen = Meminfo::from_buf_read(&text[..bytes]).unwrap();
        assert!(bytes < MAX_BYTES && seen.mem_available.is_some());
        memory.is_found(0);
    }
}

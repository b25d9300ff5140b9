//! Whether the host is short of memory.
//!
//! # Problem
//! Frames that save nothing can wait while there is memory, and must go soon when there is not. A
//! confined worker opens no files, and one that sleeps most of the time must not wake for this.
//!
//! # Approach
//! The kernel's own estimate of available memory is read at the end of a sleep, at most every
//! [`INTERVAL`]. The file is opened at the start.
//!
//! # Source
//! Kernel documentation, `filesystems/proc.rst`, meminfo.

use std::fs::File;
use std::os::unix::fs::FileExt;

use uksm_policy::command::Nanos;

const PATH: &str = "/proc/meminfo";
/// Shortest time between two looks: one takes some ten microseconds.
const INTERVAL: Nanos = 4_000_000_000;
/// Memory is short if less than one part in this many is available. Redistribution stops giving
/// memory at the same mark.
const SHORT_DIVISOR: u64 = 10;
/// The first three lines, which are those that count.
const HEAD_BYTES: usize = 256;

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
        let mut head = [0; HEAD_BYTES];
        let read = self.meminfo.as_ref().map(|file| file.read_at(&mut head, 0));
        matches!(read, Some(Ok(bytes)) if is_short(&head[..bytes]))
    }
}

/// The same of the beginning of the file; not short if that is not as it should be.
fn is_short(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    match (number("MemTotal:"), number("MemAvailable:")) {
        (Some(total), Some(available)) => available < total / SHORT_DIVISOR,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(available: u64) -> String {
        format!("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nBuf")
    }

    #[test]
    fn memory_is_short_below_a_tenth() {
        assert!(is_short(head(99).as_bytes()));
        for other in [&head(100), "", "MemTotal: 1000 kB\n", "MemAvailable: 1"] {
            assert!(!is_short(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn the_file_is_read_anew_and_seldom() {
        let path = std::env::temp_dir().join(format!("uksm-meminfo-{}", std::process::id()));
        std::fs::write(&path, head(500)).unwrap();
        let mut memory = ShortMemory {
            meminfo: Some(File::open(&path).unwrap()),
            next: 0,
        };
        assert!(!memory.is_found(1));
        std::fs::write(&path, head(50)).unwrap();
        assert!(!memory.is_found(INTERVAL));
        assert!(memory.is_found(1 + INTERVAL));
        assert!(!memory.is_found(2 + INTERVAL));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn this_host_names_both_figures() {
        let mut memory = ShortMemory::of_host();
        let mut head = [0; HEAD_BYTES];
        let file = memory.meminfo.as_ref().unwrap();
        let bytes = file.read_at(&mut head, 0).unwrap();
        let text = String::from_utf8_lossy(&head[..bytes]);
        assert!(
            text.contains("MemTotal:") && text.contains("MemAvailable:"),
            "{text}"
        );
        memory.is_found(0);
    }
}

//! What the kernel says about memory: free pages, a process's share, events.
//!
//! # Problem
//! Merging must give pages back, must not change what a process is charged with, and must leak
//! nothing. The kernel's numbers lag: free pages sit in per-CPU lists, counters in per-CPU deltas.
//!
//! # Approach
//! Before free memory is read, the deltas are folded (`vm.stat_refresh`), compaction is asked for
//! (which empties the per-CPU lists of pages on their way to the LRU), and the pages of the per-CPU
//! free lists are added (`/proc/zoneinfo`). A process's share is read from smaps_rollup, which
//! walks its page tables; status is only as exact as its batched counters.
//!
//! # Units
//! Pages, unless a name says otherwise.

use std::collections::BTreeMap;
use std::fs;

/// The numbers of a file of lines "name value …" or "name: value …", by name.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn numbers(path: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let pair = |line: &str| {
        let (name, rest) = line.split_once([':', ' ', '\t'])?;
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    };
    text.lines().filter_map(pair).collect()
}

/// One number of such a file.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn number(path: &str, name: &str) -> u64 {
    *numbers(path)
        .get(name)
        .unwrap_or_else(|| panic!("{path}: no {name}"))
}

/// The number that is all of a file.
///
/// # Panics
/// If the file holds something else.
#[must_use]
pub fn value(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim()
        .parse()
        .unwrap_or_else(|error| panic!("{path}: {text:?}: {error}"))
}

/// Writes a setting.
///
/// # Panics
/// If the kernel refuses it.
pub fn set(path: &str, value: &str) {
    fs::write(path, value).unwrap_or_else(|error| panic!("{path}: writing {value:?}: {error}"));
}

/// An event counter of /proc/vmstat; 0 if this kernel does not count it.
#[must_use]
pub fn events(name: &str) -> u64 {
    numbers("/proc/vmstat").get(name).copied().unwrap_or(0)
}

/// A number of pages, for differences.
#[must_use]
pub fn signed(pages: usize) -> i64 {
    i64::try_from(pages).expect("fewer than 2^63 pages")
}

/// Free pages of the machine, those in per-CPU lists included.
#[must_use]
pub fn free_pages() -> i64 {
    set("/proc/sys/vm/compact_memory", "1");
    set("/proc/sys/vm/stat_refresh", "1");
    let zones = fs::read_to_string("/proc/zoneinfo").expect("/proc/zoneinfo");
    let listed: u64 = zones
        .lines()
        .filter_map(|line| line.trim().strip_prefix("count:"))
        .map(|count| count.trim().parse::<u64>().expect("/proc/zoneinfo: count"))
        .sum();
    let free = number("/proc/vmstat", "nr_free_pages") + listed;
    signed(usize::try_from(free).expect("guests are 64-bit"))
}

/// Free pages that can be had, of one node or of the machine, before an ordinary allocation finds
/// a zone at its lowest mark and begins to kill.
///
/// # Panics
/// If /proc/zoneinfo cannot be read.
#[must_use]
pub fn usable_pages(node: Option<u32>) -> u64 {
    let text = fs::read_to_string("/proc/zoneinfo").expect("/proc/zoneinfo");
    let wanted = node.map_or("Node ".to_owned(), |node| format!("Node {node}, "));
    let (mut here, mut sum, mut free, mut min) = (false, 0u64, 0u64, 0u64);
    for line in text.lines() {
        if line.starts_with("Node ") {
            here = line.starts_with(&wanted);
        }
        let line = line.trim();
        let number = |rest: &str| rest.trim().parse::<u64>().expect("a number of pages");
        if let Some(rest) = line.strip_prefix("pages free") {
            free = number(rest);
        } else if let Some(rest) = line.strip_prefix("min ") {
            min = number(rest);
        } else if let (true, Some(rest)) = (here, line.strip_prefix("protection: (")) {
            let kept = rest.trim_end_matches(')').split(", ").map(number).max();
            sum += free.saturating_sub(min + kept.unwrap_or(0));
        }
    }
    sum
}

/// Short per-CPU lists of free pages, until dropped. Otherwise a kernel that tunes them fills one
/// with thousands of pages at once, and kills with the lists full: they count as used.
#[derive(Debug)]
pub struct ShortLists(());

const LISTS: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";

impl ShortLists {
    /// From now on.
    #[must_use]
    pub fn set() -> ShortLists {
        set(LISTS, "100000");
        ShortLists(())
    }
}

impl Drop for ShortLists {
    fn drop(&mut self) {
        set(LISTS, "0");
    }
}

/// What a process is charged with, read from its page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Pages mapped.
    pub all: u64,
    /// Those that count as anonymous.
    pub anonymous: u64,
}

/// The resident pages of a process.
#[must_use]
pub fn resident(pid: i32) -> Resident {
    let rollup = numbers(&format!("/proc/{pid}/smaps_rollup"));
    Resident {
        all: rollup["Rss"] / 4,
        anonymous: rollup["Anonymous"] / 4,
    }
}

/// The classes of the counters of a process: (anonymous, file, shared), in pages.
#[must_use]
pub fn counters(pid: i32) -> [u64; 3] {
    let status = numbers(&format!("/proc/{pid}/status"));
    ["RssAnon", "RssFile", "RssShmem"].map(|class| status[class] / 4)
}

/// How far the counters of [`counters`] may lag behind: they are kept per CPU in batches.
pub const COUNTER_LAG: u64 = 128;

//! Counters of the whole machine: busy time of all CPUs, interrupts among them, swapped memory, and
//! freed memory.
//!
//! # Problem
//! A system's own CPU time is not its whole cost: write-protecting a page makes other CPUs flush
//! their TLBs, and interrupts are charged to the interrupted process.
//!
//! # Approach
//! The kernel's counters of the whole machine, before and after. They include all processes, the
//! workload and the measuring one, so that they are compared between variants of one workload and
//! are no figures of a system.
//!
//! Free memory belongs to no process: `MemFree`, and the free lists of each CPU. A freed page goes
//! to the latter first, and since Linux 6.7 a CPU keeps up to an eighth of a zone where much is
//! freed (`mm/page_alloc.c`, `nr_pcp_high`), so that `MemFree` alone may fall while memory is
//! saved.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use uksm_testkit::kernel_file;

use crate::units::mib;

/// Ticks a second in /proc/stat, on every Linux that user space sees.
const TICKS: f64 = 100.0;

/// The counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineCounters {
    at: Instant,
    cpus: f64,
    idle_ticks: u64,
    flushes: u64,
    calls: u64,
    swapped_in: usize,
    swapped_out: usize,
    free_kib: u64,
}

impl MachineCounters {
    /// Reads them.
    ///
    /// # Errors
    /// The kernel does not show them.
    pub(crate) fn now() -> Result<MachineCounters> {
        let (stat, interrupts) = (text("/proc/stat")?, text("/proc/interrupts")?);
        let events = text("/proc/vmstat")?;
        let (cpus, idle_ticks) = idle(&stat).context("/proc/stat: no idle time")?;
        Ok(MachineCounters {
            at: Instant::now(),
            cpus,
            idle_ticks,
            flushes: sum(&interrupts, "TLB").context("/proc/interrupts: no TLB")?,
            calls: sum(&interrupts, "CAL").context("/proc/interrupts: no CAL")?,
            free_kib: free_kib()?,
            swapped_in: event(&events, "pswpin").context("/proc/vmstat: no pswpin")?,
            swapped_out: event(&events, "pswpout").context("/proc/vmstat: no pswpout")?,
        })
    }

    /// The counts since an earlier moment: `busy_seconds` of all CPUs, `tlb_interrupts` (flushes
    /// that a CPU did because another one requested them), `call_interrupts` (all calls from one
    /// CPU to another, those included), `swapped_in_mib` and `swapped_out_mib`; `freed_mib`, which
    /// is less than the shared memory by the memory that merging needs itself, and by all other
    /// memory taken meanwhile.
    pub(crate) fn since(&self, before: &MachineCounters) -> BTreeMap<String, f64> {
        let wall = (self.at - before.at).as_secs_f64();
        // The time waited for a disk was seen to fall.
        let idle = self.idle_ticks.saturating_sub(before.idle_ticks) as f64 / TICKS;
        let freed = (self.free_kib as f64 - before.free_kib as f64) / 1024.0;
        let figures = [
            ("freed_mib", freed),
            ("busy_seconds", (wall * self.cpus - idle).max(0.0)),
            ("tlb_interrupts", (self.flushes - before.flushes) as f64),
            ("call_interrupts", (self.calls - before.calls) as f64),
            ("swapped_in_mib", mib(self.swapped_in - before.swapped_in)),
            (
                "swapped_out_mib",
                mib(self.swapped_out - before.swapped_out),
            ),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// Free memory, that in the CPUs' lists included.
///
/// # Errors
/// The kernel does not show it.
pub(crate) fn free_kib() -> Result<u64> {
    let free = kernel_file::number("/proc/meminfo", "MemFree")?;
    Ok(free + 4 * at_hand(&text("/proc/zoneinfo")?))
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Number of CPUs, and the ticks that all of them together were idle or waited for a disk.
fn idle(stat: &str) -> Option<(f64, u64)> {
    let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
    let all = lines.next()?;
    let mut fields = all.split_ascii_whitespace().skip(4);
    let idle: u64 = fields.next()?.parse().ok()?;
    let waiting: u64 = fields.next()?.parse().ok()?;
    Some((lines.count() as f64, idle + waiting))
}

/// The sum of a row of /proc/interrupts over all CPUs.
fn sum(interrupts: &str, row: &str) -> Option<u64> {
    let line = interrupts.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == row).then_some(counts)
    })?;
    let counts = line
        .split_ascii_whitespace()
        .map_while(|word| word.parse::<u64>().ok());
    Some(counts.sum())
}

/// Free pages in the CPUs' lists, of all zones.
fn at_hand(zones: &str) -> u64 {
    let counts = zones.lines().map(str::trim);
    let counts = counts.filter_map(|line| line.strip_prefix("count:")?.trim().parse::<u64>().ok());
    counts.sum()
}

/// A counter of /proc/vmstat.
fn event(events: &str, name: &str) -> Option<usize> {
    let mut lines = events.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_all_cpus_and_rows_are_summed_over_them() {
        let stat = "cpu  10 0 20 300 7 0 1 0 0 0\ncpu0 5 0 10 150 3 0 0 0 0 0\ncpu1 5 0 10 150 4 0 1 0 0 0\nintr 5\n";
        assert_eq!(idle(stat), Some((2.0, 307)));
        assert_eq!(idle("intr 5\n"), None);
        let interrupts = "           CPU0       CPU1\n  0:   9   9  IO-APIC  timer\nTLB:  3  4   TLB shootdowns\n";
        assert_eq!(sum(interrupts, "TLB"), Some(7));
        assert_eq!(sum(interrupts, "CAL"), None);
        let events = "pswpin 3\npswpout 15\nswpout_zero 7\n";
        assert_eq!(event(events, "pswpout"), Some(15));
        assert_eq!(event(events, "swpout_zero"), Some(7));
        assert_eq!(event(events, "pswp"), None);
        let zones = "Node 0, zone DMA32\n  pages free 9\n  pagesets\n    cpu: 0\n              count: 12\n              high:  14\n    cpu: 1\n              count: 30\n";
        assert_eq!(at_hand(zones), 42);
    }

    #[test]
    fn what_was_counted_lies_between_two_moments() {
        let before = MachineCounters::now().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let figures = MachineCounters::now().unwrap().since(&before);
        assert!(figures["busy_seconds"] >= 0.0 && figures["tlb_interrupts"] >= 0.0);
        assert!(figures["call_interrupts"] >= 0.0);
    }
}

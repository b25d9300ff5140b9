//! A case of the hints experiments, by its name.
//!
//! `INTERFACE-CPU[-slowN]`, as in `pread-20ms`, `io_uring-low`, `pread-200ms-slow8`:
//!
//! | part | means |
//! |---|---|
//! | `pread`, `io_uring` | how machines ask their disks |
//! | `Nms` | the CPU of KSM at 100 pages and a sleep of N ms |
//! | `quiet`, `low`, `medium`, `full` | what this governor takes |
//! | `slowN` | the machines do N times less a second (XLH Figure 10: 4 at 100 ms, 8 at 200 ms) |

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};
use uksm_policy::params::Governor;

use crate::disk_machines::Aio;

/// The amount of CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cpu {
    /// As much as KSM takes with this many milliseconds of sleep.
    WakeUp(u64),
    /// As much as a governor takes.
    Governor(Governor),
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::WakeUp(ms) => write!(f, "{ms}ms"),
            Cpu::Governor(governor) => f.write_str(governor.name()),
        }
    }
}

/// The amount of CPU that a word denotes.
pub(super) fn cpu_named(word: &str) -> Result<Cpu> {
    let governor = Governor::ALL
        .into_iter()
        .find(|governor| governor.name() == word);
    if let Some(governor) = governor {
        return Ok(Cpu::Governor(governor));
    }
    let ms = word.strip_suffix("ms").and_then(|ms| ms.parse().ok());
    let ms = ms.filter(|ms| (1..=10_000).contains(ms));
    let ms = ms.with_context(|| format!("'{word}' is no governor and not 1ms to 10000ms"))?;
    Ok(Cpu::WakeUp(ms))
}

/// The parts of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskCase {
    /// The interface between machines and disks.
    pub aio: Aio,
    /// The amount of CPU.
    pub cpu: Cpu,
    /// The divisor of the machines' speed.
    pub slowness: u32,
}

impl DiskCase {
    /// Whether CPU is not scarce, so that KSM without a limit is a peer.
    pub(super) fn is_unlimited(&self) -> bool {
        self.cpu == Cpu::Governor(Governor::Full)
    }
}

impl fmt::Display for DiskCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = match self.aio {
            Aio::Threads => "pread",
            Aio::IoUring => "io_uring",
        };
        write!(f, "{interface}-{}", self.cpu)?;
        if self.slowness > 1 {
            write!(f, "-slow{}", self.slowness)?;
        }
        Ok(())
    }
}

impl FromStr for DiskCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<DiskCase> {
        parse(name).with_context(|| {
            format!(
                "case '{name}': not of the form INTERFACE-CPU[-slowN], as in pread-20ms, \
                 io_uring-low, pread-200ms-slow8"
            )
        })
    }
}

fn parse(name: &str) -> Result<DiskCase> {
    let mut words = name.split('-');
    let aio = match words.next().unwrap_or_default() {
        "pread" => Aio::Threads,
        "io_uring" => Aio::IoUring,
        other => bail!("no interface '{other}'"),
    };
    let word = words.next().context("no CPU")?;
    let cpu = cpu_named(word)?;
    let slowness = match words.next() {
        None => 1,
        Some(word) => {
            let times = word
                .strip_prefix("slow")
                .and_then(|times| times.parse().ok());
            let times = times.filter(|times| (2..=64).contains(times));
            times.with_context(|| format!("'{word}' is not slow2 to slow64"))?
        }
    };
    match words.next() {
        None => Ok(DiskCase { aio, cpu, slowness }),
        Some(other) => bail!("'{other}' means nothing here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_as_it_is_read() {
        for name in super::super::CASES {
            assert_eq!(name.parse::<DiskCase>().unwrap().to_string(), name);
        }
        let case: DiskCase = "io_uring-100ms-slow4".parse().unwrap();
        assert_eq!(case.to_string(), "io_uring-100ms-slow4");
        assert_eq!((case.cpu, case.slowness), (Cpu::WakeUp(100), 4));
        assert!("pread-full".parse::<DiskCase>().unwrap().is_unlimited());
    }

    #[test]
    fn what_is_no_case_is_named_in_the_error() {
        for (name, why) in [
            ("", "no interface ''"),
            ("mmap-20ms", "no interface 'mmap'"),
            ("pread", "no CPU"),
            ("pread-0ms", "'0ms'"),
            ("pread-fast", "'fast'"),
            ("pread-20ms-slow1", "'slow1'"),
            ("pread-20ms-fast2", "'fast2'"),
            ("pread-20ms-slow2-x", "'x'"),
        ] {
            let error = format!("{:#}", name.parse::<DiskCase>().unwrap_err());
            assert!(error.contains(&format!("'{name}'")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}

//! The cost of one page, measured without a daemon: calls into the module, timed here.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use uksm_linux::module::Device;
use uksm_policy::command::SpaceId;
use uksm_results::report::Measured;

/// CPU spent on some pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageCost {
    /// Time.
    pub cpu: Duration,
    /// Number of pages.
    pub pages: f64,
}

impl PageCost {
    /// This CPU time for this many pages.
    pub(super) fn new(cpu: Duration, pages: usize) -> PageCost {
        PageCost {
            cpu,
            pages: pages as f64,
        }
    }

    /// Microseconds of CPU a page.
    pub(super) fn per_page_us(self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.pages
    }
}

/// A cost as a variant of a result.
pub(super) fn measured(name: String, cost: PageCost, verified_pages: u64) -> Measured {
    println!("{name}: {:.3} us a page", cost.per_page_us());
    Measured {
        name,
        wall_seconds: cost.cpu.as_secs_f64(),
        cpu_seconds: cost.cpu.as_secs_f64(),
        verified_pages,
        figures: [("us_per_page".to_owned(), cost.per_page_us())].into(),
        ..Measured::default()
    }
}

/// Adds a process to the domain of a device.
pub(super) fn attach(device: &Device, pid: u32) -> Result<SpaceId> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pidfd = pidfd_open(raw.context("bad process id")?, PidfdFlags::empty())
        .with_context(|| format!("cannot open process {pid}"))?;
    Ok(device.attach(pidfd.as_fd())?.space)
}

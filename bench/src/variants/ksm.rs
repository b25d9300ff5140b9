//! In-kernel KSM as a system under test.
//!
//! # Problem
//! KSM is global and keeps state: `run=2` was seen to hang an emulated 6.12, a write to `run` waits
//! for the current batch, and trees still hold what died while ksmd was stopped.
//!
//! # Approach
//! Stop with `run=0`, use fresh processes for every variant, bounded batches, and let ksmd clean up
//! before the next one.
//!
//! # Source
//! Documentation/admin-guide/mm/ksm.rst.

pub(crate) use uksm_linux::ksm::sysfs::ScanRate;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use serde_json::{Map, Value};
use uksm_linux::ksm::sysfs::{Run, Sysfs};

use super::running_system::System;
use crate::measure::cpu::CpuClock;

/// Longest wait for ksmd to clean up.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// Time over which a missed share of CPU is compensated.
const CATCH_UP_SECONDS: f64 = 3.0;

/// The file with the limit of sharers of a frame.
const LIMIT: &str = "max_page_sharing";

/// Switches of KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KsmSwitch {
    /// Pages of zeros are merged with the kernel's own, instead of with each other; off as shipped.
    ZeroPages,
    /// Pages examined in vain are left out of scans; on as shipped, if the kernel has this.
    SmartScan,
}

impl KsmSwitch {
    fn file(self) -> &'static str {
        match self {
            KsmSwitch::ZeroPages => "use_zero_pages",
            KsmSwitch::SmartScan => "smart_scan",
        }
    }
}

/// A setting of KSM. Everything else stays at the kernel's default.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The scan rate of ksmd.
    pub rate: ScanRate,
    /// Let the scan-time advisor choose the batch.
    pub advisor: bool,
    /// Adjust the batch so that ksmd uses this share of a core.
    pub cpu_share: Option<f64>,
    /// Switches that are set while it runs.
    pub switches: Vec<(KsmSwitch, bool)>,
    /// The niceness of ksmd while it runs, if not its own, which is 5.
    pub nice: Option<i32>,
    /// Limit of sharers of a frame, `max_page_sharing`, if it is to be changed. It is not restored.
    pub sharers: Option<u64>,
}

impl Settings {
    /// A fixed rate.
    pub(crate) fn at(rate: ScanRate) -> Settings {
        Settings {
            rate,
            advisor: false,
            cpu_share: None,
            switches: Vec::new(),
            nice: None,
            sharers: None,
        }
    }

    /// The scan-time advisor with its defaults.
    pub(crate) fn advisor() -> Settings {
        Settings {
            advisor: true,
            ..Settings::at(ScanRate::SHIPPED)
        }
    }

    /// Whether this kernel has it.
    pub(crate) fn supported(&self) -> bool {
        Sysfs::open().is_ok_and(|sysfs| {
            let mut switches = self.switches.iter();
            (!self.advisor || sysfs.has_advisor())
                && switches.all(|(switch, _)| sysfs.read(switch.file()).is_ok())
        })
    }

    fn apply(&self, sysfs: &Sysfs) -> Result<()> {
        // The advisor refuses settings of its numbers.
        if sysfs.has_advisor() {
            sysfs.set_advisor(false)?;
        }
        sysfs.set_scan_rate(self.rate)?;
        if self.advisor {
            sysfs.set_advisor(true)?;
        }
        for &(switch, is_on) in &self.switches {
            sysfs.write(switch.file(), u64::from(is_on))?;
        }
        Ok(())
    }
}

/// KSM, running.
pub(crate) struct Ksm {
    sysfs: Sysfs,
    clock: CpuClock,
    start: Duration,
    settings: Settings,
    begin: Instant,
    adjusted: (Instant, Duration),
    batch: f64,
    running: bool,
    /// The former states of the switches.
    before: Vec<(KsmSwitch, u64)>,
    /// The thread whose niceness was set, and its former niceness.
    nice_before: Option<(Pid, i32)>,
}

impl Ksm {
    /// Starts ksmd with these settings.
    pub(crate) fn start(settings: &Settings) -> Result<Ksm> {
        let sysfs = Sysfs::open()?;
        let mut before = Vec::new();
        for &(switch, _) in &settings.switches {
            before.push((switch, sysfs.read(switch.file())?));
        }
        settings.apply(&sysfs)?;
        // The kernel takes another limit only while no page is merged: here, but not at the end.
        if let Some(sharers) = settings.sharers {
            sysfs.write(LIMIT, sharers)?;
        }
        let thread = sysfs.thread()?;
        let nice_before = settings.nice.map(|nice| set_nice(thread, nice));
        let nice_before = nice_before.transpose().context("niceness of ksmd")?;
        let clock = CpuClock::of(thread)?;
        let start = clock.now()?;
        sysfs.run(Run::Start)?;
        Ok(Ksm {
            sysfs,
            clock,
            start,
            settings: settings.clone(),
            begin: Instant::now(),
            adjusted: (Instant::now(), start),
            batch: settings.rate.pages_to_scan as f64,
            running: true,
            before,
            nice_before,
        })
    }
}

/// Sets the niceness of a thread; returns the thread with its former niceness.
fn set_nice(thread: u32, nice: i32) -> Result<(Pid, i32)> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let pid = pid.context("a thread has a number above 0")?;
    let before = getpriority_process(Some(pid))?;
    setpriority_process(Some(pid), nice)?;
    Ok((pid, before))
}

impl System for Ksm {
    fn cpu(&self) -> Result<Duration> {
        Ok(self.clock.now()?.saturating_sub(self.start))
    }

    fn adjust(&mut self) -> Result<()> {
        let Some(share) = self.settings.cpu_share else {
            return Ok(());
        };
        let (at, used) = self.adjusted;
        let wall = at.elapsed().as_secs_f64();
        if wall < 0.4 {
            return Ok(());
        }
        let now = self.clock.now()?;
        let is = (now.saturating_sub(used).as_secs_f64() / wall).max(share / 100.0);
        // Any excess or shortfall so far is compensated within a few seconds.
        let total = now.saturating_sub(self.start).as_secs_f64();
        let owed = share * self.begin.elapsed().as_secs_f64() - total;
        let aim = (share + owed / CATCH_UP_SECONDS).clamp(share / 4.0, share * 2.0);
        // Damped, so that a batch of cheap pages does not make the next one huge.
        self.batch = (self.batch * (aim / is).clamp(0.5, 2.0)).clamp(1.0, 100_000.0);
        self.adjusted = (Instant::now(), now);
        let pages = format!("{:.0}", self.batch)
            .parse()
            .context("batch of ksmd")?;
        Ok(self.sysfs.write("pages_to_scan", pages)?)
    }

    fn report(&self) -> Option<Value> {
        let names = [
            "pages_shared",
            "pages_sharing",
            "pages_unshared",
            "pages_volatile",
            "pages_scanned",
            "pages_skipped",
            "full_scans",
            "general_profit",
            "ksm_zero_pages",
            "pages_to_scan",
            "sleep_millisecs",
            "smart_scan",
            "use_zero_pages",
            LIMIT,
            "merge_across_nodes",
        ];
        // A profit can be negative.
        let number = |name| self.sysfs.text(name).ok()?.parse::<i64>().ok();
        let counters: Map<String, Value> = names
            .iter()
            .filter_map(|&name| Some((name.to_owned(), Value::from(number(name)?))))
            .collect();
        Some(Value::Object(counters))
    }

    fn stop(&mut self) -> Result<()> {
        self.running = false;
        self.sysfs.run(Run::Stop)?;
        for (switch, value) in self.before.drain(..) {
            self.sysfs.write(switch.file(), value)?;
        }
        if let Some((pid, nice)) = self.nice_before.take() {
            setpriority_process(Some(pid), nice).context("niceness of ksmd")?;
        }
        Ok(())
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        if self.running && self.stop().is_err() {
            eprintln!("uksm-bench: ksmd could not be stopped");
        }
    }
}

/// Full scans done so far.
pub(crate) fn full_scans() -> Result<u64> {
    Ok(Sysfs::open()?.counters()?.full_scans)
}

/// Pages that ksmd has examined, if this kernel counts them.
pub(crate) fn scanned_pages() -> Result<Option<u64>> {
    Ok(Sysfs::open()?.read("pages_scanned").ok())
}

/// Sets whether pages examined in vain are left out of scans, if this kernel can do so.
pub(crate) fn smart_scan(on: bool) -> Result<()> {
    let sysfs = Sysfs::open()?;
    if sysfs.read("smart_scan").is_ok() {
        sysfs.write("smart_scan", u64::from(on))?;
    }
    Ok(())
}

/// After the workload's processes have ended: lets ksmd drop its state of them, so that the next
/// variant does not pay for it, and leaves it stopped.
pub(crate) fn settle() -> Result<()> {
    let Ok(sysfs) = Sysfs::open() else {
        return Ok(()); // a kernel without KSM
    };
    let clock = CpuClock::of(sysfs.thread()?)?;
    Settings::at(ScanRate::CLEAN_UP).apply(&sysfs)?;
    sysfs.run(Run::Start)?;
    let begin = Instant::now();
    let mut used = clock.now()?;
    while begin.elapsed() < SETTLE_LIMIT {
        std::thread::sleep(Duration::from_millis(200));
        let now = clock.now()?;
        if now.saturating_sub(used) < Duration::from_millis(2) {
            break;
        }
        used = now;
    }
    Ok(sysfs.run(Run::Stop)?)
}

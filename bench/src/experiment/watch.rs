//! Looks at a workload and the system that merges it, again and again.
//!
//! A look counts the workload's page tables, which takes a while, so CPU and time are read before and
//! after the count, and the middle is used.

use crate::contents::PAGE;
use crate::measure::clock::Clock;
use crate::measure::pagemap::{Count, Counter};
use crate::measure::timeline::{Look, Timeline};
use crate::system::System;
use crate::workload::{Spec, mib};
use anyhow::Result;
use std::time::{Duration, Instant};

/// At least this long between two looks.
const fn interval(clock: Clock) -> Duration {
    match clock {
        // What looking costs a machine that is measured by time is felt by all that runs there.
        Clock::Time => Duration::from_millis(100),
        // Where instructions are counted, those of others are not the system's, and the moment
        // that is interpolated between two looks lies closer to both.
        Clock::Instructions => Duration::from_millis(20),
    }
}

/// A workload that is watched.
pub(crate) struct Watch<'a> {
    counter: Counter,
    pids: &'a [u32],
    before: Count,
    interval: Duration,
    begin: Instant,
    /// All looks so far.
    pub looks: Timeline,
    /// Most memory of the daemon so far.
    pub own_mib: f64,
}

impl<'a> Watch<'a> {
    /// Counts what is shared before anything starts.
    pub(crate) fn new(pids: &'a [u32], clock: Clock) -> Result<Watch<'a>> {
        Watch::by(Counter::new()?, pids, clock)
    }

    /// The same, of the parts of these processes alone: of little that can be merged, the few pages
    /// that any two processes have in common are a share.
    pub(crate) fn of_parts(specs: &[Spec], pids: &'a [u32], clock: Clock) -> Result<Watch<'a>> {
        let parts = specs.iter().flat_map(|spec| &spec.parts);
        let shortest = parts.map(|part| part.pages).min().unwrap_or(0);
        Watch::by(Counter::of_long((shortest * PAGE) as u64)?, pids, clock)
    }

    fn by(mut counter: Counter, pids: &'a [u32], clock: Clock) -> Result<Watch<'a>> {
        let before = counter.count(pids)?;
        let looks = Timeline::default();
        Ok(Watch {
            counter,
            pids,
            before,
            interval: interval(clock),
            begin: Instant::now(),
            looks,
            own_mib: 0.0,
        })
    }

    /// Looks no more often than this.
    pub(crate) fn every(mut self, interval: Duration) -> Watch<'a> {
        self.interval = self.interval.max(interval);
        self
    }

    /// The clock starts.
    pub(crate) fn begin(&mut self) {
        self.begin = Instant::now();
        self.looks.0.push(Look {
            seconds: 0.0,
            cpu_seconds: 0.0,
            saved_mib: 0.0,
            mapped_mib: mib(self.before.mapped),
        });
    }

    /// Looks, after waiting so long that looking takes a small part of one core.
    pub(crate) fn look(&mut self, system: &mut dyn System) -> Result<Look> {
        system.adjust()?;
        let (early, early_cpu) = (self.begin.elapsed(), system.cpu()?);
        let count = self.counter.count(self.pids)?;
        let (late, late_cpu) = (self.begin.elapsed(), system.cpu()?);
        let look = Look {
            seconds: (early + late).as_secs_f64() / 2.0,
            cpu_seconds: (early_cpu + late_cpu).as_secs_f64() / 2.0,
            saved_mib: mib(count.saved()) - mib(self.before.saved()),
            mapped_mib: mib(count.mapped),
        };
        self.looks.0.push(look);
        self.own_mib = self.own_mib.max(system.own_mib());
        std::thread::sleep(self.interval.max((late - early) * 2));
        Ok(look)
    }

    /// Seconds since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }
}

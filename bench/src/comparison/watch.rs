//! Repeated looks at a workload and the system that merges it.
//!
//! A look counts the workload's page tables, which takes a while, so CPU and time are read before
//! and after the count, and the middle is used. The first look that sees enough merged closes the
//! window whose instructions are counted by function, if there is one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use uksm_results::clock::Clock;
use uksm_results::report::Window;
use uksm_results::timeline::{Look, Timeline};

use crate::contents::PAGE;
use crate::measure::duplicates::equal_pages;
use crate::measure::machine::MachineCounters;
use crate::measure::pagemap::{Count, Counter, mappings_of};
use crate::measure::window::OpenWindow;
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::System;
use crate::workload::mapping::CAPTURED;
use crate::workload::{Spec, parts_with_partners};

/// Least time between two looks.
const fn interval(clock: Clock) -> Duration {
    match clock {
        // On a machine that is measured by time, looking slows all processes down.
        Clock::Time => Duration::from_millis(100),
        // Where instructions are counted, those of others are not the system's, and the moment
        // interpolated between two looks lies closer to both.
        Clock::Instructions => Duration::from_millis(5),
    }
}

/// A look of a run that began then, at what a count has just seen.
pub(crate) fn look_now(begin: Instant, system: &dyn System, seen: &Count) -> Result<Look> {
    Ok(Look {
        seconds: begin.elapsed().as_secs_f64(),
        cpu_seconds: system.cpu()?.as_secs_f64(),
        saved_mib: mib(seen.saved()),
        mapped_mib: mib(seen.mapped),
    })
}

/// The parts of these processes that have equal pages by plan, half-open byte ranges by process.
fn ranges_with_partners(specs: &[Spec], pids: &[u32]) -> Result<BTreeMap<u32, Vec<(u64, u64)>>> {
    let partners = parts_with_partners(specs);
    let mut ranges = BTreeMap::new();
    for ((spec, partners), &pid) in specs.iter().zip(partners).zip(pids) {
        let lengths = spec.parts.iter().map(|part| (part.pages * PAGE) as u64);
        let found = mappings_of(pid, &lengths.collect::<Vec<_>>())?;
        let found = found.into_iter().zip(partners);
        let found = found.filter_map(|(range, has_partners)| has_partners.then_some(range));
        ranges.insert(pid, found.collect());
    }
    Ok(ranges)
}

/// A workload under observation.
pub(crate) struct Watch<'a> {
    counter: Counter,
    pids: &'a [u32],
    before: Count,
    /// Pages that are mapped and not counted.
    others: usize,
    interval: Duration,
    begin: Instant,
    machine: MachineCounters,
    profile: bool,
    open: Option<OpenWindow>,
    closed: Option<Window>,
    /// All looks so far.
    pub looks: Timeline,
    /// Largest memory of the daemon so far.
    pub own_mib: f64,
}

impl<'a> Watch<'a> {
    /// Counts the shared pages before anything starts.
    pub(crate) fn new(pids: &'a [u32], setup: &Setup) -> Result<Watch<'a>> {
        Watch::by(Counter::new()?, pids, setup)
    }

    /// The same, for the pages that are mergeable by plan alone. If little is mergeable, the few
    /// pages common to any two processes are a notable share; and examining pages that cannot be
    /// merged takes so long that the mark is passed meanwhile.
    pub(crate) fn of_parts(specs: &[Spec], pids: &'a [u32], setup: &Setup) -> Result<Watch<'a>> {
        let counter = if specs.iter().any(Spec::is_captured) {
            // Few of the pages are equal to others, and they never change: those are counted.
            let equal = equal_pages(pids)?;
            let places = equal.places().filter(|(_, at)| CAPTURED.contains(at));
            Counter::of_places(places.collect())?
        } else {
            Counter::of_ranges(ranges_with_partners(specs, pids)?)?
        };
        let mut watch = Watch::by(counter, pids, setup)?;
        watch.others = Counter::new()?.count(pids)?.mapped - watch.before.mapped;
        Ok(watch)
    }

    /// The same, for the mappings of these processes with at least `bytes` bytes.
    pub(crate) fn of_long(bytes: u64, pids: &'a [u32], setup: &Setup) -> Result<Watch<'a>> {
        Watch::by(Counter::of_long(bytes)?, pids, setup)
    }

    fn by(mut counter: Counter, pids: &'a [u32], setup: &Setup) -> Result<Watch<'a>> {
        let before = counter.count(pids)?;
        let looks = Timeline::default();
        Ok(Watch {
            counter,
            pids,
            before,
            others: 0,
            interval: interval(setup.clock),
            begin: Instant::now(),
            machine: MachineCounters::now()?,
            profile: setup.profile,
            open: None,
            closed: None,
            looks,
            own_mib: 0.0,
        })
    }

    /// Looks at most once in this time.
    pub(crate) fn every(mut self, interval: Duration) -> Watch<'a> {
        self.interval = self.interval.max(interval);
        self
    }

    /// Opens a window until 95 % of this is saved, if windows are wanted. `cpu` is the system's CPU
    /// so far.
    pub(crate) fn open_window(&mut self, mergeable_mib: f64, cpu: Duration) {
        if self.profile {
            self.open = Some(OpenWindow::open(0.95 * mergeable_mib, cpu));
        }
    }

    /// The window, closed now if it is still open.
    pub(crate) fn close_window(&mut self, system: &dyn System) -> Result<Option<Window>> {
        if let Some(open) = self.open.take() {
            let saved_mib = self.looks.last().map_or(0.0, |look| look.saved_mib);
            self.closed = Some(open.close(system.cpu()?, saved_mib));
        }
        Ok(self.closed.take())
    }

    /// Starts the clock.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.machine = MachineCounters::now()?;
        self.begin = Instant::now();
        self.looks.0.push(Look {
            seconds: 0.0,
            cpu_seconds: 0.0,
            saved_mib: 0.0,
            mapped_mib: mib(self.before.mapped + self.others),
        });
        Ok(())
    }

    /// The figures of the whole machine since then, and the system's own figures of its CPU.
    pub(crate) fn figures(&self, system: &dyn System) -> Result<BTreeMap<String, f64>> {
        let mut figures = MachineCounters::now()?.since(&self.machine);
        figures.extend(system.figures());
        Ok(figures)
    }

    /// Looks, after a wait that keeps the looks' share of one core small.
    pub(crate) fn look(&mut self, system: &mut dyn System) -> Result<Look> {
        system.adjust()?;
        let (early, early_cpu) = (self.begin.elapsed(), system.cpu()?);
        let count = self.counter.count(self.pids)?;
        let (late, late_cpu) = (self.begin.elapsed(), system.cpu()?);
        let look = Look {
            seconds: (early + late).as_secs_f64() / 2.0,
            cpu_seconds: (early_cpu + late_cpu).as_secs_f64() / 2.0,
            saved_mib: mib(count.saved()) - mib(self.before.saved()),
            mapped_mib: mib(count.mapped + self.others),
        };
        if let Some(open) = self.open.take_if(|open| open.ends_with(look.saved_mib)) {
            self.closed = Some(open.close(late_cpu, look.saved_mib));
        }
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

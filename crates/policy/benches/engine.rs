//! What the engine costs a sampled page, altogether, on a host of 16 million pages.
//!
//! `cargo bench -p uksm-policy --bench engine`
//!
//! # Problem
//! The claim is at most 200 ns a sampled page with 16 million pages indexed: choosing pages,
//! sorting runs, looking up both indexes, counting hits, promoting regions. That is measured at
//! the engine's own boundary, with answers made beforehand.
//!
//! # Approach
//! 64 GiB of mappings in 16 processes, every page different. *Scattered*: the bottom level, one
//! page here and one there. *Climbing*: regions are promoted by hits that turn out to be stale, so
//! that all levels work and the top sweeps in blocks. The time of [`Engine::step`] is summed as
//! processor time of the thread and divided by the pages answered. *Merging*: two processes of the
//! same pages, of which every pair is merged into a frame of its own; divided by the pages saved.
//! *Storm*: hints of I/O come faster than from any machine, each for another page; the time of the
//! steps that take them in, divided by their number. The benchmark reports a cost of 100 ns for
//! each hint, the time by which a hint may delay scanning.
//!
//! # Units
//! Nanoseconds a page, or a hint. `-- merging` and `-- storm` measure that alone. Without `--bench`
//! (as `cargo test` runs it) the same is done once with few pages, and nothing is claimed.

use rustix::time::{ClockId, clock_gettime};
use uksm_policy::command::{
    Command, EventSource, FilePlace, FoldBatch, FoldEntry, FoldKind, FoldOutcome, Hint, HintSource,
    Mapping, Observation, PAGE_SIZE, Page, PageFlags, PageState, Reason, Run, SpaceArrival,
    SpaceId, SpaceSize, Spent, Status,
};
use uksm_policy::mix::mix;
use uksm_policy::params::Governor;
use uksm_policy::{Engine, Params};

const SPACES: u64 = 16;
const BOUND: f64 = 200.0;
/// Hints taken at a time, as the daemon takes them; the reported cost of one; and its highest cost
/// with the choice of the pages that are followed next.
const TAKEN: u64 = 4096;
const HINT_COST: u64 = 100;
const HINT_BOUND: f64 = 200.0;
/// All that may be kept of hints.
const MAX_BYTES: u64 = 12 << 20;
const SECOND: u64 = 1_000_000_000;

/// Processor time of this thread.
fn processor_nanos() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap() * SECOND + u64::try_from(now.tv_nsec).unwrap()
}

/// Answers for a host of which every page is different, unless `alike`.
struct Host {
    spaces: u64,
    pages: u64,
    alike: bool,
    sampled: u64,
    /// Sets are merged, and found stale otherwise.
    merges: bool,
    /// Hints never end.
    storms: bool,
    hints: u64,
    frames: u32,
    saved: u64,
}

impl Host {
    fn answer(&mut self, command: &Command) -> Observation {
        match command {
            Command::ListProcesses => Observation::Processes {
                arrived: vec![],
                left: vec![],
                resized: vec![],
                more: false,
                event_source: EventSource::Processes,
            },
            Command::MeasureSpaces(spaces) => {
                let size = |&space: &SpaceId| SpaceSize {
                    space,
                    gone: false,
                    mappings: 1,
                    pages: self.pages / self.spaces,
                    anon_pages: self.pages / self.spaces,
                };
                Observation::Sizes(spaces.iter().map(size).collect())
            }
            Command::ListMappings(space) => Observation::Mappings {
                space: *space,
                mappings: vec![Mapping {
                    start: 1 << 40,
                    end: (1 << 40) + self.pages / self.spaces * PAGE_SIZE,
                    kind: 0,
                }],
                age: 0,
            },
            Command::Sample { runs, .. } => {
                let pages: Vec<Page> = runs.iter().flat_map(|run| self.read(run)).collect();
                self.sampled += pages.len() as u64;
                Observation::Sampled(pages)
            }
            Command::Fold(batch) if self.merges => Observation::Folded(self.merge(batch)),
            Command::Fold(batch) => {
                let outcome = FoldOutcome {
                    status: Status::Differed,
                    reason: Reason::Stale,
                    frame: 0,
                };
                Observation::Folded(vec![outcome; batch.entries.len()])
            }
            Command::Frames { .. } => Observation::Frames {
                frames: vec![],
                cursor: 0,
            },
            &Command::GiveBack { end, .. } => Observation::GivenBack {
                next: end,
                pages: 0,
                stopped: false,
            },
            Command::TakeHints => Observation::Hints {
                hints: if self.storms { self.storm() } else { vec![] },
                lost: 0,
                lost_of: vec![],
                grown: vec![],
                more: self.storms,
            },
            Command::Sleep { .. } => Observation::Woke,
        }
    }

    /// As many hints as are taken at a time.
    fn storm(&mut self) -> Vec<Hint> {
        let each = self.pages / self.spaces;
        let hint = |number| Hint {
            start: (1 << 40) + mix(number) % each * PAGE_SIZE,
            length: PAGE_SIZE,
            space: SpaceId(u32::try_from(1 + number % self.spaces).unwrap()),
            source: HintSource::Read,
            place: Some(FilePlace {
                file_size: 1 << 40,
                offset: mix(!number) % each * PAGE_SIZE,
            }),
        };
        let hints = (self.hints..self.hints + TAKEN).map(hint).collect();
        self.hints += TAKEN;
        hints
    }

    /// Every set gets a frame. Nothing but pairs is expected, and no page comes twice.
    fn merge(&mut self, batch: &FoldBatch) -> Vec<FoldOutcome> {
        let first = self.frames + 1;
        let frame_of = |entry: &FoldEntry| match entry.kind {
            FoldKind::Set(set) => first + u32::from(set),
            FoldKind::Frame(frame) => frame.0,
            FoldKind::Zero => 0,
        };
        let frames: Vec<u32> = batch.entries.iter().map(frame_of).collect();
        let before = self.frames;
        self.frames = frames.iter().copied().fold(before, u32::max);
        self.saved += frames.len() as u64 - u64::from(self.frames - before);
        let merged = |frame| FoldOutcome {
            status: Status::Merged,
            reason: Reason::None,
            frame,
        };
        frames.into_iter().map(merged).collect()
    }

    fn read(&self, run: &Run) -> impl Iterator<Item = Page> {
        let (alike, space) = (self.alike, u64::from(run.space.0) << 48);
        (0..u64::from(run.count)).map(move |page| {
            let address = run.start + page * PAGE_SIZE;
            Page {
                hash: if alike {
                    mix(address)
                } else {
                    mix(address ^ space)
                },
                frame: 0,
                state: PageState::Anon,
                flags: PageFlags(0),
            }
        })
    }
}

struct Bench {
    engine: Engine,
    host: Host,
    now: u64,
    next: Observation,
    cost: u64,
    /// Time spent in steps.
    stepping: u64,
    /// And in those that took in hints.
    hinting: u64,
}

impl Bench {
    fn new(spaces: u64, pages: u64) -> Bench {
        let params = Params {
            cpu: 0.95,
            bottom_cpu: 0.1,
            strength: Some(8),
            v_cow: None,
            ..Params::governor(Governor::Full)
        };
        let mut bench = Bench {
            engine: Engine::new(params, 1).unwrap(),
            host: Host {
                spaces,
                pages,
                alike: false,
                sampled: 0,
                merges: false,
                storms: false,
                hints: 0,
                frames: 0,
                saved: 0,
            },
            now: 1,
            next: Observation::Started,
            cost: 0,
            stepping: 0,
            hinting: 0,
        };
        // The first process list is answered by hand, so that there are processes.
        let mut is_listed = false;
        while !is_listed {
            let command = bench.step();
            if command == Command::ListProcesses {
                is_listed = true;
                let arrival = |space| SpaceArrival {
                    space: SpaceId(u32::try_from(space).unwrap()),
                    kind: 0,
                    age: 100 * SECOND,
                };
                bench.next = Observation::Processes {
                    arrived: (1..=spaces).map(arrival).collect(),
                    left: vec![],
                    resized: vec![],
                    more: false,
                    event_source: EventSource::Processes,
                };
            }
        }
        bench
    }

    fn step(&mut self) -> Command {
        let observation = std::mem::replace(&mut self.next, Observation::Started);
        self.cost = match &observation {
            Observation::Sampled(pages) => pages.len() as u64 * 500,
            Observation::Hints { hints, .. } => hints.len() as u64 * HINT_COST,
            _ => 500,
        };
        let is_hints = matches!(observation, Observation::Hints { .. });
        self.now += self.cost;
        let spent = Spent {
            step: 0,
            call: self.cost,
        };
        let begun = processor_nanos();
        let command = self.engine.step(self.now, spent, observation);
        let taken = processor_nanos() - begun;
        self.stepping += taken;
        self.hinting += if is_hints { taken } else { 0 };
        if let Command::Sleep { until, .. } = command {
            self.now = until;
        }
        self.next = self.host.answer(&command);
        command
    }

    /// Steps until `done`; nanoseconds a sampled page.
    fn measure(&mut self, mut done: impl FnMut(&Bench) -> bool) -> f64 {
        let (stepping, sampled) = (self.stepping, self.host.sampled);
        while !done(self) {
            self.step();
        }
        (self.stepping - stepping) as f64 / (self.host.sampled - sampled).max(1) as f64
    }
}

/// Two processes of the same pages, to the last 5 %.
fn merging(pages: u64) {
    let mut bench = Bench::new(2, pages);
    bench.host.alike = true;
    bench.host.merges = true;
    while bench.host.saved < pages / 2 * 95 / 100 {
        bench.step();
    }
    let each = bench.stepping as f64 / bench.host.saved as f64;
    println!(
        "merging            {each:6.1} ns a saved page, {:.2} sampled for it",
        bench.host.sampled as f64 / bench.host.saved as f64
    );
}

/// Twenty seconds, of which the last ten are a storm of hints, and how many pages are scanned in
/// these.
fn twenty_seconds(pages: u64, storms: bool) -> (Bench, u64) {
    let mut bench = Bench::new(SPACES, pages);
    let scanned = |bench: &Bench| bench.engine.report().sampling.pages;
    while bench.now < 10 * SECOND {
        bench.step();
    }
    let before = scanned(&bench);
    bench.host.storms = storms;
    while bench.now < 20 * SECOND {
        bench.step();
    }
    let after = scanned(&bench);
    (bench, after - before)
}

/// A storm of hints, and what it leaves to scanning.
fn storm(pages: u64, claims: bool) {
    let (_, calm) = twenty_seconds(pages, false);
    let (bench, stormed) = twenty_seconds(pages, true);
    let hints = bench.engine.report().hints;
    let each = bench.hinting as f64 / bench.host.hints as f64;
    println!(
        "storm              {each:6.1} ns a hint, {} taken, {} KiB kept of them",
        bench.host.hints,
        hints.hint_bytes >> 10
    );
    println!(
        "                   {stormed} pages scanned in 10 s, {calm} without hints ({:.0} %)",
        100.0 * stormed as f64 / calm as f64
    );
    assert!(hints.hint_bytes <= MAX_BYTES, "{hints:?}");
    let waiting = hints.waiting_pages + hints.aged_pages + hints.again_pages;
    let passed = hints.useless_pages + hints.left_out_pages + hints.sampled_pages;
    assert!(waiting + passed + TAKEN >= bench.host.hints, "{hints:?}");
    assert!(10 * stormed >= 8 * calm, "scanning is starved: {hints:?}");
    if claims {
        assert!(each <= HINT_BOUND, "{each:.1} ns a hint");
    }
}

fn main() {
    let claims = std::env::args().any(|arg| arg == "--bench");
    let pages: u64 = if claims { 1 << 24 } else { 1 << 16 };
    let is_asked = |name: &str| std::env::args().any(|arg| arg == name);
    if !is_asked("storm") {
        merging(pages / 16);
    }
    if !is_asked("merging") {
        storm(1 << 20, claims);
    }
    if is_asked("merging") || is_asked("storm") {
        return;
    }
    let mut bench = Bench::new(SPACES, pages);
    let indexed = |bench: &Bench| bench.engine.report().index.index_entries;
    let mut filled = bench.host.sampled;
    let filling = bench.measure(|bench| bench.host.sampled >= filled + pages * 2);
    println!(
        "filling            {filling:6.1} ns a page, {} indexed",
        indexed(&bench)
    );
    filled = bench.host.sampled;
    let scattered = bench.measure(|bench| bench.host.sampled >= filled + pages / 8);
    let in_index = indexed(&bench);
    println!("scattered          {scattered:6.1} ns a page, {in_index} indexed");
    // Now every page has a twin in each process: regions rise.
    bench.host.alike = true;
    let top = |bench: &Bench| bench.engine.report().levels.last().map_or(0, |l| l.regions);
    let mut looks = 0u32;
    bench.measure(|bench| {
        looks += 1;
        looks.is_multiple_of(64) && top(bench) > 64
    });
    bench.host.alike = false;
    let swept_before = bench.engine.report().levels.last().map_or(0, |l| l.sampled);
    filled = bench.host.sampled;
    let climbing = bench.measure(|bench| bench.host.sampled >= filled + pages / 64);
    let swept_pages = bench.engine.report().levels.last().map_or(0, |l| l.sampled) - swept_before;
    let all = bench.host.sampled - filled;
    println!(
        "climbing           {climbing:6.1} ns a page, {} indexed, {:.0} % of them swept",
        indexed(&bench),
        100.0 * swept_pages as f64 / all as f64
    );
    if claims {
        assert!(in_index > 13_000_000, "{in_index} pages are indexed");
        let worst = scattered.max(climbing);
        assert!(
            worst <= BOUND,
            "{worst:.1} ns a sampled page, more than {BOUND}"
        );
    }
}

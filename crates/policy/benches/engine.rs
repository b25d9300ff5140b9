//! What the engine costs a sampled page, all told, on a host of 16 million pages.
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
//!
//! # Units
//! Nanoseconds a page. `-- merging` measures that alone. Without `--bench` (as `cargo test` runs
//! it) the same is done once with few pages, and nothing is claimed.

use rustix::time::{ClockId, clock_gettime};
use uksm_policy::command::{
    Command, FoldBatch, FoldEntry, FoldKind, FoldOutcome, Mapping, Observation, PAGE_SIZE, Page,
    PageFlags, PageState, Reason, Run, SpaceArrival, SpaceId, SpaceSize, Spent, Status,
};
use uksm_policy::hash::mix;
use uksm_policy::params::Governor;
use uksm_policy::{Engine, Params};

const SPACES: u64 = 16;
const BOUND: f64 = 200.0;
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
    frames: u32,
    saved: u64,
}

impl Host {
    fn answer(&mut self, command: &Command) -> Observation {
        match command {
            Command::ListProcesses => Observation::Processes {
                arrived: vec![],
                left: vec![],
                more: false,
                told: true,
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
            Command::TakeHints => Observation::Hints {
                hints: vec![],
                lost: 0,
                more: false,
            },
            Command::Sleep { .. } => Observation::Woke,
        }
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
                frames: 0,
                saved: 0,
            },
            now: 1,
            next: Observation::Started,
            cost: 0,
            stepping: 0,
        };
        // The first process list is answered by hand, so that there are processes.
        let mut told = false;
        while !told {
            let command = bench.step();
            if command == Command::ListProcesses {
                told = true;
                let arrival = |space| SpaceArrival {
                    space: SpaceId(u32::try_from(space).unwrap()),
                    kind: 0,
                    age: 100 * SECOND,
                };
                bench.next = Observation::Processes {
                    arrived: (1..=spaces).map(arrival).collect(),
                    left: vec![],
                    more: false,
                    told: true,
                };
            }
        }
        bench
    }

    fn step(&mut self) -> Command {
        let observation = std::mem::replace(&mut self.next, Observation::Started);
        let pages = match &observation {
            Observation::Sampled(pages) => pages.len() as u64,
            _ => 1,
        };
        self.cost = pages * 500;
        self.now += self.cost;
        let spent = Spent {
            step: 0,
            call: self.cost,
        };
        let begun = processor_nanos();
        let command = self.engine.step(self.now, spent, observation);
        self.stepping += processor_nanos() - begun;
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

fn main() {
    let claims = std::env::args().any(|arg| arg == "--bench");
    let pages: u64 = if claims { 1 << 24 } else { 1 << 16 };
    merging(pages / 16);
    if std::env::args().any(|arg| arg == "merging") {
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

//! A crowd of idle spaces, and newcomers among them: the time until these are listed, and the cost
//! of the crowd.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::command::{
    EventSource, FoldOutcome, Mapping, PAGE_SIZE, Page, PageFlags, PageState, Reason, Run,
    SpaceArrival, SpaceId, SpaceSize, Status,
};
use crate::mix::mix;
use crate::params::{Governor, MILLISECOND as MS};

const MICROSECOND: Nanos = 1000;

/// A host of spaces with one small mapping each, and the costs of its answers in an emulated guest.
struct Crowd {
    engine: Engine,
    now: Nanos,
    event_source: EventSource,
    /// Living spaces, with the pages of their mapping.
    spaces: BTreeMap<SpaceId, u64>,
    /// The arrivals of the next process list.
    arrived: Vec<SpaceArrival>,
    left: Vec<SpaceId>,
    resized: Vec<SpaceId>,
    next: u32,
    /// Spaces whose mappings were listed, and the number of lists.
    listed: BTreeSet<SpaceId>,
    lists: u64,
    steps: u64,
    used: Nanos,
    answer: Option<(Observation, Spent)>,
}

impl Crowd {
    fn new(governor: Governor, event_source: EventSource, spaces: u32) -> Crowd {
        let mut crowd = Crowd {
            engine: Engine::new(Params::governor(governor), 7).unwrap(),
            now: 0,
            event_source,
            spaces: BTreeMap::new(),
            arrived: vec![],
            left: vec![],
            resized: vec![],
            next: 1,
            listed: BTreeSet::new(),
            lists: 0,
            steps: 0,
            used: 0,
            answer: Some((Observation::Started, Spent::default())),
        };
        for _ in 0..spaces {
            let _idle = crowd.start(60 * SECOND, 4);
        }
        crowd
    }

    /// A process starts.
    fn start(&mut self, age: Nanos, pages: u64) -> SpaceId {
        let space = SpaceId(self.next);
        self.next += 1;
        self.spaces.insert(space, pages);
        self.arrived.push(SpaceArrival {
            space,
            kind: 0,
            age,
        });
        space
    }

    /// A process ends.
    fn end(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
        let unknown = self.arrived.len();
        self.arrived.retain(|arrival| arrival.space != space);
        if self.arrived.len() == unknown {
            self.left.push(space);
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        let (mut observation, spent) = self.answer.take().expect("there is always an answer");
        let has_news =
            !self.arrived.is_empty() || !self.left.is_empty() || !self.resized.is_empty();
        if self.event_source != EventSource::Nothing && has_news && observation == Observation::Woke
        {
            observation = Observation::EventsArrived;
        }
        let command = self.engine.step(self.now, spent, observation);
        if let Command::Sleep { until, .. } = command {
            self.now = until;
        }
        let (observation, call) = self.perform(&command);
        let spent = Spent {
            step: 5 * MICROSECOND,
            call,
        };
        self.now += spent.step + spent.call;
        self.used += spent.step + spent.call;
        self.steps += 1;
        self.answer = Some((observation, spent));
    }

    fn perform(&mut self, command: &Command) -> (Observation, Nanos) {
        match command {
            Command::TakeHints => {
                let observation = Observation::Hints {
                    hints: vec![],
                    lost: 0,
                    lost_of: vec![],
                    grown: vec![],
                    more: false,
                };
                (observation, MICROSECOND)
            }
            Command::ListProcesses => {
                let news = (self.arrived.len() + self.left.len()) as u64;
                // A machine that polls reads the names of all processes.
                let search = if self.event_source == EventSource::Nothing {
                    self.spaces.len() as u64
                } else {
                    0
                };
                let observation = Observation::Processes {
                    arrived: std::mem::take(&mut self.arrived),
                    left: std::mem::take(&mut self.left),
                    resized: std::mem::take(&mut self.resized),
                    more: false,
                    event_source: self.event_source,
                };
                let cost = 30 * MICROSECOND + 200 * MICROSECOND * news + 2 * MICROSECOND * search;
                (observation, cost)
            }
            Command::MeasureSpaces(spaces) => {
                let size = |&space: &SpaceId| SpaceSize {
                    space,
                    gone: !self.spaces.contains_key(&space),
                    mappings: 1,
                    pages: self.spaces.get(&space).copied().unwrap_or(0),
                    anon_pages: self.spaces.get(&space).copied().unwrap_or(0),
                };
                let sizes = spaces.iter().map(size).collect();
                let cost = 20 * MICROSECOND + 150 * spaces.len() as u64;
                (Observation::Sizes(sizes), cost)
            }
            &Command::ListMappings(space) => {
                self.listed.insert(space);
                self.lists += 1;
                let mapping = |&pages: &u64| Mapping {
                    start: 1 << 30,
                    end: (1 << 30) + pages * PAGE_SIZE,
                    kind: 0,
                };
                let observation = Observation::Mappings {
                    space,
                    mappings: self
                        .spaces
                        .get(&space)
                        .iter()
                        .map(|pages| mapping(pages))
                        .collect(),
                    age: 0,
                };
                (observation, 300 * MICROSECOND)
            }
            Command::Sample { runs, .. } => {
                let pages: Vec<Page> = runs.iter().flat_map(|run| self.read(run)).collect();
                let cost = 50 * MICROSECOND + MICROSECOND * pages.len() as u64;
                (Observation::Sampled(pages), cost)
            }
            Command::Fold(batch) => {
                let stale = FoldOutcome {
                    status: Status::Differed,
                    reason: Reason::Stale,
                    frame: 0,
                };
                let outcomes = vec![stale; batch.entries.len()];
                (Observation::Folded(outcomes), 50 * MICROSECOND)
            }
            Command::Frames { .. } => {
                let observation = Observation::Frames {
                    frames: vec![],
                    cursor: 0,
                };
                (observation, 20 * MICROSECOND)
            }
            Command::GiveBack { .. } => panic!("there are no frames"),
            Command::Sleep { .. } => (Observation::Woke, 30 * MICROSECOND),
        }
    }

    /// Pages that are all different.
    fn read(&self, run: &Run) -> Vec<Page> {
        let state = match self.spaces.get(&run.space) {
            Some(_) => PageState::Anon,
            None => PageState::Dead,
        };
        let page = |number: u32| {
            let address = run.start + u64::from(number * run.stride) * PAGE_SIZE;
            Page {
                hash: mix(address ^ u64::from(run.space.0) << 48),
                frame: 0,
                state,
                flags: PageFlags(0),
            }
        };
        (0..run.count).map(page).collect()
    }

    fn share(&self, since: (Nanos, Nanos)) -> f64 {
        crate::convert::ratio(self.used - since.1, self.now - since.0)
    }
}

/// Two newcomers in a crowd of this size: returns the time until both were listed, and the number
/// of other lists meanwhile.
fn newcomers(
    governor: Governor,
    event_source: EventSource,
    crowd: u32,
    begun: Nanos,
) -> (Nanos, u64) {
    let mut crowd = Crowd::new(governor, event_source, crowd);
    crowd.run_until(begun);
    let (came, lists) = (crowd.now, crowd.lists);
    let two = [crowd.start(100 * MS, 16384), crowd.start(100 * MS, 16384)];
    while !two.iter().all(|space| crowd.listed.contains(space)) {
        crowd.step();
        assert!(crowd.now < came + 60 * SECOND, "never listed");
    }
    (crowd.now - came, crowd.lists - lists)
}

#[test]
fn newcomers_among_3000_idle_spaces_are_listed_within_a_fifth_of_a_round() {
    for (governor, within) in [
        (Governor::Full, 400 * MS),
        (Governor::Medium, 800 * MS),
        (Governor::Low, 1600 * MS),
    ] {
        // The crowd is still being listed, or has long been calm.
        for begun in [SECOND, 30 * SECOND] {
            let (time, lists) = newcomers(governor, EventSource::Processes, 3000, begun);
            assert!(time < within, "{governor:?} at {begun}: {time} ns");
            assert!(lists < 1500, "{lists} lists meanwhile");
        }
    }
}

#[test]
fn a_machine_that_polls_lists_newcomers_too() {
    let (time, _) = newcomers(Governor::Full, EventSource::Nothing, 400, 30 * SECOND);
    assert!(time < 2 * SECOND, "{time} ns");
}

#[test]
fn a_crowd_is_listed_by_what_nobody_else_uses() {
    let mut crowd = Crowd::new(Governor::Full, EventSource::Processes, 3000);
    let mut all = 0;
    while crowd.listed.len() < 3000 {
        crowd.step();
        all = crowd.now;
        assert!(all < 20 * SECOND, "{} listed", crowd.listed.len());
    }
    // 3,000 lists of 0.3 ms take a second of processor time, which is allowed.
    assert!(all < 6 * SECOND, "{all} ns");
}

#[test]
fn a_calm_crowd_costs_next_to_nothing() {
    let mut crowd = Crowd::new(Governor::Full, EventSource::Processes, 5000);
    crowd.run_until(120 * SECOND);
    let (since, lists) = ((crowd.now, crowd.used), crowd.lists);
    let levels = |crowd: &Crowd| -> f64 {
        let report = crowd.engine.report();
        report.levels.iter().map(|level| level.used_seconds).sum()
    };
    let sampling = levels(&crowd);
    crowd.run_until(180 * SECOND);
    let sampling = (levels(&crowd) - sampling) / crate::convert::seconds(crowd.now - since.0);
    let share = crowd.share(since) - sampling;
    assert!(
        share < 0.002,
        "{share} of a core, and {sampling} for sampling"
    );
    assert!(crowd.lists - lists < 200, "{} lists", crowd.lists - lists);
}

#[test]
fn a_calm_crowd_that_somebody_watches_costs_nothing_and_what_grows_is_listed() {
    let mut crowd = Crowd::new(Governor::Full, EventSource::Spaces, 10);
    crowd.run_until(120 * SECOND);
    let (lists, used) = (crowd.lists, crowd.used);
    crowd.run_until(300 * SECOND);
    assert_eq!(crowd.lists, lists);
    let share = crate::convert::ratio(crowd.used - used, 180 * SECOND);
    assert!(share < 0.001, "{share} of a core");
    let grower = SpaceId(3);
    crowd.spaces.insert(grower, 4096);
    crowd.listed.clear();
    crowd.resized.push(grower);
    let grown_at = crowd.now;
    while !crowd.listed.contains(&grower) {
        crowd.step();
        assert!(crowd.now < grown_at + 5 * SECOND, "never listed");
    }
}

#[test]
fn what_dies_before_it_is_looked_at_keeps_nobody_from_a_list() {
    let mut crowd = Crowd::new(Governor::Medium, EventSource::Processes, 400);
    crowd.run_until(20 * SECOND);
    // Each lives for 0.2 s, and 200 a second come.
    let (mut storm, mut two, mut came) = (vec![], vec![], 0);
    let mut due = crowd.now;
    let end = crowd.now + 10 * SECOND;
    while crowd.now < end {
        while due <= crowd.now {
            let space = crowd.start(0, 64);
            storm.push((due + 200 * MS, space));
            due += 5 * MS;
        }
        storm.retain(|&(dies, space)| {
            let lives = dies > crowd.now;
            if !lives {
                crowd.end(space);
            }
            lives
        });
        if two.is_empty() && crowd.now > end - 5 * SECOND {
            two = vec![crowd.start(100 * MS, 16384), crowd.start(100 * MS, 16384)];
            came = crowd.now;
        }
        crowd.step();
        if came > 0 && two.iter().all(|space| crowd.listed.contains(space)) {
            break;
        }
    }
    assert!(
        came > 0 && crowd.now < came + 1500 * MS,
        "{} ns",
        crowd.now - came
    );
}

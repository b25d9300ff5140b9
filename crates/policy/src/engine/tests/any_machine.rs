//! The engine on a machine with arbitrary answers: the rules that always hold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::command::{
    EventSource, FilePlace, FoldKind, FoldOutcome, Frame, FrameId, Hint, HintSource, Mapping,
    PAGE_SIZE, Page, PageFlags, PageState, Reason, SpaceArrival, SpaceId, SpaceSize, Status,
};
use crate::ids::SpaceSlot;
use crate::mix::{SplitMix64, mix};
use crate::params::Governor;
use crate::region::State;

const MS: Nanos = 1_000_000;

/// A machine of any contents with random answers, within the contract.
struct RandomMachine {
    random: SplitMix64,
    now: Nanos,
    spaces: Vec<SpaceId>,
    next: u32,
    frames: u32,
    /// The process events that it has.
    event_source: EventSource,
}

impl RandomMachine {
    fn new(seed: u64) -> RandomMachine {
        RandomMachine {
            random: SplitMix64::new(seed),
            now: 0,
            spaces: vec![],
            next: 1,
            frames: 0,
            event_source: match seed % 3 {
                0 => EventSource::Nothing,
                1 => EventSource::Processes,
                _ => EventSource::Spaces,
            },
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn answer(&mut self, command: &Command) -> (Observation, Spent) {
        let may_fail = !matches!(
            command,
            Command::ListProcesses
                | Command::ListMappings(_)
                | Command::TakeHints
                | Command::Sleep { .. }
        );
        let observation = match command {
            command if may_fail && self.one_in(50) => Observation::NoMemory(command.clone()),
            Command::ListMappings(space) if self.one_in(10) => {
                Observation::Unread { space: *space }
            }
            Command::ListProcesses => self.processes(),
            Command::TakeHints => Observation::Hints {
                hints: (0..self.random.below(40)).map(|_| self.hint()).collect(),
                lost: self.random.below(3),
                lost_of: (0..self.random.below(3))
                    .map(|_| self.any_space())
                    .collect(),
                grown: (0..self.random.below(3))
                    .map(|_| self.any_space())
                    .collect(),
                more: self.one_in(4),
            },
            Command::MeasureSpaces(spaces) => {
                assert!(!spaces.is_empty() && spaces.len() <= 1024);
                let kept = if self.one_in(20) { 0 } else { spaces.len() };
                let size = |&space: &SpaceId| SpaceSize {
                    space,
                    gone: self.one_in(20),
                    mappings: self.random.below(3),
                    pages: self.random.below(3),
                    anon_pages: self.random.below(1 << 16),
                };
                Observation::Sizes(spaces[..kept].iter().map(size).collect())
            }
            Command::ListMappings(space) => {
                let mut at = 0;
                let mappings = (0..self.random.below(6))
                    .map(|_| {
                        let start = at + self.random.below(3) * PAGE_SIZE;
                        at = start + (1 + self.random.below(3000)) * PAGE_SIZE;
                        Mapping {
                            start,
                            end: at,
                            kind: self.random.below(2),
                        }
                    })
                    .collect();
                Observation::Mappings {
                    space: *space,
                    mappings,
                    age: self.random.below(SECOND),
                }
            }
            Command::Sample { runs, .. } => {
                assert!(runs.is_sorted_by_key(|run| (run.space, run.start)));
                let pages: u32 = runs.iter().map(|run| run.count).sum();
                assert!(runs.len() <= 4096 && pages <= 16384);
                let kept = if self.one_in(20) {
                    self.random.below(u64::from(pages))
                } else {
                    u64::from(pages)
                };
                Observation::Sampled((0..kept).map(|_| self.page()).collect())
            }
            Command::Fold(batch) => {
                assert!(!batch.entries.is_empty() && batch.entries.len() <= 512);
                for entry in &batch.entries {
                    if let FoldKind::Set(set) = entry.kind {
                        let same =
                            |other: &&crate::command::FoldEntry| other.kind == FoldKind::Set(set);
                        assert!(set < 512 && batch.entries.iter().filter(same).count() > 1);
                    }
                }
                Observation::Folded(
                    batch
                        .entries
                        .iter()
                        .map(|entry| self.outcome(entry.kind))
                        .collect(),
                )
            }
            Command::Frames { count, .. } => {
                let frames = (0..self.random.below(u64::from(*count).min(9)))
                    .map(|number| Frame {
                        hash: self.random.below(4),
                        frame: FrameId(crate::convert::narrow(number) + 1),
                        sharers: crate::convert::narrow(self.random.below(3)),
                        node: 0,
                    })
                    .collect();
                Observation::Frames {
                    frames,
                    cursor: u32::from(self.one_in(4)),
                }
            }
            Command::GiveBack { space, start, end } => {
                assert!(start < end && end - start <= 2048 * PAGE_SIZE);
                assert!(space.0 < self.next, "a space that never was");
                Observation::GivenBack {
                    next: [*start, *end, start + PAGE_SIZE][pick(self.random.below(3))],
                    pages: self.random.below(3),
                    stopped: self.one_in(20),
                }
            }
            Command::Sleep {
                until,
                events_wake_from,
                hints_wake_from,
            } => {
                assert!(*until > self.now, "a sleep that does not end");
                if hints_wake_from < until && self.one_in(4) {
                    self.now = self.now.max(*hints_wake_from);
                    Observation::HintsArrived
                } else if self.event_source != EventSource::Nothing
                    && events_wake_from < until
                    && self.one_in(4)
                {
                    self.now = self.now.max(*events_wake_from);
                    Observation::EventsArrived
                } else {
                    self.now = *until;
                    match self.one_in(4) {
                        true => Observation::MemoryIsShort,
                        false => Observation::Woke,
                    }
                }
            }
        };
        let spent = Spent {
            step: self.random.below(MS),
            call: self.random.below(3 * MS),
        };
        self.now += spent.step + spent.call;
        (observation, spent)
    }

    fn processes(&mut self) -> Observation {
        let mut arrived = vec![];
        if self.spaces.len() < 5 && self.one_in(2) {
            let space = SpaceId(self.next);
            self.next += 1;
            self.spaces.push(space);
            arrived.push(SpaceArrival {
                space,
                kind: self.random.below(2),
                age: self.random.below(9 * SECOND),
            });
        }
        let mut left = vec![];
        if !self.spaces.is_empty() && self.one_in(6) {
            left.push(self.spaces.swap_remove(0));
        }
        let resized = self.spaces.iter().copied().filter(|space| space.0 % 7 == 0);
        let resized = resized.collect();
        Observation::Processes {
            arrived,
            left,
            resized,
            more: self.one_in(4),
            event_source: self.event_source,
        }
    }

    /// A hint of any space, any address and any length, most of them where mappings are.
    fn hint(&mut self) -> Hint {
        let anywhere = self.one_in(8);
        let below = |random: &mut SplitMix64, bound| random.below(bound);
        let (start, length) = if anywhere {
            let bound = if self.one_in(2) { u64::MAX } else { 4096 };
            let start = below(&mut self.random, u64::MAX);
            (start, below(&mut self.random, bound))
        } else {
            let start = below(&mut self.random, 6 * 3000 * PAGE_SIZE);
            (start, below(&mut self.random, 600 * PAGE_SIZE))
        };
        Hint {
            start,
            length,
            space: self.any_space(),
            source: HintSource::Read,
            place: self.one_in(2).then_some(FilePlace {
                file_size: 1 << 30,
                offset: start,
            }),
        }
    }

    /// A space that exists, did exist, or never will.
    fn any_space(&mut self) -> SpaceId {
        let bound = u64::from(self.next) + 2;
        SpaceId(crate::convert::narrow(self.random.below(bound)))
    }

    fn page(&mut self) -> Page {
        const STATES: [PageState; 14] = [
            PageState::None,
            PageState::Anon,
            PageState::Frame,
            PageState::Zero,
            PageState::Orphan,
            PageState::Foreign,
            PageState::Ksm,
            PageState::Swap,
            PageState::Other,
            PageState::Refused,
            PageState::Unmapped,
            PageState::Dead,
            PageState::Retry,
            PageState::Poisoned,
        ];
        let odd = self.one_in(500);
        let state = if odd {
            STATES[pick(self.random.below(14))]
        } else {
            STATES[pick(self.random.below(5))]
        };
        let flags = if self.one_in(3) { PageFlags::HUGE } else { 0 };
        Page {
            hash: mix(self.random.below(2000)),
            frame: if state == PageState::Frame {
                1 + crate::convert::narrow(self.random.below(50))
            } else {
                0
            },
            state,
            flags: PageFlags(flags),
        }
    }

    fn outcome(&mut self, kind: FoldKind) -> FoldOutcome {
        let ends = [
            (Status::Merged, Reason::None),
            (Status::Already, Reason::None),
            (Status::Differed, Reason::Content),
            (Status::Differed, Reason::Node),
            (Status::Differed, Reason::Stale),
            (Status::Differed, Reason::Alone),
            (Status::Busy, Reason::Pinned),
            (Status::Gone, Reason::Unmapped),
            (Status::Gone, Reason::NoFrame),
            (Status::Gone, Reason::Dead),
            (Status::Full, Reason::Sharers),
            (Status::Full, Reason::Memory),
            (Status::Full, Reason::Guard),
            (Status::Full, Reason::Machine),
            (Status::Gone, Reason::Poisoned),
            (Status::Refused, Reason::Huge),
            (Status::Refused, Reason::Zero),
            (Status::Refused, Reason::Poisoned),
            (Status::Untried, Reason::None),
        ];
        let (status, reason) = match (kind, self.one_in(3)) {
            (FoldKind::Zero, false) => (Status::Zeroed, Reason::None),
            (_, false) => ends[0],
            (_, true) => ends[pick(self.random.below(18))],
        };
        // Numbers are used again.
        self.frames = self.frames % 400 + 1;
        FoldOutcome {
            status,
            reason,
            frame: if status == Status::Merged {
                self.frames
            } else {
                0
            },
        }
    }
}

fn pick(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The rules that must hold between any two steps.
fn check(engine: &Engine) {
    let mut on_levels = 0;
    for level in engine.ladder.level_numbers() {
        let members = engine.ladder.members(level).count() as u64;
        for member in engine.ladder.members(level) {
            let region = engine
                .regions
                .find_ranked(member, 0)
                .expect("a member is a region on the ladder");
            assert_eq!(region.level(), level);
        }
        let reported = &engine.ladder.report_levels(&engine.regions)[level];
        assert_eq!(members, reported.regions);
        on_levels += members;
    }
    let ranked = engine
        .regions
        .iter()
        .filter(|region| region.state() == State::Ranked)
        .count() as u64;
    assert_eq!(on_levels, ranked, "every region on the ladder has one slot");
    let merged: u64 = engine
        .regions
        .iter()
        .map(|region| u64::from(region.merged_now()))
        .sum();
    assert_eq!(merged, engine.regions.merged());
    let figures = engine.figures(usize::MAX).spaces;
    assert_eq!(
        figures.iter().map(|space| space.merged).sum::<u64>(),
        merged
    );
    assert!(engine.merge.outcomes().balances());
    assert_eq!(engine.spaces.regions().count(), engine.regions.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_machine_keeps_regions_slots_and_counts_in_order(seed: u64) {
        let params = Params { index_bytes: Some(1 << 16), region_bytes: 2 << 20, ..Params::governor(Governor::Full) };
        let mut engine = Engine::new(params, seed).unwrap();
        let mut machine = RandomMachine::new(seed);
        let mut calls = 0;
        let mut command = engine.step(0, Spent::default(), Observation::Started);
        for step in 0..1500 {
            let (observation, cost) = machine.answer(&command);
            calls += cost.call;
            command = engine.step(machine.now, cost, observation);
            if step % 16 == 0 {
                check(&engine);
            }
        }
        check(&engine);
        let report = engine.report();
        prop_assert!(report.sampling.pages > 0);
        let by_levels: u64 = report.levels.iter().map(|level| level.sampled).sum();
        let figures = engine.figures(usize::MAX).spaces;
        prop_assert!(figures.iter().map(|space| space.work_time).sum::<u64>() <= calls);
        prop_assert_eq!(by_levels + report.sampling.swept_first, report.sampling.pages);
    }

    #[test]
    fn on_the_ladder_regions_go_one_down_or_to_the_bottom_or_up(seed: u64) {
        let params = Params { index_bytes: Some(1 << 16), ..Params::governor(Governor::Full) };
        let mut engine = Engine::new(params, seed).unwrap();
        let mut machine = RandomMachine::new(seed);
        let mut command = engine.step(0, Spent::default(), Observation::Started);
        let mut before: BTreeMap<(u64, SpaceSlot, Nanos), usize> = BTreeMap::new();
        for _ in 0..800 {
            let (observation, cost) = machine.answer(&command);
            command = engine.step(machine.now, cost, observation);
            let mut now = BTreeMap::new();
            for region in engine.regions.iter().filter(|region| region.state() == State::Ranked) {
                let key = (region.start(), region.space(), region.reaches(0));
                now.insert(key, region.level());
                match before.get(&key) {
                    Some(&old) => {
                        let is_fall = region.level() < old;
                        prop_assert!(!is_fall || region.level() == 0 || region.level() + 1 == old);
                    }
                    None => prop_assert!(region.level() == 0, "regions come in at the bottom"),
                }
            }
            before = now;
        }
    }
}

#[test]
#[should_panic(expected = "does not answer")]
fn an_answer_to_another_command_is_our_bug() {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    engine.step(0, Spent::default(), Observation::Started);
    engine.step(1, Spent::default(), Observation::Woke);
}

#[test]
fn bad_parameters_make_no_engine() {
    let params = Params {
        cpu: 2.0,
        ..Params::governor(Governor::Full)
    };
    assert_eq!(Engine::new(params, 1).unwrap_err().name, "cpu");
}

#[test]
fn a_fresh_domain_is_asked_for_frames_first() {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    let command = engine.step(0, Spent::default(), Observation::Started);
    assert!(matches!(command, Command::Frames { cursor: 0, .. }));
    let command = engine.step(
        MS,
        Spent::default(),
        Observation::Frames {
            frames: vec![],
            cursor: 0,
        },
    );
    assert_eq!(command, Command::ListProcesses);
}

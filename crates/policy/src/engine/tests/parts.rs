//! Parts of the engine in situations that a whole run meets seldom: who pays, who waits, and what is
//! believed of frames.

use super::*;
use crate::command::{FoldOutcome, Mapping, PAGE_SIZE, Reason, SpaceArrival, Status};
use crate::lookup::Place;
use crate::merge::queue::{Counted, QueuedPage};
use crate::params::{Governor, MILLISECOND as MS};
use crate::region::State;

/// An engine at its start with one space of so many regions, of a page each, on the bottom level.
fn with_regions(count: u32) -> Engine {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    engine.step(1, Spent::default(), Observation::Started);
    let arrival = SpaceArrival {
        space: SpaceId(1),
        kind: 0,
        age: 0,
    };
    engine.on_processes(&[arrival], &[]);
    let slot = engine.discovery.slot(SpaceId(1)).unwrap();
    let mappings: Vec<Mapping> = (0..u64::from(count))
        .map(|number| Mapping {
            start: 2 * number * PAGE_SIZE,
            end: (2 * number + 1) * PAGE_SIZE,
            kind: 0,
        })
        .collect();
    engine.on_mappings(slot, SpaceId(1), &mappings, 0);
    engine.now = SECOND;
    engine.read_calendar();
    assert_eq!(engine.levels[0].len() as u64, u64::from(count));
    engine
}

fn queued_page(engine: &Engine, region: u32, payer: Payer) -> QueuedPage {
    QueuedPage {
        place: Place { region, page: 0 },
        space: SpaceId(1),
        address: engine.regions[region].start,
        hash: u64::from(region),
        payer,
        failed_sets: 0,
        counted: Counted::Not,
    }
}

#[test]
fn what_a_level_left_in_the_queue_is_paid_for_by_that_level() {
    let mut engine = with_regions(4);
    engine.now = 2 * SECOND;
    let used = |engine: &Engine| [0, 3].map(|level: usize| engine.levels[level].budget.used());
    for region in 0..3 {
        let page = queued_page(&engine, region, Payer::Level(3));
        engine.queue.push_frame(&page, FrameId(7));
    }
    // Then the bottom level finds a page, and the queue is emptied in its turn.
    engine.work.payer = Payer::Level(0);
    let page = queued_page(&engine, 3, engine.work.payer);
    engine.queue.push_frame(&page, FrameId(7));
    let before = used(&engine);
    let (turn, command) = engine.fold();
    assert!(matches!(&command, Command::Fold(batch) if batch.entries.len() == 4));
    engine.payer = engine.payer_of(turn);
    engine.book(Spent {
        step: 0,
        call: 4000,
    });
    let after = used(&engine);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1000, 3000]);
}

#[test]
fn working_through_an_answer_is_paid_for_by_who_asked() {
    let mut engine = with_regions(4);
    engine.now = 2 * SECOND;
    let used = |engine: &Engine| [0, 3].map(|level: usize| engine.levels[level].budget.used());
    let before = used(&engine);
    // The top's answer was worked through in the last step, which then asked for the bottom.
    (engine.answered, engine.payer) = (Payer::Level(3), Payer::Level(0));
    engine.book(Spent {
        step: 5000,
        call: 100,
    });
    let after = used(&engine);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [100, 5000]);
    assert_eq!(engine.answered, Payer::Level(0), "whose answer comes now");
}

#[test]
fn an_old_note_in_the_calendar_does_not_end_a_refusal() {
    let mut engine = with_regions(1);
    // It was noted to be called grown in a few seconds; then its pages are refused.
    assert!(!engine.calendar.is_empty());
    engine.refuse(0);
    engine.now = 20 * SECOND;
    engine.read_calendar();
    assert_eq!(engine.regions[0].state, State::Refused);
    engine.now = SECOND + 64 * engine.round;
    engine.read_calendar();
    assert_eq!(engine.regions[0].state, State::Ranked);
}

#[test]
fn regions_with_few_pages_on_trial_do_not_hold_up_others() {
    let mut engine = with_regions(200);
    let round = engine.round;
    let mut now = engine.now;
    for number in 0..200 {
        let cow = &mut engine.regions[number].cow;
        (0..8).for_each(|_| cow.check(true, 1.0, 0.5));
        assert!(cow.decide(Some(0.5), now, round));
    }
    now += 8 * round;
    for number in 0..200 {
        // One page each, and enough of the last.
        let pages = if number == 199 { 16 } else { 1 };
        (0..pages).for_each(|page| assert!(engine.regions[number].cow.held(page, now)));
        engine.trials.insert(number);
    }
    engine.now = now + round;
    let mut looked_at = BTreeSet::new();
    let calls = 200 / 64 + 1;
    for _ in 0..calls {
        let mut picks = vec![];
        engine.pick_trials(&mut picks);
        looked_at.extend(picks.iter().map(|(_, pick)| pick.region));
    }
    assert_eq!(looked_at, [199].into(), "the others wait for more pages");
    engine.now = now + 8 * round;
    for _ in 0..calls {
        let mut picks = vec![];
        engine.pick_trials(&mut picks);
        looked_at.extend(picks.iter().map(|(_, pick)| pick.region));
    }
    assert_eq!(looked_at.len(), 200, "not for ever");
}

#[test]
fn a_command_without_memory_is_given_again_ever_later_and_then_answered() {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    let first = engine.step(0, Spent::default(), Observation::Started);
    let (mut now, mut waits) = (0, vec![]);
    let mut command = first.clone();
    for _ in 0..10 {
        assert_eq!(command, first);
        let refused = Observation::NoMemory(command);
        let Command::Sleep { until } = engine.step(now, Spent::default(), refused) else {
            panic!("it should wait")
        };
        waits.push(until - now);
        now = until;
        command = engine.step(now, Spent::default(), Observation::Woke);
    }
    assert!(waits.is_sorted() && waits[0] <= 20 * MS && waits[9] == 2 * SECOND);
    let listed = Observation::Frames {
        frames: vec![],
        cursor: 0,
    };
    assert_eq!(
        engine.step(now, Spent::default(), listed),
        Command::ListProcesses
    );
    assert_eq!(engine.report().shortages, 10);
}

#[test]
fn a_number_seen_with_other_contents_names_another_frame() {
    let mut engine = with_regions(2);
    let (frame, space) = (FrameId(9), SpaceId(1));
    engine.frames.made(frame, space);
    engine.merged.insert(77, frame);
    engine.close(frame, 256);
    engine.saw_frame(frame, 78);
    assert_eq!(engine.merged.hash_of(frame), Some(78));
    assert_eq!(engine.merged.candidates(78).next(), Some(frame));
    assert!(engine.full.is_empty() && engine.merged.candidates(77).next().is_none());
    // And one that comes as the frame of a set.
    let mut page = queued_page(&engine, 0, Payer::Level(0));
    page.hash = 79;
    engine.queue.open_set(&page);
    let (_, mut waiting) = engine.queue.take();
    engine.in_flight = std::mem::take(&mut waiting);
    engine.on_folded(
        &[FoldOutcome {
            status: Status::Merged,
            reason: Reason::None,
            frame: 9,
        }],
        0,
    );
    assert_eq!(engine.merged.hash_of(frame), Some(79));
    assert_eq!(engine.frames.sharers_of(frame), 1);
}

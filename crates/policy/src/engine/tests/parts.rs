//! Parts of the engine in situations that a whole run seldom meets: payers, waiting, and beliefs
//! about frames.

use std::collections::BTreeSet;

use super::super::*;
use crate::command::{
    FoldOutcome, Frame, FrameId, Mapping, PAGE_SIZE, Reason, SpaceArrival, SpaceId, Status,
};
use crate::ids::RegionId;
use crate::ladder::sampling::{Pick, Purpose};
use crate::lookup::RegionPage;
use crate::lookup::unmerged::Match;
use crate::merge::queue::{HitKind, QueuedPage};
use crate::params::{Governor, MILLISECOND as MS};
use crate::region::State;

/// An engine at its start with one space of `count` regions, of a page each, on the bottom level.
fn with_regions(count: u32) -> Engine {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    engine.step(1, Spent::default(), Observation::Started);
    let arrival = SpaceArrival {
        space: SpaceId(1),
        kind: 0,
        age: 0,
    };
    engine.on_processes(&[arrival], &[]);
    let slot = engine.spaces.slot(SpaceId(1)).unwrap();
    let mappings: Vec<Mapping> = (0..u64::from(count))
        .map(|number| Mapping {
            start: 2 * number * PAGE_SIZE,
            end: (2 * number + 1) * PAGE_SIZE,
            kind: 0,
        })
        .collect();
    engine.on_mappings(slot, SpaceId(1), &mappings, (0, 0));
    read_calendar_at(&mut engine, SECOND);
    assert_eq!(engine.ladder.members(0).count(), count as usize);
    engine
}

fn read_calendar_at(engine: &mut Engine, now: Nanos) {
    engine.clock.advance(now);
    engine
        .ladder
        .read_calendar(&mut engine.regions, &mut engine.lifetimes, now);
}

fn queued_page(engine: &Engine, region: u32, payer: Payer) -> QueuedPage {
    let region = RegionId(region);
    QueuedPage {
        place: RegionPage { region, page: 0 },
        space: SpaceId(1),
        address: engine.regions[region].start(),
        hash: u64::from(region.0),
        partial: u64::from(region.0),
        payer,
        failed_frames: 0,
        failed_sets: 0,
        counted: HitKind::Not,
        ticket: None,
    }
}

/// The time used by the bottom and the top level.
fn used(engine: &Engine) -> [u64; 2] {
    let levels = engine.ladder.report_levels(&engine.regions);
    [0, 3].map(|level: usize| crate::convert::nanos(levels[level].used_seconds * 1e9 + 0.5))
}

#[test]
fn what_a_level_left_in_the_queue_is_paid_for_by_that_level() {
    let mut engine = with_regions(4);
    engine.clock.advance(2 * SECOND);
    for region in 0..3 {
        let page = queued_page(&engine, region, Payer::Level(3));
        engine.merge.queue().push_frame(&page, FrameId(7));
    }
    // Then the bottom level finds a page, and the queue is emptied in its turn.
    let page = queued_page(&engine, 3, Payer::Level(0));
    engine.merge.queue().push_frame(&page, FrameId(7));
    let before = used(&engine);
    let Action { turn, command } = engine.fold();
    assert!(matches!(&command, Command::Fold(batch) if batch.entries.len() == 4));
    engine.accounts.begin(engine.payer_of(turn));
    engine.book(Spent {
        step: 0,
        call: 4000,
    });
    let after = used(&engine);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1000, 3000]);
}

#[test]
fn working_through_an_answer_is_paid_for_by_the_level_that_asked() {
    let mut engine = with_regions(4);
    engine.clock.advance(2 * SECOND);
    let before = used(&engine);
    // The top's answer was worked through in the last step, which then gave the turn to the bottom.
    engine.accounts.begin(Payer::Level(3));
    engine.book(Spent::default());
    engine.accounts.begin(Payer::Level(0));
    engine.book(Spent {
        step: 5000,
        call: 100,
    });
    let after = used(&engine);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [100, 5000]);
    // The bottom's answer comes now.
    engine.book(Spent { step: 7, call: 0 });
    assert_eq!(used(&engine), [after[0] + 7, after[1]]);
}

#[test]
fn an_old_note_in_the_calendar_does_not_end_a_refusal() {
    let mut engine = with_regions(1);
    let region = RegionId(0);
    // The region was noted to count as grown in a few seconds; then its pages are refused.
    assert!(engine.ladder.due_at(SECOND, 0, false).is_some());
    engine.refuse(region);
    read_calendar_at(&mut engine, 20 * SECOND);
    assert_eq!(engine.regions[region].state(), State::Refused);
    let round = engine.params.global_round();
    read_calendar_at(&mut engine, SECOND + 64 * round);
    assert_eq!(engine.regions[region].state(), State::Ranked);
}

/// The regions with pages on trial in the next call of the bottom level.
fn on_trial(engine: &mut Engine) -> BTreeSet<u32> {
    let at = engine.clock.moment(&engine.params);
    let mut from = Sources {
        regions: &mut engine.regions,
        spaces: &mut engine.spaces,
        lifetimes: &engine.lifetimes,
        shortest: engine.discovery.shortest(),
    };
    let selection = engine.ladder.select(0, || false, &mut from, at);
    let picks = selection.expect("the level may read").picks;
    let regions = picks.iter().filter_map(|(_, pick)| match pick {
        Pick::Region(pick) if pick.purpose == Purpose::Trial => Some(pick.region.0),
        _ => None,
    });
    regions.collect()
}

#[test]
fn regions_with_few_pages_on_trial_do_not_hold_up_others() {
    let mut engine = with_regions(200);
    let round = engine.params.global_round();
    let mut now = engine.clock.now();
    for number in 0..200 {
        let cow = engine.regions[RegionId(number)].cow_mut();
        (0..8).for_each(|_| cow.check(true, 1.0, 0.5));
        assert!(cow.decide(Some(0.5), now, round).is_closed());
    }
    now += 8 * round;
    for number in 0..200 {
        // One page each, and enough of the last.
        let pages = if number == 199 { 16 } else { 1 };
        let cow = engine.regions[RegionId(number)].cow_mut();
        (0..pages).for_each(|page| assert_eq!(cow.merged(page, 16, now), page == 0));
        engine.ladder.look_at(RegionId(number), now);
    }
    engine.clock.advance(now + round);
    let calls = 200 / 64 + 1;
    let mut looked_at: BTreeSet<u32> = (0..calls).flat_map(|_| on_trial(&mut engine)).collect();
    assert_eq!(looked_at, [199].into(), "the others wait for more pages");
    engine.clock.advance(now + 8 * round);
    looked_at.extend((0..calls).flat_map(|_| on_trial(&mut engine)));
    assert_eq!(looked_at.len(), 200, "not for ever");
}

/// A sweep begins: 64 frames have had one mapping for 30 s. Regions 0, 2 and 3 have a merged page.
fn with_a_sweep() -> Engine {
    let mut engine = with_regions(4);
    for region in [0, 2, 3] {
        engine.regions.set_merged(RegionId(region), 0, true, 0);
    }
    let single = |number| Frame {
        hash: 0,
        frame: FrameId(number),
        sharers: 1,
        node: 0,
    };
    let singles: Vec<Frame> = (1..=64).map(single).collect();
    for now in [SECOND, 31 * SECOND] {
        engine.clock.advance(now);
        engine.lookup.reaped(&singles, 0, now);
    }
    engine
}

/// The next region of a sweep, and the pages of the command.
fn next_of_sweep(engine: &mut Engine) -> Option<(RegionId, u64, u64)> {
    let Action { turn, command } = engine.sweep_singles()?;
    let (Turn::GiveBack(region), Command::GiveBack { space, start, end }) = (turn, command) else {
        panic!("{turn:?}")
    };
    assert_eq!((space, end - start), (SpaceId(1), PAGE_SIZE));
    Some((region, start, end))
}

fn given_back(next: u64, pages: u64, stopped: bool) -> Observation {
    Observation::GivenBack {
        next,
        pages,
        stopped,
    }
}

#[test]
fn a_sweep_covers_each_region_with_merged_pages_once() {
    let mut engine = with_a_sweep();
    let mut regions = vec![];
    while let Some((region, _, end)) = next_of_sweep(&mut engine) {
        regions.push(region.0);
        engine.on_given_back(region, &given_back(end, 1, false));
    }
    assert_eq!(regions, [0, 2, 3]);
    assert_eq!(engine.report().frames.given_back, 3);
    // The page of region 2 is found broken: it was not written. The next time it was.
    let region = &mut engine.regions[RegionId(2)];
    assert!(region.was_given_back() && !region.was_given_back());
}

#[test]
fn a_sweep_passes_over_a_space_that_is_locked_or_has_no_memory() {
    let mut engine = with_a_sweep();
    let (region, start, _) = next_of_sweep(&mut engine).unwrap();
    engine.on_given_back(region, &given_back(start, 0, false));
    assert!(next_of_sweep(&mut engine).is_none(), "there is one space");
    for is_call_refused in [false, true] {
        let mut engine = with_a_sweep();
        let (region, start, end) = next_of_sweep(&mut engine).unwrap();
        let answer = if is_call_refused {
            let space = SpaceId(1);
            Observation::NoMemory(Command::GiveBack { space, start, end })
        } else {
            given_back(start, 0, true)
        };
        engine.on_given_back(region, &answer);
        assert!(next_of_sweep(&mut engine).is_none());
    }
}

#[test]
fn during_a_sweep_no_page_joins_a_frame_with_one_mapping() {
    let mut engine = with_a_sweep();
    let one = FrameId(1);
    assert!(!engine.lookup.reserve_room(one, SpaceId(1)));
    assert!(engine.lookup.reserve_room(FrameId(99), SpaceId(1)));
    engine.lookup.end_sweep(32 * SECOND);
    assert!(!engine.lookup.reserve_room(one, SpaceId(1)));
    engine.lookup.reaped(&[], 0, 33 * SECOND);
    assert!(engine.lookup.reserve_room(one, SpaceId(1)));
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
        let Command::Sleep { until, .. } = engine.step(now, Spent::default(), refused) else {
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
    assert_eq!(engine.report().retry.retried, 10);
}

#[test]
fn an_id_seen_with_other_contents_names_another_frame() {
    let mut engine = with_regions(2);
    let (frame, space) = (FrameId(9), SpaceId(1));
    engine.lookup.frame_made(frame, 77, space);
    (1..256).for_each(|_| assert!(engine.lookup.frame_shared(frame, space)));
    assert_eq!(engine.lookup.newest_frame(77), None, "it is full");
    engine.lookup.saw_frame(frame, 78, space);
    assert_eq!(engine.lookup.newest_frame(77), None);
    assert_eq!(engine.lookup.newest_frame(78), Some(frame), "it is open");
    // The same for a frame that comes from a set.
    let mut page = queued_page(&engine, 0, Payer::Level(0));
    page.hash = 79;
    let set = engine.merge.queue().open_set(&page);
    page.place.page = 1;
    engine.merge.queue().join_set(&page, set);
    engine.fold();
    let merged = FoldOutcome {
        status: Status::Merged,
        reason: Reason::None,
        frame: 9,
    };
    engine.on_folded(vec![merged; 2], 0);
    assert_eq!(engine.lookup.newest_frame(78), None);
    assert_eq!(engine.lookup.newest_frame(79), Some(frame));
    assert_eq!(engine.lookup.report_frames().sharers, 2);
    // A page that is alone in a new frame is given back, and no page joins the frame.
    page.hash = 80;
    engine.merge.queue().open_set(&page);
    engine.fold();
    engine.on_folded(vec![merged], 0);
    assert_eq!(engine.lookup.newest_frame(79), None);
    assert_eq!(engine.lookup.newest_frame(80), None);
    let undo = engine.undo_false_match().expect("it is to be given back");
    assert!(matches!(undo.command, Command::GiveBack { .. }));
    assert!(engine.undo_false_match().is_none());
    assert_eq!(engine.lookup.report_frames().sharers, 1);
}

#[test]
fn a_page_whose_lock_is_held_leaves_its_place_in_the_index_to_others() {
    let mut engine = with_regions(3);
    let (locked, other) = (RegionId(0), RegionId(1));
    let page = |region| RegionPage { region, page: 0 };
    let look_up = |engine: &mut Engine, region| {
        let unmerged = engine.lookup.unmerged();
        unmerged.look_up(77, page(region), 0)
    };
    assert_eq!(look_up(&mut engine, locked), Match::Inserted);
    let [first, second] = [locked, other].map(|region| QueuedPage {
        hash: 77,
        partial: 77,
        ..queued_page(&engine, region.0, Payer::Level(0))
    });
    let set = engine.merge.queue().open_set(&first);
    engine.merge.queue().join_set(&second, set);
    engine.fold();
    let outcome = |status, reason| FoldOutcome {
        status,
        reason,
        frame: 0,
    };
    engine.on_folded(
        vec![
            outcome(Status::Busy, Reason::Lock),
            outcome(Status::Differed, Reason::Alone),
        ],
        0,
    );
    let met = look_up(&mut engine, RegionId(2));
    assert!(
        matches!(met, Match::Partner { place, .. } if place == page(other)),
        "{met:?}"
    );
}

/// The present state of all parts that have shares.
fn parts_with_shares(engine: &Engine) -> [String; 6] {
    [
        format!("{:?}", engine.params),
        format!("{:?}", engine.accounts),
        format!("{:?}", engine.discovery),
        format!("{:?}", engine.ladder),
        format!("{:?}", engine.hints),
        format!("{:?}", engine.hash),
    ]
}

#[test]
fn another_share_leaves_nothing_of_the_one_before() {
    for hint_runs in [0, 1] {
        let params = |cpu| Params {
            cpu,
            hint_runs,
            ..Params::governor(Governor::Full)
        };
        let mut changed = Engine::new(params(0.95), 7).unwrap();
        for cpu in [0.01, 0.3] {
            changed.set_cpu(cpu).unwrap();
            let made = Engine::new(params(cpu), 7).unwrap();
            let (changed, made) = (parts_with_shares(&changed), parts_with_shares(&made));
            for (changed, made) in changed.into_iter().zip(made) {
                assert_eq!(changed, made, "{cpu}");
            }
        }
        let error = changed.set_cpu(0.001).unwrap_err();
        assert_eq!(error.name, "cpu");
        assert!((changed.cpu().budget_share - 0.3).abs() < 1e-9);
    }
}

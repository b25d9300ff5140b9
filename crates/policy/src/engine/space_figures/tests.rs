//! The sums of each space are its own, and add up to the report; the first spaces of each order are
//! reported.

use super::super::cost_by_space;
use super::super::tests::equal_regions;
use super::*;
use crate::accounts::payer::Payer;
use crate::command::{Run, SpaceArrival, SpaceId};
use crate::ids::RegionId;
use crate::ladder::sampling::{Pick, Purpose, RegionPick, Selection};
use crate::lookup::RegionPage;
use crate::params::{Governor, Params, SECOND};

/// An engine with `count` spaces of two regions each, on the bottom level.
fn with_spaces(count: u32) -> Engine {
    let mut engine = equal_regions::with(Params::governor(Governor::Full), (count, 2));
    equal_regions::advance(&mut engine, SECOND);
    engine
}

fn of(engine: &Engine, space: u32) -> SpaceFigures {
    let all = engine.figures(usize::MAX).spaces;
    *all.iter().find(|it| it.space == SpaceId(space)).unwrap()
}

#[test]
fn each_space_has_its_own_sums_and_together_they_are_the_report_s() {
    let mut engine = with_spaces(2);
    let scale = engine.scale();
    for page in 0..3 {
        engine.regions.set_merged(RegionId(0), page, true, SECOND);
    }
    engine.regions.set_merged(RegionId(1), 5, true, SECOND);
    for _ in 0..8 {
        let region = &mut engine.regions[RegionId(2)];
        region.duplication_mut().sampled(1, &scale);
        region.duplication_mut().sure(&scale);
    }
    let (first, second) = (of(&engine, 1), of(&engine, 2));
    assert_eq!((first.merged, second.merged), (4, 0));
    assert_eq!(first.left, 0);
    // All pages looked up had a partner.
    assert_eq!(
        second.left,
        u64::from(engine.regions[RegionId(2)].resident())
    );
    let report = engine.report();
    assert_eq!(first.merged + second.merged, report.merged.now);
    assert_eq!(first.left + second.left, report.duplicates.left);
    let resident = report.regions.resident_pages;
    assert_eq!(first.resident + second.resident, resident);
}

#[test]
fn too_few_samples_are_no_potential() {
    let mut engine = with_spaces(1);
    let scale = engine.scale();
    for _ in 0..7 {
        let region = &mut engine.regions[RegionId(0)];
        region.duplication_mut().sampled(1, &scale);
        region.duplication_mut().sure(&scale);
    }
    assert_eq!(of(&engine, 1).left, 0);
}

#[test]
fn a_call_is_divided_by_pages_and_what_is_gone_takes_nothing() {
    let mut engine = with_spaces(2);
    let region = |region| (RegionId(region), 4);
    // Nine of twelve pages came back: four of a region that is gone, four of one, and one of the
    // other.
    let runs = [region(77), region(0), region(2)].into_iter();
    cost_by_space::divide(&engine.regions, &mut engine.spaces, runs, 9, 1800);
    let place = RegionPage {
        region: RegionId(2),
        page: 0,
    };
    engine.tried_for(place, 30);
    let done = |engine: &Engine, space| {
        let figures = of(engine, space);
        (figures.read, figures.work_time)
    };
    assert_eq!(
        (done(&engine, 1), done(&engine, 2)),
        ((4, 800), (1, 230)),
        "nobody has what was read of the first"
    );
    let runs = std::iter::once(region(0));
    cost_by_space::divide(&engine.regions, &mut engine.spaces, runs, 0, 1000);
    assert_eq!(done(&engine, 1), (4, 800), "nothing came back");
}

#[test]
fn a_sample_is_divided_among_the_spaces_of_its_picks_as_far_as_it_came() {
    let mut engine = with_spaces(2);
    let [one, other] = [1, 2].map(|space| engine.spaces.slot(SpaceId(space)).unwrap());
    let pick = |pick: Pick, count| {
        let run = Run {
            space: SpaceId(1),
            start: 0,
            count,
            stride: 1,
        };
        (run, pick)
    };
    let block = |region, count| {
        let of_region = RegionPick {
            region: RegionId(region),
            page: 8,
            count,
            purpose: Purpose::Block,
            ticket: None,
        };
        pick(Pick::Region(of_region), count)
    };
    // The second space has regions 2 and 3; the sparse mapping of the first one has no region.
    let picks = vec![pick(Pick::Sparse(one), 1), block(2, 16), block(3, 16)];
    engine.answer.expect(Selection {
        picks,
        ..Selection::new(0, Payer::Nobody)
    });
    engine.worked_for_answer(20, 2000);
    let done = |engine: &Engine, space| {
        let figures = of(engine, space);
        (figures.read, figures.work_time)
    };
    assert_eq!((done(&engine, 1), done(&engine, 2)), ((1, 100), (19, 1900)));
    // A space that went meanwhile receives nothing.
    engine.on_processes(&[], &[SpaceId(2)]);
    assert!(!engine.spaces.is_used(other));
    engine.worked_for_answer(20, 2000);
    assert_eq!(done(&engine, 1), (2, 200));
}

#[test]
fn a_space_that_comes_later_has_no_work_of_one_before_it() {
    let mut engine = with_spaces(1);
    let runs = std::iter::once((RegionId(0), 4));
    cost_by_space::divide(&engine.regions, &mut engine.spaces, runs, 4, 400);
    assert_eq!(of(&engine, 1).work_time, 400);
    engine.on_processes(&[], &[SpaceId(1)]);
    let arrival = SpaceArrival {
        space: SpaceId(9),
        kind: 0,
        age: 0,
    };
    engine.on_processes(&[arrival], &[]);
    let figures = engine.figures(10);
    assert_eq!(figures.spaces.len(), 1);
    assert_eq!((of(&engine, 9).read, of(&engine, 9).work_time), (0, 0));
}

#[test]
fn of_many_the_first_of_each_order_are_reported() {
    let space = |number: u32| SpaceFigures {
        space: SpaceId(number),
        resident: 100,
        merged: u64::from(number),
        left: u64::from(1000 - number),
        read: 0,
        work_time: 0,
    };
    let mut all: Vec<SpaceFigures> = (0..900).map(space).collect();
    all[450].work_time = 7;
    let reported = first(all.clone(), 6);
    assert_eq!(reported.left_out, 894);
    let names: Vec<u32> = reported.spaces.iter().map(|it| it.space.0).collect();
    // Of equal ones the lowest names come first.
    assert_eq!(names, [0, 1, 450, 897, 898, 899]);
    assert_eq!(first(all.clone(), 900).left_out, 0);
    assert_eq!(first(all.clone(), 0).spaces, []);
    assert_eq!(first(all, 901).spaces.len(), 900);
}

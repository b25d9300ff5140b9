//! The sums of each space are its own, and together what the report says; the first of each order are told.

use super::*;
use crate::command::{Mapping, Observation, PAGE_SIZE, SpaceArrival, SpaceId, Spent};
use crate::ids::RegionId;
use crate::lookup::Place;
use crate::params::{Governor, Params, SECOND};

/// An engine with so many spaces of two regions of 64 pages each, on the bottom level.
fn with_spaces(count: u32) -> Engine {
    let mut engine = Engine::new(Params::governor(Governor::Full), 1).unwrap();
    engine.step(1, Spent::default(), Observation::Started);
    for space in (1..=count).map(SpaceId) {
        let arrival = SpaceArrival {
            space,
            kind: 0,
            age: 0,
        };
        engine.on_processes(&[arrival], &[]);
        let slot = engine.spaces.slot(space).unwrap();
        let mapping = |number: u64| Mapping {
            start: 2 * number * 64 * PAGE_SIZE,
            end: (2 * number + 1) * 64 * PAGE_SIZE,
            kind: 0,
        };
        engine.on_mappings(slot, space, &[mapping(0), mapping(1)], (0, 0));
    }
    engine.clock.advance(SECOND);
    let now = engine.clock.now();
    let ladder = &mut engine.ladder;
    ladder.read_calendar(&mut engine.regions, &mut engine.lifetimes, now);
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
        region.took(1);
        region.duplication_mut().sampled(1, &scale);
        region.duplication_mut().sure(&scale);
    }
    let (first, second) = (of(&engine, 1), of(&engine, 2));
    assert_eq!((first.merged, second.merged), (4, 0));
    assert_eq!(first.left, 0);
    // All that was looked at had a partner.
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
        region.took(1);
        region.duplication_mut().sampled(1, &scale);
        region.duplication_mut().sure(&scale);
    }
    assert_eq!(of(&engine, 1).left, 0);
}

#[test]
fn a_call_is_divided_by_pages_and_what_is_gone_takes_nothing() {
    let mut engine = with_spaces(2);
    let place = |region| Place {
        region: RegionId(region),
        page: 0,
    };
    // Of eight pages five came back.
    engine.worked_for_runs(&[(place(0), 4), (place(2), 4)], 5, 1000);
    engine.tried_for(place(2), 30);
    engine.worked_for(RegionId(77), 9, 200);
    let work = |space| {
        let figures = of(&engine, space);
        (figures.read, figures.work_time)
    };
    assert_eq!((work(1), work(2)), ((4, 800), (1, 230)));
    engine.worked_for_runs(&[(place(0), 4)], 0, 1000);
    assert_eq!(of(&engine, 1).read, 4);
}

#[test]
fn a_space_that_comes_later_has_no_work_of_one_before_it() {
    let mut engine = with_spaces(1);
    engine.worked_for(RegionId(0), 4, 100);
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
fn of_many_the_first_of_each_order_are_told() {
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
    let told = first(all.clone(), 6);
    assert_eq!(told.left_out, 894);
    let names: Vec<u32> = told.spaces.iter().map(|it| it.space.0).collect();
    // Of equal ones the lowest names stand first.
    assert_eq!(names, [0, 1, 450, 897, 898, 899]);
    assert_eq!(first(all.clone(), 900).left_out, 0);
    assert_eq!(first(all.clone(), 0).spaces, []);
    assert_eq!(first(all, 901).spaces.len(), 900);
}

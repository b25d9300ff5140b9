//! Engines with spaces of equal regions, for tests of their reports.

use super::super::*;
use crate::command::{Mapping, PAGE_SIZE, SpaceArrival, SpaceId};

/// Pages of each region.
pub(in crate::engine) const PAGES: u64 = 64;

/// An engine with `spaces` spaces, from 1 on, of `regions` regions each, all of them too young.
pub(in crate::engine) fn with(params: Params, (spaces, regions): (u32, u64)) -> Engine {
    let mut engine = Engine::new(params, 1).unwrap();
    engine.step(1, Spent::default(), Observation::Started);
    for space in (1..=spaces).map(SpaceId) {
        let arrival = SpaceArrival {
            space,
            kind: 0,
            age: 0,
        };
        engine.on_processes(&[arrival], &[]);
        let slot = engine.spaces.slot(space).unwrap();
        let mapping = |number: u64| Mapping {
            start: 2 * number * PAGES * PAGE_SIZE,
            end: (2 * number + 1) * PAGES * PAGE_SIZE,
            kind: 0,
        };
        let mappings: Vec<Mapping> = (0..regions).map(mapping).collect();
        engine.on_mappings(slot, space, &mappings, (0, 0));
    }
    engine
}

/// Sets the time to `now`: regions that are old enough are put on the ladder.
pub(in crate::engine) fn advance(engine: &mut Engine, now: Nanos) {
    engine.clock.advance(now);
    let ladder = &mut engine.ladder;
    ladder.read_calendar(&mut engine.regions, &mut engine.lifetimes, now);
}

//! Each standing of a region, and each kind of partner, in an engine brought into that state; and
//! asking changes nothing.

use super::super::tests::equal_regions::{self, PAGES, advance};
use super::*;
use crate::command::FrameId;
use crate::params::{Governor, MILLISECOND as MS, Params, SECOND};
use crate::region::Regions;

/// An engine with three spaces of `count` regions each, all of them too young.
fn with(params: Params, count: u64) -> Engine {
    equal_regions::with(params, (3, count))
}

fn full() -> Params {
    Params::governor(Governor::Full)
}

/// The same engine with its regions on the ladder.
fn grown(params: Params) -> Engine {
    let mut engine = with(params, 2);
    advance(&mut engine, SECOND);
    engine
}

const FIRST: RegionId = RegionId(0);

fn first(engine: &Engine) -> RegionReport {
    engine.explain(SpaceId(1)).unwrap().regions[0].clone()
}

fn standing(engine: &Engine) -> (Standing, Option<Nanos>) {
    let region = first(engine);
    (region.standing, region.left)
}

#[test]
fn a_young_region_reports_when_it_is_old_enough() {
    let mut engine = with(full(), 2);
    assert_eq!(standing(&engine), (Standing::Young, Some(100 * MS)));
    advance(&mut engine, 40 * MS + 1);
    assert_eq!(standing(&engine), (Standing::Young, Some(60 * MS)));
    advance(&mut engine, 101 * MS);
    assert_eq!(standing(&engine), (Standing::Unread, None));
}

#[test]
fn a_region_of_a_kind_that_dies_young_is_distinguished_once_it_is_older_than_others_need_be() {
    let mut engine = with(full(), 2);
    let class = engine.regions[FIRST].lifetime_class();
    engine.lifetimes.died(class, SECOND);
    advance(&mut engine, 50 * MS + 1);
    assert_eq!(standing(&engine).0, Standing::Young);
    advance(&mut engine, 500 * MS + 1);
    assert_eq!(standing(&engine), (Standing::ShortLived, Some(1500 * MS)));
    advance(&mut engine, 2 * SECOND + 1);
    assert_eq!(standing(&engine), (Standing::Unread, None));
}

#[test]
fn a_region_is_explained_by_what_was_read_of_it() {
    let mut engine = grown(full());
    assert_eq!(standing(&engine), (Standing::Unread, None));
    let scale = engine.scale();
    let region = &mut engine.regions[FIRST];
    region.duplication_mut().sampled(12, &scale);
    region.duplication_mut().sure(&scale);
    let report = first(&engine);
    assert_eq!(report.standing, Standing::Sparse);
    assert_eq!((report.sampled, report.hits), (12, 1));
    assert!(!report.read_in_full);
    engine.regions[FIRST].set_standing(Standing::Rising);
    assert_eq!(standing(&engine).0, Standing::Rising);
}

#[test]
fn a_sweep_is_reported_while_it_lasts_and_what_it_came_to() {
    let mut engine = grown(full());
    let (now, round) = (
        engine.clock.now(),
        engine.clock.moment(&engine.params).round,
    );
    let permutations = crate::region::Permutations::new(1);
    let region = &mut engine.regions[FIRST];
    let (block, is_last) = region.next_block(&permutations, now);
    assert!(is_last, "64 pages may lie in one block: {block}");
    region.swept(64);
    region.end_sweep(now, round, 0.1, false);
    let report = first(&engine);
    assert_eq!(
        (report.standing, report.read_in_full),
        (Standing::Sparse, true)
    );
    let region = &mut engine.regions[FIRST];
    assert!(!region.count_merge(3, now, false));
    region.next_block(&permutations, now);
    region.swept(64);
    region.end_sweep(now, round, 0.1, false);
    assert_eq!(standing(&engine), (Standing::Finished, None));
    engine.regions.set_merged(FIRST, 3, true, now);
    assert_eq!(first(&engine).merged, 1);
}

#[test]
fn a_region_on_the_top_level_is_being_read_in_full() {
    let mut engine = grown(full());
    let scale = engine.scale();
    for _ in 0..20 {
        let region = &mut engine.regions[FIRST];
        region.duplication_mut().sampled(1, &scale);
        region.duplication_mut().sure(&scale);
    }
    let at = engine.clock.moment(&engine.params);
    engine
        .ladder
        .consider(FIRST, &mut engine.regions, &scale, at);
    let report = first(&engine);
    assert_eq!((report.standing, report.level), (Standing::Swept, 4));
}

/// All merged pages of a region were found written.
fn break_all(regions: &mut Regions) {
    let cow = regions[FIRST].cow_mut();
    (0..8).for_each(|_| cow.check(true, 1.0, 0.5));
}

#[test]
fn a_region_that_is_written_is_left_alone_until_then_and_on_trial_after_that() {
    let mut engine = grown(full());
    let scale = engine.scale();
    break_all(&mut engine.regions);
    let at = engine.clock.moment(&engine.params);
    let round = at.round;
    engine
        .ladder
        .consider(FIRST, &mut engine.regions, &scale, at);
    let report = first(&engine);
    assert_eq!(report.standing, Standing::CowBroken);
    assert_eq!((report.left, report.strikes), (Some(4 * round), 1));
    advance(&mut engine, SECOND + 3 * round);
    assert_eq!(standing(&engine), (Standing::CowBroken, Some(round)));
    advance(&mut engine, SECOND + 4 * round);
    assert_eq!(standing(&engine), (Standing::OnTrial, None));
    // With the filter off it is a region like others.
    engine.params.v_cow = None;
    assert_eq!(standing(&engine).0, Standing::Unread);
}

#[test]
fn a_refusal_is_reported_until_it_is_over_and_a_lost_mapping_without_end() {
    let mut engine = grown(full());
    let round = engine.clock.moment(&engine.params).round;
    engine.refuse(FIRST);
    assert_eq!(standing(&engine), (Standing::Refused, Some(64 * round)));
    let other = RegionId(1);
    engine.lose(other);
    let lost = engine.explain(SpaceId(1)).unwrap().regions[1].clone();
    assert_eq!((lost.standing, lost.left), (Standing::Lost, None));
}

#[test]
fn a_space_is_reported_in_parts_that_are_the_whole() {
    let engine = with(full(), 10);
    let whole = engine.explain(SpaceId(1)).unwrap();
    assert_eq!((whole.regions.len(), whole.next), (10, None));
    assert!(whole.is_listed && !whole.is_crowded && whole.sparse.is_empty());
    let (mut from, mut parts) = (0, vec![]);
    loop {
        let part = engine.explain_from(SpaceId(1), from, 3).unwrap();
        assert!(part.regions.len() <= 3);
        parts.extend(part.regions);
        match part.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(parts, whole.regions);
    assert_eq!(engine.explain(SpaceId(9)), None);
}

#[test]
fn omissions_are_reported() {
    let params = Params {
        max_process_regions: 64,
        ..full()
    };
    let engine = with(params, 70);
    let report = engine.explain(SpaceId(1)).unwrap();
    assert_eq!(report.regions.len(), 64);
    assert_eq!(
        (report.left_out_pages, report.is_crowded),
        (6 * PAGES, true)
    );
}

/// The partner of page 0 of the first region of the first space, if it has this hash.
fn partner(engine: &Engine, hash: u64) -> KnownPartner {
    let known = engine.partners(SpaceId(1), &[(0, hash)]);
    known[0].expect("it is in a region")
}

/// A page of this hash was read, in a region of the space.
fn index(engine: &mut Engine, space: u32, hash: u64) {
    let slot = engine.spaces.slot(SpaceId(space)).unwrap();
    let region = engine.spaces.get(slot).regions()[1];
    let place = RegionPage { region, page: 5 };
    let round = engine.clock.moment(&engine.params).round_number;
    let count = engine.lookup.rungs();
    for rung in 0..count {
        let index = engine.lookup.unmerged();
        if index.find_on_rung(hash, rung, round).is_none() {
            index.look_up_rung(hash, rung, place, round);
            break;
        }
    }
}

#[test]
fn a_page_reports_what_it_could_be_merged_with() {
    let mut engine = grown(full());
    assert_eq!(partner(&engine, 7), KnownPartner::Nothing);
    assert_eq!(partner(&engine, engine.hash.zero()), KnownPartner::Zero);
    let mut other = grown(full());
    other.collisions.collides(other.hash.zero());
    assert_eq!(partner(&other, other.hash.zero()), KnownPartner::Nothing);
    engine.regions[FIRST].refuse_zero_page();
    assert_eq!(partner(&engine, engine.hash.zero()), KnownPartner::Nothing);
    index(&mut engine, 1, 7);
    assert_eq!(partner(&engine, 7), KnownPartner::Page, "of its own space");
    index(&mut engine, 2, 8);
    assert_eq!(partner(&engine, 8), KnownPartner::Page);
    engine.lookup.frame_made(FrameId(3), 9, SpaceId(2));
    assert_eq!(partner(&engine, 9), KnownPartner::Frame);
    engine.lookup.close(FrameId(3));
    assert_eq!(partner(&engine, 9), KnownPartner::Nothing, "it is full");
    // A hash of pages that turned out to differ proves nothing.
    index(&mut engine, 2, 11);
    assert_eq!(
        (partner(&engine, 11), engine.collides(11)),
        (KnownPartner::Page, false)
    );
    engine.collisions.collides(11);
    assert_eq!(
        (partner(&engine, 11), engine.collides(11)),
        (KnownPartner::Nothing, true)
    );
    // A page's own entry is no partner.
    let place = RegionPage {
        region: FIRST,
        page: 0,
    };
    engine.lookup.unmerged().look_up(10, place, 0);
    assert_eq!(partner(&engine, 10), KnownPartner::Nothing);
    // Nor is an entry that is merged, or cannot be merged any more.
    let slot = engine.spaces.slot(SpaceId(2)).unwrap();
    let other = engine.spaces.get(slot).regions()[1];
    engine.regions.set_merged(other, 5, true, SECOND);
    assert_eq!(partner(&engine, 8), KnownPartner::Nothing);
    let in_between = engine.partners(SpaceId(1), &[(PAGES * PAGE_SIZE, 7)]);
    assert_eq!(in_between, [None]);
    assert_eq!(engine.partners(SpaceId(9), &[(0, 7)]), [None]);
}

#[test]
fn a_page_reports_what_its_policy_forbids() {
    let between = Params {
        merge: Contents::Between,
        ..full()
    };
    let mut engine = grown(between);
    index(&mut engine, 1, 7);
    assert_eq!(partner(&engine, 7), KnownPartner::OwnSpace);
    index(&mut engine, 2, 8);
    assert_eq!(partner(&engine, 8), KnownPartner::Page);
    engine.lookup.frame_made(FrameId(3), 9, SpaceId(2));
    assert_eq!(partner(&engine, 9), KnownPartner::Frame);
    engine.lookup.sharer_merged(FrameId(3), SpaceId(1), false);
    assert_eq!(partner(&engine, 9), KnownPartner::OwnSpace);

    let three = Params {
        merge_spaces: 3,
        ..full()
    };
    let mut engine = grown(three);
    index(&mut engine, 1, 7);
    assert_eq!(partner(&engine, 7), KnownPartner::TooFew);
    index(&mut engine, 2, 8);
    assert_eq!(partner(&engine, 8), KnownPartner::TooFew);
    index(&mut engine, 3, 8);
    assert_eq!(partner(&engine, 8), KnownPartner::Page);

    let zero = Params {
        merge: Contents::Zero,
        ..full()
    };
    let engine = grown(zero);
    assert_eq!(partner(&engine, engine.hash.zero()), KnownPartner::Zero);
    assert_eq!(partner(&engine, 7), KnownPartner::Nothing);
}

#[test]
fn frames_that_cannot_be_had_are_reported_until_they_are_asked_for_again() {
    let mut engine = grown(full());
    assert_eq!(engine.circumstances().no_frames_left, None);
    engine.merge.frames_refused(engine.clock.now());
    assert_eq!(engine.circumstances().no_frames_left, Some(SECOND));
    advance(&mut engine, 2 * SECOND);
    assert_eq!(engine.circumstances().no_frames_left, None);
}

#[test]
fn asking_changes_nothing() {
    let mut engine = grown(full());
    index(&mut engine, 2, 8);
    let all = |engine: &Engine| {
        let parts = (
            &engine.regions,
            &engine.ladder,
            &engine.lookup,
            &engine.merge,
        );
        format!("{parts:?} {:?} {:?}", engine.accounts, engine.lifetimes)
    };
    let before = all(&engine);
    for hash in 0..64 {
        partner(&engine, hash);
    }
    let _reports = (engine.explain(SpaceId(1)), engine.circumstances());
    assert_eq!(all(&engine), before);
}

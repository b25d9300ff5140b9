//! Hashes that collide, the pages that wait because of it, and frames.

use super::*;
use crate::command::{PageFlags, PageState};
use crate::ids::RegionId;

const OTHER: Finder = Finder::Other;

fn page(number: u32, partial: u64) -> CollidingPage {
    let place = RegionPage {
        region: RegionId(1),
        page: number,
    };
    CollidingPage { place, partial }
}

#[test]
fn only_pages_of_a_hash_that_collides_wait_and_each_once() {
    let mut collisions = Collisions::default();
    collisions.wait(page(1, 7), OTHER);
    assert!(!collisions.has(7) && !collisions.waits(OTHER, false));
    assert!(collisions.collides(7) && !collisions.collides(7));
    for number in [1, 2, 1] {
        collisions.wait(page(number, 7), OTHER);
    }
    collisions.wait(page(3, 8), OTHER);
    assert!(collisions.waits(OTHER, false) && !collisions.waits(OTHER, true));
    assert_eq!(collisions.take(OTHER, 9), [page(1, 7), page(2, 7)]);
    collisions.wait(page(1, 7), OTHER);
    assert!(collisions.waits(OTHER, false), "it may wait again");
}

#[test]
fn hashes_of_one_bit_of_the_filter_are_distinguished() {
    let mut collisions = Collisions::default();
    (0..1000).for_each(|hash| assert!(collisions.collides(hash)));
    assert!((0..1000).all(|hash| collisions.has(hash)));
    assert!(!(1000..100_000).any(|hash| collisions.has(hash)));
}

#[test]
fn frames_are_asked_for_by_neighbourhood() {
    let mut collisions = Collisions::default();
    collisions.want_frames([3, 9, 66, 67, 500].map(FrameId).into_iter());
    assert_eq!(collisions.next_frames(), Some((FrameId(3), 64)));
    let taken = collisions.take_frames(FrameId(3), 64);
    assert_eq!(taken, [3, 9, 66].map(FrameId).into());
    assert_eq!(collisions.next_frames(), Some((FrameId(67), 1)));
    collisions.take_frames(FrameId(67), 1);
    assert_eq!(collisions.next_frames(), Some((FrameId(500), 1)));
    collisions.take_frames(FrameId(500), 1);
    assert_eq!(collisions.next_frames(), None);
}

#[test]
fn pages_come_back_in_the_order_they_were_asked_for_and_may_be_fewer() {
    let mut collisions = Collisions::default();
    collisions.read(OTHER, vec![page(1, 7), page(2, 7), page(3, 7)]);
    let read = Page {
        state: PageState::Anon,
        flags: PageFlags::default(),
        hash: 5,
        frame: 0,
    };
    collisions.receive(vec![read, Page { hash: 6, ..read }]);
    assert!(collisions.is_under_way());
    let came: Vec<_> = std::iter::from_fn(|| collisions.next())
        .map(|(page, read)| (page.place.page, read.hash))
        .collect();
    assert_eq!(came, [(1, 5), (2, 6)]);
    assert!(!collisions.is_under_way());
    assert_eq!(collisions.pages_read(), 2);
}

#[test]
fn another_strength_has_collisions_of_its_own() {
    let mut collisions = Collisions::default();
    collisions.collides(7);
    collisions.wait(page(1, 7), OTHER);
    collisions.want_frames([FrameId(1)].into_iter());
    collisions.forget();
    assert!(!collisions.has(7) && !collisions.waits(OTHER, false));
    assert_eq!(collisions.next_frames(), None);
}

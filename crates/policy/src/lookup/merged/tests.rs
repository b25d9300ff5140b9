//! The merged index against an exact map.

use super::*;
use crate::lookup::frame_table::LEAF_BYTES;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The expected contents of the index: hash and whether full, by frame.
type Model = BTreeMap<u32, (u64, bool)>;

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u32),
    Remove(u32),
    Full(u32),
    Open(u32),
    Shift(u32, u64),
}

/// Few hashes and frames, so that chains, collisions and reused numbers are common.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let frame = 1u32..200;
    let hash = 0u64..20;
    let step = prop_oneof![
        8 => (hash, frame.clone()).prop_map(|(h, f)| Step::Insert(h, f)),
        3 => frame.clone().prop_map(Step::Remove),
        2 => frame.clone().prop_map(Step::Full),
        1 => frame.clone().prop_map(Step::Open),
        3 => (frame, 0u64..20).prop_map(|(f, d)| Step::Shift(f, d)),
    ];
    prop::collection::vec(step, 0..600)
}

fn apply(index: &mut MergedIndex, model: &mut Model, step: &Step) {
    match *step {
        Step::Insert(hash, frame) => {
            index.insert(hash, FrameId(frame));
            model.insert(frame, (hash, false));
        }
        Step::Remove(frame) => {
            assert_eq!(index.remove(FrameId(frame)), model.remove(&frame).is_some());
        }
        Step::Full(frame) | Step::Open(frame) => {
            let full = matches!(step, Step::Full(_));
            let there = if full {
                index.mark_full(FrameId(frame))
            } else {
                index.mark_open(FrameId(frame))
            };
            assert_eq!(there, model.contains_key(&frame));
            model.entry(frame).and_modify(|entry| entry.1 = full);
        }
        Step::Shift(frame, difference) => {
            let there = index.shift(FrameId(frame), difference);
            assert_eq!(there, model.contains_key(&frame));
            model.entry(frame).and_modify(|entry| entry.0 += difference);
        }
    }
}

fn assert_equal(index: &MergedIndex, model: &Model) {
    assert_eq!(index.len(), model.len());
    let hashes: BTreeSet<u64> = model
        .values()
        .map(|entry| entry.0)
        .chain([1 << 40])
        .collect();
    for &hash in &hashes {
        let mut found: Vec<u32> = index.candidates(hash).map(|frame| frame.0).collect();
        found.sort_unstable();
        let expected: Vec<u32> = model
            .iter()
            .filter(|&(_, &(of, full))| of == hash && !full)
            .map(|(&frame, _)| frame)
            .collect();
        assert_eq!(found, expected, "candidates of {hash}");
    }
    for frame in 0..201 {
        assert_eq!(
            index.hash_of(FrameId(frame)),
            model.get(&frame).map(|entry| entry.0)
        );
    }
    let wanted: Vec<u64> = hashes.into_iter().collect();
    let mut batch = vec![None; wanted.len()];
    index.newest_batch(&wanted, |number, frame| batch[number] = Some(frame));
    for (&hash, &newest) in wanted.iter().zip(&batch) {
        assert_eq!(index.candidates(hash).next(), newest, "batch of {hash}");
    }
}

proptest! {
    #[test]
    fn every_call_does_what_it_does_to_an_exact_map(steps in steps()) {
        let (mut index, mut model) = (MergedIndex::new(), Model::new());
        for step in &steps {
            apply(&mut index, &mut model, step);
        }
        assert_equal(&index, &model);
    }

    #[test]
    fn equal_calls_give_candidates_in_equal_order(steps in steps()) {
        let run = || {
            let (mut index, mut model) = (MergedIndex::new(), Model::new());
            for step in &steps {
                apply(&mut index, &mut model, step);
            }
            (0..64).flat_map(|hash| index.candidates(hash).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn an_empty_index_finds_nothing() {
    let mut index = MergedIndex::new();
    assert_eq!(index.candidates(1).count(), 0);
    assert_eq!(index.hash_of(FrameId(1)), None);
    assert!(
        !index.remove(FrameId(1)) && !index.shift(FrameId(1), 1) && !index.mark_full(FrameId(1))
    );
    assert!(index.is_empty());
}

#[test]
fn all_frames_of_one_hash_are_candidates_newest_first() {
    let mut index = MergedIndex::new();
    for frame in 1..=5 {
        index.insert(77, FrameId(frame));
    }
    index.insert(78, FrameId(6));
    index.mark_full(FrameId(3));
    let found: Vec<u32> = index.candidates(77).map(|frame| frame.0).collect();
    assert_eq!(found, [5, 4, 2, 1]);
}

#[test]
fn shifting_up_and_down_restores_the_hash() {
    let mut index = MergedIndex::new();
    index.insert(u64::MAX - 3, FrameId(9));
    index.shift(FrameId(9), 1000);
    assert_eq!(index.candidates(996).collect::<Vec<_>>(), [FrameId(9)]);
    index.shift(FrameId(9), 1000u64.wrapping_neg());
    assert_eq!(index.hash_of(FrameId(9)), Some(u64::MAX - 3));
}

#[test]
fn memory_a_frame_stays_within_its_bound() {
    let mut index = MergedIndex::new();
    for frame in 1..=300_000u32 {
        index.insert(mix(u64::from(frame)), FrameId(frame));
        if index.len() > 4 * MIN_HEADS {
            // A leaf and a block may be nearly empty.
            let begun = LEAF_BYTES * (1 + index.len() / (1 << 17)) + (1 << 12);
            let bytes = index.bytes() - size_of::<MergedIndex>() - begun;
            assert!(
                bytes <= BYTES_A_FRAME * index.len(),
                "{bytes} bytes, {} frames",
                index.len()
            );
        }
    }
}

/// Frames of few hashes, beyond the room that there is at first, so that chains are cut in two.
#[test]
fn a_growing_index_keeps_its_chains_newest_first() {
    const COUNT: u32 = 5000;
    const HASHES: u32 = 700;
    let mut index = MergedIndex::new();
    for frame in 1..=COUNT {
        index.insert(mix(u64::from(frame % HASHES)), FrameId(frame));
        if frame.is_multiple_of(5) {
            index.remove(FrameId(frame / 5));
        }
    }
    for hash in 0..HASHES {
        let of_hash = index.candidates(mix(u64::from(hash)));
        let found: Vec<u32> = of_hash.map(|frame| frame.0).collect();
        let all = (COUNT / 5 + 1..=COUNT).rev();
        let expected: Vec<u32> = all.filter(|frame| frame % HASHES == hash).collect();
        assert_eq!(found, expected, "of hash {hash}");
    }
}

#[test]
fn chain_heads_come_one_by_one_and_not_all_together() {
    let mut index = MergedIndex::new();
    for frame in 1..=300_000u32 {
        index.insert(mix(u64::from(frame)), FrameId(frame));
        assert_eq!(index.heads.len(), index.len().max(MIN_HEADS));
    }
}

/// An index of `count` frames of one weak hash, every eighth of them full.
fn alike(count: u32) -> MergedIndex {
    let mut index = MergedIndex::new();
    for frame in 1..=count {
        index.insert(7, FrameId(frame));
        if frame.is_multiple_of(8) {
            index.mark_full(FrameId(frame));
        }
    }
    index
}

/// Processor time for the work of a change of strength: the hash of each frame moves by another
/// difference, and back.
fn shifting(count: u32) -> u64 {
    let mut index = alike(count);
    crate::convert::fastest(3, || {
        for frame in 1..=count {
            assert!(index.shift(FrameId(frame), mix(u64::from(frame))));
        }
        for frame in 1..=count {
            index.shift(FrameId(frame), mix(u64::from(frame)).wrapping_neg());
        }
    })
}

/// Processor time for taking out every frame but one, the oldest first.
fn removing(count: u32) -> u64 {
    let whole = alike(count);
    crate::convert::fastest(3, || {
        let mut index = whole.clone();
        for frame in 1..count {
            assert!(index.remove(FrameId(frame)));
        }
        assert_eq!(index.len(), 1);
    })
}

#[test]
fn a_change_of_strength_with_frames_of_one_hash_takes_time_in_proportion_to_them() {
    let (few, many) = (shifting(12_500), shifting(100_000));
    assert!(many < 24 * few, "{few} ns, then {many} ns");
}

#[test]
fn frames_of_one_hash_go_in_time_in_proportion_to_them() {
    let (few, many) = (removing(12_500), removing(100_000));
    assert!(many < 24 * few, "{few} ns, then {many} ns");
}

#[test]
fn full_frames_of_one_hash_cost_a_lookup_nothing() {
    let mut index = MergedIndex::new();
    for frame in 1..=100_000 {
        index.insert(7, FrameId(frame));
        index.mark_full(FrameId(frame));
    }
    index.mark_open(FrameId(1));
    let hashes = [7; 64];
    let lookup = crate::convert::fastest(3, || {
        index.newest_batch(&hashes, |_, frame| assert_eq!(frame, FrameId(1)));
    });
    // A walk over all of them takes a hundred times as long.
    assert!(lookup < 1_000_000, "{lookup} ns for 64 lookups");
}

//! How the table grows and shrinks.

use super::super::resize::{MAX_REBUILT_BUCKETS, MAX_REBUILT_SMALLER_BUCKETS, MAX_STEPS};
use super::*;

/// An index that has grown while `made` pages were entered.
fn grown(made: u64) -> UnmergedIndex {
    let mut index = index(1);
    index.fit(made, usize::MAX);
    enter(&mut index, 0..made);
    index
}

/// Nineteen of twenty of the pages that were entered are merged, and leave it.
fn merge_most(index: &mut UnmergedIndex, made: u64) -> std::ops::Range<u64> {
    let left = made - made / 20..made;
    for number in 0..left.start {
        index.remove(hash(number), place(u32::try_from(number).unwrap()));
    }
    index.fit(made / 20, usize::MAX);
    left
}

/// Checks that it has shrunk to the pages left, and lost none of them.
fn check_shrunk(index: &UnmergedIndex, before: usize, left: std::ops::Range<u64>) {
    assert!(
        index.bytes() * 9 < before * BUCKET_BYTES,
        "{}",
        index.bytes()
    );
    let still = found(index, left.clone()) * 100;
    assert!(still >= (left.end - left.start) * 95, "{still} %");
}

#[test]
fn a_table_that_grows_with_its_entries_takes_12_bytes_for_each_page() {
    let made = 300_000;
    let index = grown(made);
    let found = found(&index, 0..made);
    // An old one whose few known bits are those of another, or that was forgotten.
    let share = found as f64 / made as f64;
    assert!(share > 0.99, "{share} of those made");
    let bytes = index.bytes() as f64 / made as f64;
    assert!((11.5..12.1).contains(&bytes), "{bytes} bytes a page");
}

#[test]
fn what_was_entered_first_stays_while_the_bound_grows_little_by_little() {
    let (made, step) = (100_000, 1000);
    let mut index = index(1);
    for from in (0..made).step_by(step) {
        index.fit(from + step as u64, usize::MAX);
        enter(&mut index, from..from + step as u64);
    }
    for part in 0..10 {
        let part = part * made / 10..(part + 1) * made / 10;
        let share = found(&index, part.clone()) as f64 * 10.0 / made as f64;
        assert!(share > 0.94, "{share} of {part:?}");
    }
}

#[test]
fn a_step_of_growth_touches_one_group_and_a_batch_makes_few() {
    let mut index = index(4 * BUCKET_BYTES);
    let words = |index: &UnmergedIndex| -> Vec<[u64; WAYS]> {
        let table = &index.table;
        (0..table.buckets())
            .map(|n| *table.bucket(Bucket::numbered(n)))
            .collect()
    };
    enter(&mut index, 0..4000);
    for _ in 0..3000 {
        let before = words(&index);
        index.change_by_bucket(Table::grow, 0);
        let after = words(&index);
        assert_eq!(after.len(), before.len() + 1);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(moved < 8, "{moved} buckets were changed");
    }
    // The bound rises at once from much too little.
    let mut index = self::index(2 * MAX_REBUILT_BUCKETS * BUCKET_BYTES);
    enter(&mut index, 0..400_000);
    index.fit(u64::MAX, usize::MAX);
    let mut most = 0;
    for number in 0..2000 {
        let before = index.table.buckets();
        enter(&mut index, number * 64..number * 64 + 64);
        most = most.max(index.table.buckets() - before);
    }
    assert_eq!(most, MAX_STEPS, "it catches up, by so many buckets a batch");
    assert!(!index.is_crowded());
}

#[test]
fn a_large_table_shrinks_a_few_buckets_a_batch_when_its_pages_are_merged() {
    let made = 700_000;
    let mut index = grown(made);
    let full = index.table.buckets();
    // Half of the pages for which it has room may still be entered: it keeps all.
    index.fit(made / 2, usize::MAX);
    enter(&mut index, 0..64);
    assert_eq!(index.table.buckets(), full);

    let left = merge_most(&mut index, made);
    while index.table.buckets() > MAX_REBUILT_SMALLER_BUCKETS + MAX_STEPS {
        let before = index.table.buckets();
        enter(&mut index, left.start..left.start + 64);
        let taken = before - index.table.buckets();
        assert_eq!(taken, MAX_STEPS, "in one batch");
    }
    enter(&mut index, left.start..left.start + 64);
    check_shrunk(&index, full, left);
}

#[test]
fn a_small_table_is_made_anew_when_its_pages_are_merged() {
    let made = 300_000;
    let mut index = grown(made);
    let full = index.table.buckets();
    index.fit(made / 4, usize::MAX);
    enter(&mut index, 0..64);
    assert_eq!(index.table.buckets(), full, "a quarter keeps it");

    let left = merge_most(&mut index, made);
    enter(&mut index, left.start..left.start + 64);
    assert!(!index.is_too_large());
    check_shrunk(&index, full, left);
}

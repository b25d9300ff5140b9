//! How the table grows and shrinks.

use super::*;

/// An index that has grown with its entries, and how many pages were entered.
fn grown() -> (Unmerged, u64) {
    let mut index = index(1);
    let made = 300_000;
    index.fit(made, usize::MAX);
    enter(&mut index, 0..made);
    (index, made)
}

#[test]
fn a_table_that_grows_with_its_entries_takes_12_bytes_for_each_page() {
    let (index, made) = grown();
    let found = found(&index, 0..made);
    // A page that was forgotten by one that came later; or an old one whose few known bits are
    // those of another.
    let share = found as f64 / made as f64;
    assert!(share > 0.95, "{share} of those made");
    let bytes = index.bytes() as f64 / made as f64;
    assert!((11.9..12.1).contains(&bytes), "{bytes} bytes a page");
}

#[test]
fn a_step_of_growth_touches_one_group_and_a_batch_makes_few() {
    let mut index = index(4 * BUCKET_BYTES);
    let words = |index: &Unmerged| -> Vec<[u64; WAYS]> {
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
    let mut index = self::index(2 * MADE_ANEW * BUCKET_BYTES);
    enter(&mut index, 0..400_000);
    index.fit(u64::MAX, usize::MAX);
    let mut most = 0;
    for number in 0..2000 {
        let before = index.table.buckets();
        enter(&mut index, number * 64..number * 64 + 64);
        most = most.max(index.table.buckets() - before);
    }
    assert_eq!(
        most, MOST_STEPS,
        "it catches up, by so many buckets a batch"
    );
    assert!(!index.is_crowded());
}

#[test]
fn a_table_shrinks_a_few_buckets_a_batch_when_its_pages_are_merged() {
    let (mut index, made) = grown();
    let full = index.table.buckets();
    // Half of what it has room for may still be entered: it keeps all.
    index.fit(made / 2, usize::MAX);
    enter(&mut index, 0..64);
    assert_eq!(index.table.buckets(), full);

    // Nineteen of twenty are merged, and leave it.
    let left = made - made / 20..made;
    for number in 0..left.start {
        index.remove(hash(number), place(u32::try_from(number).unwrap()));
    }
    index.fit(made / 20, usize::MAX);
    while index.is_too_large() {
        let before = index.table.buckets();
        enter(&mut index, left.start..left.start + 64);
        let taken = before - index.table.buckets();
        assert!((1..=MOST_STEPS).contains(&taken), "{taken} in one batch");
    }
    assert!(index.bytes() * 9 < full * BUCKET_BYTES, "{}", index.bytes());
    let still = found(&index, left.clone()) * 100;
    assert!(still >= (left.end - left.start) * 95, "{still} %");
}

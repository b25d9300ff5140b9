//! The table by itself.

use std::collections::BTreeMap;

use super::*;
use crate::mix::mix;

#[test]
fn buckets_are_chosen_evenly_at_every_size() {
    for buckets in 4..70 {
        let table = Table::new(buckets, Layout::new(14, 20));
        assert_eq!(table.buckets(), buckets);
        let all = (0..buckets).map(Bucket::numbered);
        let mut load: BTreeMap<Bucket, u64> = all.map(|bucket| (bucket, 0)).collect();
        for number in 0..20_000 {
            let bucket = table.address(mix(number + 1)).bucket;
            *load.get_mut(&bucket).expect("one of the table's") += 1;
        }
        let mean = 20_000 / buckets as u64;
        for (bucket, load) in load {
            assert!(
                load * 10 > mean * 7 && load * 10 < mean * 14,
                "{bucket:?} of {buckets}: {load}, {mean} on average"
            );
        }
    }
}

#[test]
fn segments_follow_each_other_without_gaps() {
    let mut next = Bucket::default();
    for bucket in 0..10_000 {
        assert_eq!(Bucket::numbered(bucket), next);
        next.at += 1;
        if next.at == buckets_of(next.segment) {
            let segment = next.segment + 1;
            next = Bucket { segment, at: 0 };
        }
    }
}

#[test]
fn a_table_that_grew_is_one_that_was_made_as_large() {
    let layout = Layout::new(14, 20);
    let mut grown = Table::new(4, layout);
    for buckets in 4..3000 {
        let made = Table::new(buckets, layout);
        assert_eq!(
            (grown.level, grown.width, grown.split),
            (made.level, made.width, made.split)
        );
        grown.grow(&mut vec![]);
    }
}

#[test]
fn a_table_that_shrank_is_one_that_was_made_as_small() {
    let layout = Layout::new(14, 20);
    let mut shrunk = Table::new(3000, layout);
    for buckets in (4..3000).rev() {
        shrunk.shrink(&mut vec![]);
        let made = Table::new(buckets, layout);
        assert_eq!(
            (shrunk.level, shrunk.width, shrunk.split),
            (made.level, made.width, made.split)
        );
        assert_eq!(shrunk.segments.len(), made.segments.len());
    }
}

#[test]
#[should_panic(expected = "no bucket to spare")]
fn the_smallest_table_does_not_shrink() {
    Table::new(4, Layout::new(14, 20)).shrink(&mut vec![]);
}

//! Each reason, from evidence of the daemon and mappings of the kernel.

use super::*;
use crate::status::evidence::{Range, Sighting};

const START: u64 = 0x10_0000;

fn terms() -> Terms {
    Terms {
        merge: "all".to_owned(),
        spaces_needed: 1,
        splits_huge_pages: true,
        thp_share: 0.25,
        v_dup: 0.1,
        v_life_seconds: 0.1,
        cpu: 0.5,
        most_frames: 1000,
        coverage: 1.0,
        ..Terms::default()
    }
}

/// A region of a hundred read pages, with this standing.
fn region(standing: Stands, read_in_full: bool, seen: &[(Seen, Partner, u64)]) -> Region {
    let seen = seen.iter().map(|&(what, partner, pages)| Sighting {
        what,
        partner,
        pages,
    });
    let seen: Vec<Sighting> = seen.collect();
    Region {
        start: START,
        end: START + 100 * PAGE_SIZE,
        level: 1,
        standing,
        left_seconds: None,
        age_seconds: 10.0,
        merged: 0,
        read_in_full,
        sampled: 50,
        hits: 1,
        broken: 0.0,
        strikes: 0,
        busy: 0,
        busy_left_seconds: None,
        huge_again_left_seconds: None,
        read: seen.iter().map(|sighting| sighting.pages).sum(),
        seen,
    }
}

fn own(partner: Partner) -> Vec<(Seen, Partner, u64)> {
    vec![(Seen::Own, partner, 100)]
}

fn reason_of(
    standing: Stands,
    full: bool,
    what: Seen,
    partner: Partner,
    terms: &Terms,
) -> Option<Reason> {
    why(what, partner, &region(standing, full, &[]), terms)
}

#[test]
fn the_standing_of_a_region_tells_before_what_its_pages_equal() {
    for (standing, reason) in [
        (Stands::Young, Reason::TooYoung),
        (Stands::ShortLived, Reason::ShortLived),
        (Stands::CowBroken, Reason::WrittenTooFast),
        (Stands::Refused, Reason::Refused),
        (Stands::Lost, Reason::Gone),
    ] {
        for partner in [Partner::Unknown, Partner::Frame] {
            let found = reason_of(standing, false, Seen::Own, partner, &terms());
            assert_eq!(found, Some(reason), "{standing:?} {partner:?}");
        }
    }
}

#[test]
fn pages_without_partners_are_told_by_how_well_they_were_looked_at() {
    for (standing, full, reason) in [
        (Stands::Unread, false, Reason::Unread),
        (Stands::Sampled, false, Reason::SampledOnly),
        (Stands::Rising, false, Reason::SampledOnly),
        (Stands::Sampled, true, Reason::NothingEqual),
        (Stands::Finished, true, Reason::NothingEqual),
        (Stands::Swept, false, Reason::BeingRead),
        (Stands::Swept, true, Reason::NothingEqual),
        (Stands::OnTrial, false, Reason::OnTrial),
    ] {
        let found = reason_of(standing, full, Seen::Own, Partner::Unknown, &terms());
        assert_eq!(found, Some(reason), "{standing:?} {full}");
    }
}

#[test]
fn what_is_seen_of_a_page_tells_before_all_else() {
    for (what, reason) in [
        (Seen::Locked, Some(Reason::Locked)),
        (Seen::Pinned, Some(Reason::Pinned)),
        (Seen::Ksm, Some(Reason::Ksm)),
        (Seen::Foreign, Some(Reason::OtherDomain)),
        (Seen::Orphan, Some(Reason::EarlierDaemon)),
        (Seen::Swapped, Some(Reason::Swapped)),
        (Seen::Poisoned, Some(Reason::Poisoned)),
        (Seen::Unclear, Some(Reason::Unclear)),
        (Seen::Frame, None),
        (Seen::Zero, None),
        (Seen::Nothing, None),
        (Seen::File, None),
    ] {
        let found = reason_of(Stands::Young, false, what, Partner::Unknown, &terms());
        assert_eq!(found, reason, "{what:?}");
    }
}

#[test]
fn settings_that_forbid_are_told_only_of_pages_that_have_partners() {
    let never = Terms {
        splits_huge_pages: false,
        ..terms()
    };
    let dry = Terms {
        dry_run: true,
        ..terms()
    };
    let full = Terms {
        frames: 1000,
        ..terms()
    };
    let short = Terms {
        no_frames_left_seconds: Some(2.0),
        ..terms()
    };
    let zeros = Terms {
        merge: "zero".to_owned(),
        ..terms()
    };
    for (terms, what, partner, reason) in [
        (&never, Seen::Huge, Partner::Page, Reason::HugeNever),
        (&never, Seen::Huge, Partner::Unknown, Reason::NothingEqual),
        (&never, Seen::Own, Partner::Page, Reason::Budget),
        (&terms(), Seen::Huge, Partner::Page, Reason::HugeKept),
        (&terms(), Seen::Own, Partner::OwnOnly, Reason::OwnOnly),
        (&terms(), Seen::Own, Partner::TooFew, Reason::TooFew),
        (&dry, Seen::Own, Partner::Page, Reason::DryRun),
        (&dry, Seen::Own, Partner::Unknown, Reason::NothingEqual),
        (&full, Seen::Own, Partner::Page, Reason::NoFrames),
        (&full, Seen::Own, Partner::Frame, Reason::Budget),
        (&short, Seen::Own, Partner::Page, Reason::NoFrames),
        (&zeros, Seen::Own, Partner::Unknown, Reason::OnlyZeros),
        (&zeros, Seen::Own, Partner::Zero, Reason::Budget),
    ] {
        let found = reason_of(Stands::Finished, true, what, partner, terms);
        assert_eq!(found, Some(reason), "{what:?} {partner:?} {terms:?}");
    }
    // While a region is being read, the partners in a huge page are not all known.
    let found = reason_of(Stands::Swept, false, Seen::Huge, Partner::Page, &terms());
    assert_eq!(found, Some(Reason::Budget));
    let mut busy = region(Stands::Finished, true, &[]);
    busy.busy_left_seconds = Some(3.0);
    let found = why(Seen::Own, Partner::Page, &busy, &terms());
    assert_eq!(found, Some(Reason::Busy));
    let found = reason_of(Stands::OnTrial, true, Seen::Own, Partner::Page, &terms());
    assert_eq!(found, Some(Reason::OnTrial));
}

fn evidence(regions: Vec<Region>) -> Evidence {
    Evidence {
        terms: Some(terms()),
        is_listed: true,
        regions,
        ..Evidence::of(Place::Followed, None)
    }
}

fn mapping(start: u64, pages: u64, kind: Kind, (resident, own): (u64, u64)) -> Mapping {
    Mapping {
        start,
        end: start + pages * PAGE_SIZE,
        name: "x".to_owned(),
        kind,
        resident,
        own,
        swapped: 0,
    }
}

fn sorted(evidence: &Evidence, all: Vec<Mapping>) -> Sorted {
    let mappings = Mappings { all, fault: None };
    Sorted::of(evidence, &mappings)
}

fn pages(sorted: &Sorted) -> Vec<(Reason, f64)> {
    let reasons = sorted.reasons.iter();
    reasons
        .map(|(&reason, amount)| (reason, amount.pages))
        .collect()
}

#[test]
fn pages_that_were_read_stand_for_all_and_amounts_add_up() {
    let seen = [
        (Seen::Frame, Partner::Unknown, 10),
        (Seen::Own, Partner::Unknown, 30),
        (Seen::Own, Partner::Page, 5),
        (Seen::Nothing, Partner::Unknown, 5),
    ];
    let evidence = evidence(vec![region(Stands::Finished, true, &seen)]);
    let sorted = sorted(
        &evidence,
        vec![mapping(START, 100, Kind::Mergeable, (90, 90))],
    );
    assert_eq!(
        pages(&sorted),
        [(Reason::Budget, 10.0), (Reason::NothingEqual, 60.0)]
    );
    assert_eq!(
        (sorted.merged, sorted.resident, sorted.unmerged),
        (20.0, 90.0, 70.0)
    );
    assert_eq!((sorted.looked_at, sorted.read_in_full), (90.0, 90.0));
    let partners = sorted.partners.unwrap();
    assert!((partners.pages - 10.0).abs() < 1e-9);
    assert!(partners.low > 4.0 && partners.low < 9.0, "{partners:?}");
    assert!(partners.high > 11.0 && partners.high < 18.0, "{partners:?}");
    let example = sorted.reasons[&Reason::Budget].example.clone();
    assert_eq!(
        example,
        Some((START, START + 100 * PAGE_SIZE, "x".to_owned()))
    );
}

#[test]
fn memory_in_no_region_is_told_by_its_mapping() {
    for (kind, reason) in [
        (Kind::Shared, Reason::Shared),
        (Kind::Hugetlb, Reason::Hugetlb),
        (Kind::Device, Reason::Device),
        (Kind::Userfault, Reason::Userfault),
        (Kind::Special, Reason::Special),
        (Kind::ReadOnlyFile, Reason::ReadOnlyFile),
        (Kind::NoAccess, Reason::NoAccess),
        (Kind::LeftToKsm, Reason::LeftToKsm),
        (Kind::Mergeable, Reason::NewMapping),
    ] {
        let sorted = sorted(&evidence(vec![]), vec![mapping(START, 64, kind, (40, 40))]);
        assert_eq!(pages(&sorted), [(reason, 40.0)], "{kind:?}");
    }
    let library = mapping(START, 64, Kind::ReadOnlyFile, (40, 4));
    let sorted = sorted(&evidence(vec![]), vec![library]);
    assert_eq!(
        pages(&sorted),
        [(Reason::FilePages, 36.0), (Reason::ReadOnlyFile, 4.0)]
    );
}

#[test]
fn memory_that_a_region_had_is_counted_once_when_its_mapping_is_closed() {
    let seen = [
        (Seen::Frame, Partner::Unknown, 10),
        (Seen::Refused, Partner::Unknown, 90),
    ];
    let evidence = evidence(vec![region(Stands::Refused, true, &seen)]);
    let tracked = sorted(
        &evidence,
        vec![mapping(START, 100, Kind::Userfault, (100, 100))],
    );
    assert_eq!(pages(&tracked), [(Reason::Userfault, 90.0)]);
    assert_eq!((tracked.merged, tracked.looked_at), (10.0, 0.0));
    let open = sorted(
        &evidence,
        vec![mapping(START, 100, Kind::Mergeable, (100, 100))],
    );
    assert_eq!(pages(&open), [(Reason::Refused, 90.0)]);
}

#[test]
fn what_is_left_out_and_what_is_sparse_is_told_apart_from_what_is_new() {
    let large = || mapping(START, 100_000, Kind::Mergeable, (5000, 5000));
    let mut left_out = evidence(vec![]);
    left_out.left_out_pages = 100_000;
    assert_eq!(
        pages(&sorted(&left_out, vec![large()])),
        [(Reason::LeftOut, 5000.0)]
    );
    let found = region(Stands::Finished, true, &own(Partner::Unknown));
    let mut sparse = evidence(vec![found.clone()]);
    sparse.sparse = vec![Range {
        start: START,
        end: START + 100_000 * PAGE_SIZE,
    }];
    assert_eq!(
        pages(&sorted(&sparse, vec![large()])),
        [(Reason::Sparse, 4900.0), (Reason::NothingEqual, 100.0)]
    );
    // Without either, the rest of a mapping that is partly in regions was filled meanwhile.
    let filled = sorted(&evidence(vec![found]), vec![large()]);
    assert_eq!(pages(&filled), [(Reason::NothingEqual, 100.0)]);
}

#[test]
fn a_process_that_is_not_followed_has_one_reason() {
    for (place, reason) in [
        (Place::NotChosen, Some(Reason::NotChosen)),
        (Place::Excluded, Some(Reason::Excluded)),
        (Place::KernelThread, Some(Reason::KernelThread)),
        (Place::Daemon, Some(Reason::Daemon)),
        (Place::NotAttached, Some(Reason::NotAttached)),
        (Place::Leaving, Some(Reason::Leaving)),
        (Place::Waiting, Some(Reason::Waiting)),
        (Place::Followed, Some(Reason::NotListed)),
        (Place::Gone, None),
        (Place::Ended, None),
    ] {
        assert_eq!(of_process(&Evidence::of(place, None)), reason, "{place:?}");
    }
    let silent = Evidence::of(Place::Followed, Some("dead".to_owned()));
    assert_eq!(of_process(&silent), Some(Reason::NoAnswer));
    assert_eq!(of_process(&evidence(vec![])), None);
}

#[test]
fn a_sum_names_the_process_that_has_most_of_a_reason() {
    let one = Sorted::whole(Reason::NotChosen, 10.0, None);
    let two = sorted(
        &evidence(vec![region(Stands::Finished, true, &own(Partner::Unknown))]),
        vec![mapping(START, 100, Kind::Mergeable, (100, 100))],
    );
    let mut sum = Sorted::default();
    sum.plus(&one, "a (1)");
    sum.plus(&two, "b (2)");
    sum.plus(&two, "c (3)");
    assert_eq!(sum.resident, 210.0);
    let by_amount = sum.by_amount();
    assert_eq!(by_amount[0].0, Reason::NothingEqual);
    assert_eq!(by_amount[0].1.pages, 200.0);
    let (_, _, name) = by_amount[0].1.example.clone().unwrap();
    assert_eq!(name, "b (2) x");
}

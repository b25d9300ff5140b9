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
fn region(
    standing: RegionStanding,
    read_in_full: bool,
    seen: &[(PageKind, Partner, u64)],
) -> Region {
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

fn own(partner: Partner) -> Vec<(PageKind, Partner, u64)> {
    vec![(PageKind::Own, partner, 100)]
}

fn reason_of(
    standing: RegionStanding,
    full: bool,
    what: PageKind,
    partner: Partner,
    terms: &Terms,
) -> Option<Reason> {
    why(what, partner, &region(standing, full, &[]), terms)
}

#[test]
fn standing_of_a_region_decides_before_partners() {
    for (standing, reason) in [
        (RegionStanding::Young, Reason::TooYoung),
        (RegionStanding::ShortLived, Reason::ShortLived),
        (RegionStanding::CowBroken, Reason::WrittenTooFast),
        (RegionStanding::Refused, Reason::Refused),
        (RegionStanding::Lost, Reason::Gone),
    ] {
        for partner in [Partner::Unknown, Partner::Frame] {
            let found = reason_of(standing, false, PageKind::Own, partner, &terms());
            assert_eq!(found, Some(reason), "{standing:?} {partner:?}");
        }
    }
}

#[test]
fn reason_for_pages_without_partners_depends_on_how_much_was_read() {
    for (standing, full, reason) in [
        (RegionStanding::Unread, false, Reason::Unread),
        (RegionStanding::Sampled, false, Reason::SampledOnly),
        (RegionStanding::Rising, false, Reason::SampledOnly),
        (RegionStanding::Sampled, true, Reason::NothingEqual),
        (RegionStanding::Finished, true, Reason::NothingEqual),
        (RegionStanding::Swept, false, Reason::BeingRead),
        (RegionStanding::Swept, true, Reason::NothingEqual),
        (RegionStanding::OnTrial, false, Reason::OnTrial),
    ] {
        let found = reason_of(standing, full, PageKind::Own, Partner::Unknown, &terms());
        assert_eq!(found, Some(reason), "{standing:?} {full}");
    }
}

#[test]
fn kind_of_a_page_decides_first() {
    for (what, reason) in [
        (PageKind::Locked, Some(Reason::Locked)),
        (PageKind::Pinned, Some(Reason::Pinned)),
        (PageKind::Ksm, Some(Reason::Ksm)),
        (PageKind::Foreign, Some(Reason::OtherDomain)),
        (PageKind::Orphan, Some(Reason::EarlierDaemon)),
        (PageKind::Swapped, Some(Reason::Swapped)),
        (PageKind::Poisoned, Some(Reason::Poisoned)),
        (PageKind::Unclear, Some(Reason::Unclear)),
        (PageKind::Frame, None),
        (PageKind::Zero, None),
        (PageKind::Nothing, None),
        (PageKind::File, None),
    ] {
        let found = reason_of(
            RegionStanding::Young,
            false,
            what,
            Partner::Unknown,
            &terms(),
        );
        assert_eq!(found, reason, "{what:?}");
    }
}

#[test]
fn settings_are_a_reason_only_for_pages_with_partners() {
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
        (&never, PageKind::Huge, Partner::Page, Reason::HugeNever),
        (
            &never,
            PageKind::Huge,
            Partner::Unknown,
            Reason::NothingEqual,
        ),
        (&never, PageKind::Own, Partner::Page, Reason::Budget),
        (&terms(), PageKind::Huge, Partner::Page, Reason::HugeKept),
        (&terms(), PageKind::Own, Partner::OwnOnly, Reason::OwnOnly),
        (&terms(), PageKind::Own, Partner::TooFew, Reason::TooFew),
        (&dry, PageKind::Own, Partner::Page, Reason::DryRun),
        (&dry, PageKind::Own, Partner::Unknown, Reason::NothingEqual),
        (&full, PageKind::Own, Partner::Page, Reason::NoFrames),
        (&full, PageKind::Own, Partner::Frame, Reason::Budget),
        (&short, PageKind::Own, Partner::Page, Reason::NoFrames),
        (&zeros, PageKind::Own, Partner::Unknown, Reason::OnlyZeros),
        (&zeros, PageKind::Own, Partner::Zero, Reason::Budget),
    ] {
        let found = reason_of(RegionStanding::Finished, true, what, partner, terms);
        assert_eq!(found, Some(reason), "{what:?} {partner:?} {terms:?}");
    }
    // While a region is being read, the partners in a huge page are not all known.
    let found = reason_of(
        RegionStanding::Swept,
        false,
        PageKind::Huge,
        Partner::Page,
        &terms(),
    );
    assert_eq!(found, Some(Reason::Budget));
    let mut busy = region(RegionStanding::Finished, true, &[]);
    busy.busy_left_seconds = Some(3.0);
    let found = why(PageKind::Own, Partner::Page, &busy, &terms());
    assert_eq!(found, Some(Reason::Busy));
    let found = reason_of(
        RegionStanding::OnTrial,
        true,
        PageKind::Own,
        Partner::Page,
        &terms(),
    );
    assert_eq!(found, Some(Reason::OnTrial));
}

fn evidence(regions: Vec<Region>) -> Evidence {
    Evidence {
        terms: Some(terms()),
        is_listed: true,
        regions,
        ..Evidence::of(ProcessStanding::Followed, None)
    }
}

fn mapping(start: u64, pages: u64, kind: MappingKind, (resident, own): (u64, u64)) -> Mapping {
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

fn breakdown(evidence: &Evidence, all: Vec<Mapping>) -> Breakdown {
    let mappings = Mappings { all, fault: None };
    Breakdown::of(evidence, &mappings)
}

fn pages(breakdown: &Breakdown) -> Vec<(Reason, f64)> {
    let reasons = breakdown.reasons.iter();
    reasons
        .map(|(&reason, amount)| (reason, amount.pages))
        .collect()
}

#[test]
fn pages_that_were_read_stand_for_all_and_amounts_add_up() {
    let seen = [
        (PageKind::Frame, Partner::Unknown, 10),
        (PageKind::Own, Partner::Unknown, 30),
        (PageKind::Own, Partner::Page, 5),
        (PageKind::Nothing, Partner::Unknown, 5),
    ];
    let evidence = evidence(vec![region(RegionStanding::Finished, true, &seen)]);
    let breakdown = breakdown(
        &evidence,
        vec![mapping(START, 100, MappingKind::Mergeable, (90, 90))],
    );
    assert_eq!(
        pages(&breakdown),
        [(Reason::Budget, 10.0), (Reason::NothingEqual, 60.0)]
    );
    assert_eq!(
        (breakdown.merged, breakdown.resident, breakdown.unmerged),
        (20.0, 90.0, 70.0)
    );
    assert_eq!((breakdown.looked_at, breakdown.read_in_full), (90.0, 90.0));
    let partners = breakdown.partners.unwrap();
    assert!((partners.pages - 10.0).abs() < 1e-9);
    assert!(partners.low > 4.0 && partners.low < 9.0, "{partners:?}");
    assert!(partners.high > 11.0 && partners.high < 18.0, "{partners:?}");
    let example = breakdown.reasons[&Reason::Budget].example.clone();
    assert_eq!(
        example,
        Some((START, START + 100 * PAGE_SIZE, "x".to_owned()))
    );
}

#[test]
fn memory_in_no_region_is_classified_by_its_mapping() {
    for (kind, reason) in [
        (MappingKind::Shared, Reason::Shared),
        (MappingKind::Hugetlb, Reason::Hugetlb),
        (MappingKind::Device, Reason::Device),
        (MappingKind::Userfault, Reason::Userfault),
        (MappingKind::Special, Reason::Special),
        (MappingKind::ReadOnlyFile, Reason::ReadOnlyFile),
        (MappingKind::NoAccess, Reason::NoAccess),
        (MappingKind::LeftToKsm, Reason::LeftToKsm),
        (MappingKind::Mergeable, Reason::NewMapping),
    ] {
        let breakdown = breakdown(&evidence(vec![]), vec![mapping(START, 64, kind, (40, 40))]);
        assert_eq!(pages(&breakdown), [(reason, 40.0)], "{kind:?}");
    }
    let library = mapping(START, 64, MappingKind::ReadOnlyFile, (40, 4));
    let breakdown = breakdown(&evidence(vec![]), vec![library]);
    assert_eq!(
        pages(&breakdown),
        [(Reason::FilePages, 36.0), (Reason::ReadOnlyFile, 4.0)]
    );
}

#[test]
fn memory_that_a_region_had_is_counted_once_when_its_mapping_is_closed() {
    let seen = [
        (PageKind::Frame, Partner::Unknown, 10),
        (PageKind::Refused, Partner::Unknown, 90),
    ];
    let evidence = evidence(vec![region(RegionStanding::Refused, true, &seen)]);
    let tracked = breakdown(
        &evidence,
        vec![mapping(START, 100, MappingKind::Userfault, (100, 100))],
    );
    assert_eq!(pages(&tracked), [(Reason::Userfault, 90.0)]);
    assert_eq!((tracked.merged, tracked.looked_at), (10.0, 0.0));
    let open = breakdown(
        &evidence,
        vec![mapping(START, 100, MappingKind::Mergeable, (100, 100))],
    );
    assert_eq!(pages(&open), [(Reason::Refused, 90.0)]);
}

#[test]
fn left_out_sparse_and_new_memory_have_different_reasons() {
    let large = || mapping(START, 100_000, MappingKind::Mergeable, (5000, 5000));
    let mut left_out = evidence(vec![]);
    left_out.left_out_pages = 100_000;
    assert_eq!(
        pages(&breakdown(&left_out, vec![large()])),
        [(Reason::LeftOut, 5000.0)]
    );
    let found = region(RegionStanding::Finished, true, &own(Partner::Unknown));
    let mut sparse = evidence(vec![found.clone()]);
    sparse.sparse = vec![Range {
        start: START,
        end: START + 100_000 * PAGE_SIZE,
    }];
    assert_eq!(
        pages(&breakdown(&sparse, vec![large()])),
        [(Reason::Sparse, 4900.0), (Reason::NothingEqual, 100.0)]
    );
    // Without either, the rest of a mapping that is partly in regions was filled meanwhile.
    let filled = breakdown(&evidence(vec![found]), vec![large()]);
    assert_eq!(pages(&filled), [(Reason::NothingEqual, 100.0)]);
}

#[test]
fn a_process_that_is_not_followed_has_one_reason() {
    for (place, reason) in [
        (ProcessStanding::NotChosen, Some(Reason::NotChosen)),
        (ProcessStanding::Excluded, Some(Reason::Excluded)),
        (ProcessStanding::KernelThread, Some(Reason::KernelThread)),
        (ProcessStanding::Daemon, Some(Reason::Daemon)),
        (ProcessStanding::NotAttached, Some(Reason::NotAttached)),
        (ProcessStanding::Leaving, Some(Reason::Leaving)),
        (ProcessStanding::Waiting, Some(Reason::Waiting)),
        (ProcessStanding::Followed, Some(Reason::NotListed)),
        (ProcessStanding::Gone, None),
        (ProcessStanding::Ended, None),
    ] {
        assert_eq!(of_process(&Evidence::of(place, None)), reason, "{place:?}");
    }
    let silent = Evidence::of(ProcessStanding::Followed, Some("dead".to_owned()));
    assert_eq!(of_process(&silent), Some(Reason::NoAnswer));
    assert_eq!(of_process(&evidence(vec![])), None);
}

#[test]
fn a_sum_names_the_process_that_has_most_of_a_reason() {
    let one = Breakdown::whole(Reason::NotChosen, 10.0, None);
    let two = breakdown(
        &evidence(vec![region(
            RegionStanding::Finished,
            true,
            &own(Partner::Unknown),
        )]),
        vec![mapping(START, 100, MappingKind::Mergeable, (100, 100))],
    );
    let mut sum = Breakdown::default();
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

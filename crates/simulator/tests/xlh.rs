//! XLH as published, beside the ksmd on which it is built.

use uksm_policy::command::{Hint, HintSource, Nanos, PAGE_SIZE, SpaceId};
use uksm_simulator::peer::{Entered, Ksm, KsmSettings, Xlh, XlhSettings};
use uksm_simulator::workload::{Disks, Load};
use uksm_simulator::{Alone, Content, Costs, Deduplicator, Driven, Fill, Host, Workload, World};

const S: Nanos = 1_000_000_000;
const START: u64 = 1 << 40;

/// 100 pages each 20 ms (XLH Table 1).
const KSM: KsmSettings = KsmSettings {
    pages_to_scan: 100,
    sleep: 20_000_000,
    smart_scan: false,
    advisor: false,
    cap_percent: None,
};
const XLH: XlhSettings = XlhSettings {
    ksm: KSM,
    hint_runs: 1,
    scan_runs: 1,
    stack: 40_960,
    entered: Entered::ReadOnly,
};

/// A process whose pages are all different, with an action each 0.1 s.
struct DistinctPages<F> {
    pages: u64,
    happens: F,
    space: Option<SpaceId>,
    step: u64,
}

impl<F: FnMut(&mut Host, SpaceId, u64)> Workload for DistinctPages<F> {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        let space = *self.space.get_or_insert_with(|| {
            let space = host.spawn(1);
            let unique = |page| Content::new((1 << 40) + page);
            host.map(space, START, self.pages, 1, &Fill::Dense(&unique));
            space
        });
        (self.happens)(host, space, self.step);
        self.step += 1;
        Some(now + S / 10)
    }
}

fn pages(pages: u64, happens: impl FnMut(&mut Host, SpaceId, u64) + 'static) -> Box<dyn Workload> {
    Box::new(DistinctPages {
        pages,
        happens,
        space: None,
        step: 0,
    })
}

fn alone<D: Deduplicator>(workload: Box<dyn Workload>, deduplicator: D) -> Alone<D> {
    let mut host = Host::new(1, Costs::default());
    host.count_chances();
    Alone::new(World::new(host, vec![workload]), deduplicator)
}

fn xlh(settings: XlhSettings, workload: Box<dyn Workload>) -> Alone<Xlh> {
    alone(workload, Xlh::new(settings, Costs::default().ksm))
}

fn until<D: Deduplicator>(alone: &mut Alone<D>, end: Nanos) {
    while alone.now() < end {
        alone.turn();
    }
    let audit = alone.world.host.audit();
    assert_eq!(
        (audit.wrong, audit.saved()),
        (None, alone.world.host.saved())
    );
}

/// I/O brings contents into a page.
fn read(host: &mut Host, space: SpaceId, page: u64, content: u64) {
    let start = START + page * PAGE_SIZE;
    host.write(space, start, Content::new(content));
    host.hint(Hint {
        start,
        length: PAGE_SIZE,
        space,
        source: HintSource::Read,
        place: None,
    });
}

/// A guest that reads the same into two pages far above the scan.
fn pair() -> Box<dyn Workload> {
    pages(100_000, |host, space, step| {
        if step == 10 {
            for page in [90_000, 95_000] {
                read(host, space, page, 7);
            }
        }
    })
}

#[test]
fn two_pages_that_were_just_read_are_merged_at_the_next_wake_up_though_their_checksums_are_new() {
    let mut with = xlh(XLH, pair());
    until(&mut with, S + S / 5);
    assert_eq!(with.world.host.saved(), 1);
    let ksm = Ksm::new(KSM, Costs::default().ksm)
        .on_a_tree()
        .frames_first();
    let mut without = alone(pair(), ksm);
    until(&mut without, 10 * S);
    assert_eq!(without.world.host.saved(), 0);
}

#[test]
fn without_hint_spurts_it_is_ksm() {
    let build = || Box::new(Disks::new(Load::Build, 3, 1024, 5));
    let settings = XlhSettings {
        hint_runs: 0,
        ..XLH
    };
    let mut none = xlh(settings, build());
    let ksm = Ksm::new(KSM, Costs::default().ksm)
        .on_a_tree()
        .frames_first();
    let mut ksm = alone(build(), ksm);
    until(&mut none, 60 * S);
    until(&mut ksm, 60 * S);
    assert_eq!(none.spent(), ksm.spent());
    let [one, other] = [&mut none.world.host, &mut ksm.world.host]
        .map(|host| host.chances().expect("they are counted").areas());
    assert_eq!(one, other);
    assert!(one.0 > 0.0);
}

#[test]
fn hints_share_more_than_twice_what_ksm_does_at_the_same_rate() {
    for load in [Load::Build, Load::Web] {
        let disks = || Box::new(Disks::new(load, 16, 8192, 2));
        let mut with = xlh(XLH, disks());
        let mut without = alone(disks(), Ksm::new(KSM, Costs::default().ksm).on_a_tree());
        until(&mut with, 90 * S);
        until(&mut without, 90 * S);
        let (saved, mergeable) = with.world.host.chances().unwrap().areas();
        let (by_ksm, _) = without.world.host.chances().unwrap().areas();
        eprintln!("{load:?}: {saved} and {by_ksm} of {mergeable}");
        assert!(saved >= 2.0 * by_ksm, "{saved} and {by_ksm}");
        assert!(saved >= 0.8 * mergeable, "{saved} of {mergeable}");
    }
}

/// Pages that come into the tree by hints, and are written later by a program, without hints.
fn written_later() -> Box<dyn Workload> {
    pages(40_000, |host, space, step| {
        for n in 0..100 {
            let page = 20_000 + (step * 100 + n) % 20_000;
            read(host, space, page, (2 << 40) + step * 100 + n);
            if step >= 10 && n % 4 == 0 {
                let older = 20_000 + (step * 100 + n - 1000) % 20_000;
                let content = Content::new((3 << 40) + step * 100 + n);
                host.write(space, START + older * PAGE_SIZE, content);
            }
        }
    })
}

#[test]
fn a_read_only_tree_stays_whole_and_a_writable_one_does_not() {
    let [read_only, writable] = [Entered::ReadOnly, Entered::Writable].map(|entered| {
        let mut alone = xlh(XlhSettings { entered, ..XLH }, written_later());
        while alone.deduplicator.ksm().full_scans() < 3 {
            alone.turn();
        }
        let found = alone.deduplicator.reachability();
        eprintln!(
            "{entered:?}: {found:?}, {} faults",
            alone.deduplicator.faults()
        );
        (found, alone.deduplicator.faults())
    });
    assert!(read_only.0.found * 1000 >= read_only.0.pages * 998);
    assert!(writable.0.found * 100 <= writable.0.pages * 90);
    assert!(read_only.1 > 1000 && writable.1 == 0);
}

#[test]
fn a_flood_of_hints_leaves_the_scan_half_of_the_pages() {
    let flood = pages(20_000, |host, space, step| {
        for page in 0..10_000 {
            read(host, space, page, (2 << 40) + step * 10_000 + page);
        }
    });
    let mut alone = xlh(XLH, flood);
    until(&mut alone, 10 * S);
    let xlh = &alone.deduplicator;
    let scanned = xlh.ksm().scanned();
    assert!(xlh.overwritten() > 100_000, "{}", xlh.overwritten());
    let share = xlh.hinted() as f64 / scanned as f64;
    assert!((0.45..0.55).contains(&share), "{share}");
}

#[test]
fn what_could_be_merged_is_counted_as_a_look_at_all_pages_counts_it() {
    for load in [Load::Build, Load::Web] {
        let disks = Box::new(Disks::new(load, 4, 8192, 9));
        let params = uksm_policy::Params::governor(uksm_policy::params::Governor::Full);
        let mut alone = alone(disks, Driven::new(params, 1, 0).unwrap());
        for second in [5, 20, 45, 90] {
            until(&mut alone, second * S);
            let host = &mut alone.world.host;
            let counted = host.mergeable();
            assert_eq!(host.chances().unwrap().mergeable(), counted, "{load:?}");
            assert!(second < 90 || counted > 1000, "{load:?}: {counted}");
        }
        let host = &mut alone.world.host;
        let chances = host.chances().unwrap();
        let (saved, mergeable) = chances.areas();
        assert!(saved <= mergeable && chances.taken() > 1000, "{load:?}");
    }
}

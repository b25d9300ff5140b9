//! Parts of scenarios: hosts of known contents, and waiting until they are merged.

#![allow(dead_code, reason = "each test program uses its part")]

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Costs, Fill, Host, Run};

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const S: Nanos = 1000 * MS;
pub(crate) const SEED: u64 = 42;
pub(crate) const MIB: u64 = 256;
pub(crate) const HEAP: u64 = 1;

pub(crate) fn full() -> Params {
    Params::governor(Governor::Full)
}

pub(crate) fn host() -> Host {
    Host::new(SEED, Costs::default())
}

/// A run on `host` whose processes have been there for long.
pub(crate) fn run(params: Params, host: Host) -> Run {
    Run::new(params, SEED, host).unwrap()
}

pub(crate) fn base(number: u64) -> u64 {
    0x7000_0000_0000 + number * (1 << 36)
}

/// Contents that no other owner has, by an owner's number and the page.
pub(crate) fn unique(owner: u64) -> impl Fn(u64) -> Content {
    move |page| Content::new((owner << 40) + page + 1)
}

/// The same from a first page on, one after the other.
pub(crate) fn contents(
    owner: u64,
    first: u64,
    pages: u64,
) -> impl ExactSizeIterator<Item = Content> {
    let first = (owner << 40) + first;
    let pages = u32::try_from(pages).unwrap();
    (0..pages).map(move |page| Content::new(first + u64::from(page) + 1))
}

/// Processes of 50 pages that no other process shares, and that have existed for long.
pub(crate) fn bystanders(host: &mut Host) {
    for number in 0..6 {
        let space = host.spawn(number);
        let contents = unique(100 + number);
        host.map(space, base(number + 1), 50, HEAP, &Fill::Dense(&contents));
    }
}

/// A process reads a file into its memory from `start` on, these pages, and a hint reports it.
pub(crate) fn read_file(
    host: &mut Host,
    space: SpaceId,
    start: u64,
    contents: impl ExactSizeIterator<Item = Content>,
    place: FilePlace,
) {
    let length = contents.len() as u64 * PAGE_SIZE;
    for (page, content) in (0..).zip(contents) {
        host.write(space, start + page * PAGE_SIZE, content);
    }
    host.hint(Hint {
        start,
        length,
        space,
        source: HintSource::Read,
        place: Some(place),
    });
}

pub(crate) fn show(run: &Run) -> String {
    let r = run.engine.report();
    format!(
        "t {:.2} s, cpu {:.3} s, saved {}, mergeable {}, sampled {}, strength {} ({}), levels {:?}, moves {:?}, outcomes {:?}, discovery {} ms",
        run.now() as f64 / 1e9,
        run.spent() as f64 / 1e9,
        run.host.saved(),
        run.host.mergeable(),
        r.sampling.pages,
        r.strength.lines,
        r.strength.changes,
        r.levels
            .iter()
            .map(|l| (l.regions, l.sampled, (l.used_seconds * 1e3).round()))
            .collect::<Vec<_>>(),
        r.promotions,
        r.outcomes,
        (r.cpu.discovery_seconds * 1e3).round(),
    )
}

pub(crate) fn assert_balanced(run: &Run) {
    let report = run.engine.report();
    assert!(report.outcomes.balances(), "{:?}", report.outcomes);
}

/// Time and processor time until `percent` of the mergeable pages are merged.
pub(crate) fn merge(run: &mut Run, percent: u64, within: Nanos) -> (Nanos, Nanos) {
    let wanted = run.host.mergeable() * percent / 100;
    let spent = run.spent();
    let time = run.until_done(within, |host| host.saved() >= wanted);
    let time = time.unwrap_or_else(|| panic!("not merged: {}", show(run)));
    eprintln!("merged: {}", show(run));
    assert_balanced(run);
    (time, run.spent() - spent)
}

pub(crate) fn clones(pages: u64, offset: u64) -> Host {
    let mut host = host();
    for number in 0..2 {
        let space = host.spawn(number);
        let start = base(1) + number * offset;
        host.map(space, start, pages, HEAP, &Fill::Dense(&unique(1)));
    }
    host
}

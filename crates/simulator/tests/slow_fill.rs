//! Memory that fills little by little, as in processes: equal pages must be found soon after the
//! last page, in any order and at any rate.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Fill, Host};

/// Equal pages come in runs of this length.
const RUN: u64 = 32;

/// Two processes that fill one mapping each.
#[derive(Debug)]
struct Filling {
    pages: u64,
    /// Percentage of pages that the other process has, too, in other places.
    share: u64,
    begin: Nanos,
    takes: Nanos,
    /// Whether the second process begins after the first.
    serial: bool,
    /// Order of the pages: this factor is odd, and 1 fills in order.
    stride: u64,
    /// Pages of a folio that the first write of one brings; 1 for small pages.
    folio: u64,
    spaces: [SpaceId; 2],
    filled: [u64; 2],
}

impl Filling {
    /// The content of a page of process `who`.
    fn content(&self, who: u64, page: u64) -> Content {
        let runs = self.pages / RUN;
        let run = (page / RUN * 7919 + who * 13 * RUN) % runs;
        if run * 100 / runs < self.share {
            Content::new((50 << 40) + run * RUN + page % RUN + 1)
        } else {
            Content::new(((60 + who) << 40) + page + 1)
        }
    }

    fn act(&mut self, host: &mut Host, now: Nanos) {
        if now < self.begin {
            return;
        }
        if self.filled == [0, 0] {
            for space in self.spaces {
                if host.page(space, base(50)).is_none() {
                    let fill = match self.folio {
                        1 => Fill::Sparse(&[]),
                        folio => Fill::Folios(folio),
                    };
                    host.map(space, base(50), self.pages, HEAP, &fill);
                }
            }
        }
        let passed = (now - self.begin).min(self.takes);
        for who in 0..2u64 {
            let at = usize::from(who == 1);
            let (passed, takes) = if self.serial {
                let half = self.takes / 2;
                (passed.saturating_sub(who * half).min(half), half)
            } else {
                (passed, self.takes)
            };
            while self.filled[at] < self.pages * passed / takes {
                let page = self.filled[at] * self.stride % self.pages;
                let content = self.content(who, page);
                host.write(self.spaces[at], base(50) + page * PAGE_SIZE, content);
                self.filled[at] += 1;
            }
        }
    }
}

/// The time from the last page until 95 percent of the equal pages are merged, if that is within a
/// minute.
fn merged_after(random: &mut SplitMix64, governor: Governor) -> (Option<Nanos>, String) {
    let mut host = host();
    bystanders(&mut host);
    let mut run = run(Params::governor(governor), host);
    run.quietly_until(60 * S + random.below(2 * S));
    let mut filling = Filling {
        pages: (64 << random.below(3)) * MIB,
        share: [2, 5, 20, 45][usize::try_from(random.below(4)).unwrap()],
        begin: run.now() + random.below(300) * MS,
        takes: (1 + random.below(50)) * 100 * MS,
        serial: random.below(2) == 0,
        stride: [1, 1, 6007][usize::try_from(random.below(3)).unwrap()],
        folio: 1,
        spaces: [1, 2].map(|_| run.host.spawn(7000)),
        filled: [0; 2],
    };
    let what = format!("{governor:?} {filling:?}");
    let end = filling.begin + filling.takes + 10 * MS;
    run.until(end, |host, now| filling.act(host, now));
    assert_eq!(filling.filled, [filling.pages; 2]);
    let wanted = run.host.mergeable() * 95 / 100;
    let time = run.until_done(end + 60 * S, |host| host.saved() >= wanted);
    (time, format!("{what}: {}", show(&run)))
}

#[test]
fn what_was_filled_slowly_is_merged_as_soon_as_what_was_filled_at_once() {
    for (governor, bound, hosts) in [(Governor::Full, 3 * S, 80), (Governor::Medium, 6 * S, 40)] {
        let mut random = SplitMix64::new(5);
        let mut slowest = 0;
        for _ in 0..hosts {
            let (time, what) = merged_after(&mut random, governor);
            assert!(time.is_some_and(|time| time <= bound), "{time:?} {what}");
            slowest = slowest.max(time.unwrap_or(0));
        }
        eprintln!(
            "{governor:?}: {hosts} hosts, the slowest {} ms",
            slowest / MS
        );
    }
}

/// Guests fill their memory within a minute, pages at random places: a page is read when it has
/// come, and then as seldom as if all had come at once.
#[test]
fn what_is_filled_slowly_and_anywhere_is_not_read_again_and_again() {
    let mut most = 0;
    for (stride, share) in [(1, 50), (33, 20), (513, 50), (6007, 90)] {
        let mut run = run(Params::governor(Governor::Full), host());
        let mut filling = Filling {
            pages: 128 * MIB,
            share,
            begin: 10 * MS,
            takes: 40 * S,
            serial: false,
            stride,
            folio: 1,
            spaces: [1, 2].map(|_| run.host.spawn(7000)),
            filled: [0; 2],
        };
        run.until(42 * S, |host, now| filling.act(host, now));
        run.quietly_until(50 * S);
        let (reads, pages) = (run.host.reads, 2 * filling.pages);
        eprintln!("stride {stride}, {share} %: {reads} reads of {pages} pages");
        assert!(run.host.saved() * 100 >= run.host.mergeable() * 98);
        most = most.max(reads.div_ceil(pages));
    }
    assert!(most <= 12, "{most} reads of a page");
}

/// Two processes fill their memory in order, with the same contents, while the daemon scans: pages
/// are read some times each, in large folios too.
#[test]
fn what_is_filled_with_large_folios_is_not_read_again_and_again() {
    for takes in [2 * S, 8 * S] {
        let mut most = 0;
        for folio in [1, 16, 512] {
            let mut run = run(Params::governor(Governor::Full), host());
            let mut filling = Filling {
                pages: 128 * MIB,
                share: 100,
                begin: 10 * MS,
                takes,
                serial: false,
                stride: 1,
                folio,
                spaces: [1, 2].map(|_| run.host.spawn(7000)),
                filled: [0; 2],
            };
            run.until(takes + 2 * S, |host, now| filling.act(host, now));
            run.quietly_until(takes + 20 * S);
            assert!(
                run.host.saved() * 100 >= run.host.mergeable() * 98,
                "{}",
                show(&run)
            );
            let (reads, pages) = (run.host.reads, 2 * filling.pages);
            eprintln!("folios of {folio}: {reads} reads of {pages} pages");
            most = most.max(reads.div_ceil(pages));
        }
        assert!(most <= 6, "{most} reads of a page");
    }
}

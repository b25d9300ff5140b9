//! Programs that start: each page is written again and again at first, their heaps grow, and then
//! they rest. Pages merged too early are broken, which must not keep the rest apart for long.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;
use uksm_policy::params::{Governor, Params};
use uksm_simulator::{Content, Fill, Host};

/// A time in which all processes write, and the size of their heaps at its end.
#[derive(Debug, Clone, Copy)]
struct Burst {
    begin: Nanos,
    takes: Nanos,
    pages: u64,
}

/// Processes that run the same program.
#[derive(Debug)]
struct Program {
    processes: u64,
    bursts: Vec<Burst>,
    /// Mappings of 1 to 300 pages beside the heap, which come with the first burst.
    mappings: u64,
    /// One page in this many belongs to each process alone.
    own: u64,
    /// Whether equal pages lie at other places in each process.
    is_shuffled: bool,
    spaces: Vec<SpaceId>,
    heap: u64,
    random: SplitMix64,
    done: Nanos,
}

impl Program {
    fn pages_of(mapping: u64) -> u64 {
        1 + mapping * mapping * 7 % 300
    }

    /// The content of a page after `written` writes.
    fn content(&self, process: u64, mapping: u64, page: u64, written: u64) -> Content {
        let page = if self.is_shuffled {
            let pages = match (mapping, self.bursts.last()) {
                (0, Some(last)) => last.pages,
                _ => Program::pages_of(mapping),
            };
            (page + process * 13 % pages) % pages
        } else {
            page
        };
        let owner = if page.is_multiple_of(self.own) {
            1 + process
        } else {
            0
        };
        Content::new((owner << 50) + (written << 36) + (mapping << 24) + page + 1)
    }

    /// Writes a page of each process.
    fn write(&self, host: &mut Host, mapping: u64, page: u64, written: u64) {
        for (process, &space) in (0..).zip(&self.spaces) {
            let content = self.content(process, mapping, page, written);
            host.write(space, base(50 + mapping) + page * PAGE_SIZE, content);
        }
    }

    fn act(&mut self, host: &mut Host, now: Nanos) {
        for number in 0..self.bursts.len() {
            let burst = self.bursts[number];
            if now < burst.begin || self.done >= burst.begin + burst.takes {
                continue;
            }
            if self.heap == 0 {
                self.heap = 16;
                for process in 0..self.processes {
                    let space = host.spawn(8000);
                    self.spaces.push(space);
                    let content = |page| self.content(process, 0, page, 0);
                    host.map(space, base(50), self.heap, HEAP, &Fill::Dense(&content));
                    for mapping in 1..=self.mappings {
                        let content = |page| self.content(process, mapping, page, 0);
                        let pages = Program::pages_of(mapping);
                        host.map(
                            space,
                            base(50 + mapping),
                            pages,
                            HEAP,
                            &Fill::Dense(&content),
                        );
                    }
                }
            }
            let passed = (now - burst.begin).min(burst.takes);
            let before = self.bursts[..number].last().map_or(16, |last| last.pages);
            let heap = before + (burst.pages - before) * passed / burst.takes;
            let heap = heap.max(self.heap).min(burst.pages);
            for &space in &self.spaces {
                if heap > self.heap {
                    host.grow(space, base(50), heap - self.heap);
                }
            }
            let versions = (number as u64 + 1) * 1000;
            for page in self.heap..heap {
                self.write(host, 0, page, versions);
            }
            self.heap = heap;
            self.done = burst.begin + passed;
            let is_over = passed == burst.takes;
            for mapping in 0..=self.mappings {
                let pages = if mapping == 0 {
                    heap
                } else {
                    Program::pages_of(mapping)
                };
                for page in 0..pages {
                    // Each is written every 100 ms or so, and once at the end.
                    if is_over || self.random.below(10) == 0 {
                        let version = if is_over { 999 } else { self.random.below(900) };
                        self.write(host, mapping, page, versions + version);
                    }
                }
            }
        }
    }
}

/// The time from the last write until 95 percent of the equal pages are merged, if that is within
/// 100 s.
fn merged_after(
    random: &mut SplitMix64,
    governor: Governor,
    is_shuffled: bool,
    factor: u64,
) -> (Option<Nanos>, String) {
    let mut host = host();
    bystanders(&mut host);
    let mut run = run(Params::governor(governor), host);
    run.quietly_until(10 * S);
    let mut begin = run.now() + random.below(3000) * MS;
    let mut pages = 16;
    let mut bursts = vec![];
    for _ in 0..1 + random.below(3) {
        let takes = (1 + random.below(30)) * 100 * MS;
        pages = pages * (1 + random.below(4)) + random.below(500);
        bursts.push(Burst {
            begin,
            takes,
            pages,
        });
        begin += takes + random.below(12) * S;
    }
    let mut program = Program {
        processes: (2 + random.below(5)) * factor,
        bursts,
        mappings: random.below(40),
        own: 3 + random.below(60),
        is_shuffled,
        spaces: vec![],
        heap: 0,
        random: SplitMix64::new(random.below(1 << 40)),
        done: 0,
    };
    let last = *program.bursts.last().unwrap();
    let end = last.begin + last.takes + 10 * MS;
    while run.now() < end {
        let next = run.now() + 10 * MS;
        run.until(next, |host, now| program.act(host, now));
    }
    let what = format!(
        "{governor:?} {} processes, {} mappings, 1 of {} own, {:?}",
        program.processes, program.mappings, program.own, program.bursts
    );
    let wanted = run.host.mergeable() * 95 / 100;
    let time = run.until_done(end + 100 * S, |host| host.saved() >= wanted);
    (time, format!("{what}: {}", show(&run)))
}

/// The times of `hosts` hosts under a governor, with `factor` times as many processes: the median,
/// and the longest.
fn times(governor: Governor, hosts: u64, is_shuffled: bool, factor: u64) -> (Nanos, Nanos) {
    let time = |case| {
        let random = &mut SplitMix64::new(5 + case);
        let (time, what) = merged_after(random, governor, is_shuffled, factor);
        time.unwrap_or_else(|| panic!("never merged: {what}"))
    };
    let mut found: Vec<Nanos> = (0..hosts).map(time).collect();
    found.sort_unstable();
    let (half, all) = (found[found.len() / 2], found[found.len() - 1]);
    eprintln!(
        "{governor:?}: {hosts} hosts, half within {} ms, the slowest {} ms",
        half / MS,
        all / MS
    );
    (half, all)
}

/// A round of the governor low takes eight seconds.
#[test]
fn programs_that_started_are_merged_soon_after() {
    for (governor, half, all) in [
        (Governor::Full, 4 * S, 10 * S),
        (Governor::Medium, 7 * S, 20 * S),
        (Governor::Low, 11 * S, 25 * S),
    ] {
        let found = times(governor, 24, false, 1);
        assert!(found.0 <= half && found.1 <= all, "{governor:?}");
    }
}

#[test]
fn they_are_where_equal_pages_lie_at_other_places() {
    let found = times(Governor::Full, 12, true, 1);
    assert!(found.0 <= 5 * S && found.1 <= 30 * S);
}

#[test]
fn they_are_where_dozens_start_at_once() {
    let found = times(Governor::Full, 2, false, 10);
    assert!(found.1 <= 25 * S);
}

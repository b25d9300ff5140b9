//! Processes with random actions of all kinds.

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, PAGE_SIZE, PageState, SpaceId};
use uksm_policy::mix::{SplitMix64, mix};

use super::plan::Plan;
use super::random_event::Event;
use crate::fault::Fault;
use crate::layout::{own, pooled};
use crate::{Content, Fill, Host, Workload};

/// Limit of the processes at a time, and of the mappings of one.
const MAX_PROCESSES: usize = 12;
const MAX_MAPPINGS: usize = 8;
/// Distance of mappings: the largest fits, with room to grow.
const DISTANCE: u64 = 1 << 30;
/// Limit of the pages that one event touches.
const MAX_TOUCHED: u64 = 256;

/// A mapping.
#[derive(Debug, Clone, Copy)]
struct RandomMapping {
    start: u64,
    pages: u64,
}

/// A process.
#[derive(Debug, Clone)]
struct RandomProcess {
    space: SpaceId,
    domain: u16,
    kind: u64,
    mappings: Vec<RandomMapping>,
}

/// The workload of a plan.
#[derive(Debug)]
pub(super) struct RandomProcesses {
    random: SplitMix64,
    events: Vec<Event>,
    domains: u16,
    processes: u64,
    pages: u64,
    interval: Nanos,
    end: Nanos,
    alive: Vec<RandomProcess>,
    owned: u64,
    /// Whether different pages with equal hashes are written.
    collide: bool,
}

impl RandomProcesses {
    pub(super) fn new(plan: &Plan) -> RandomProcesses {
        RandomProcesses {
            random: SplitMix64::new(mix(plan.seed)),
            events: plan.events.clone(),
            domains: plan.domains,
            processes: plan.processes,
            pages: plan.pages,
            interval: plan.interval,
            end: plan.length,
            alive: vec![],
            owned: 0,
            collide: plan
                .faults
                .iter()
                .any(|(fault, _)| *fault == Fault::Collision),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a size")
    }

    /// Contents for a page: from a pool by the page's number, so that neighbours have neighbouring
    /// twins, or others.
    fn content(&mut self, page: u64) -> Content {
        let kind = self.random.below(100);
        match kind {
            0..40 => pooled(1 + self.random.below(2), page),
            40..50 => Content::ZERO,
            50..65 => pooled(3, self.random.below(4)),
            65..85 if self.collide => {
                let alike = 1 + self.random.below(64);
                let family = 1 + self.random.below(4);
                let alike = u16::try_from(alike).expect("a number of lines");
                let id = 1 + self.random.below(50);
                if family == 4 {
                    Content::nearly_zero(id, alike)
                } else {
                    Content::similar(id, u32::try_from(family).expect("one of few"), alike)
                }
            }
            _ => {
                self.owned += 1;
                own(1, self.owned)
            }
        }
    }

    fn contents(&mut self, first: u64, pages: u64) -> Vec<Content> {
        (first..first + pages)
            .map(|page| self.content(page))
            .collect()
    }

    fn spawn(&mut self, host: &mut Host) {
        let domain = u16::try_from(self.random.below(u64::from(self.domains))).expect("a domain");
        let kind = 1 + self.random.below(3);
        let space = host.spawn_in(domain, kind);
        let mappings = vec![];
        self.alive.push(RandomProcess {
            space,
            domain,
            kind,
            mappings,
        });
        let last = self.alive.len() - 1;
        for _ in 0..=self.random.below(3) {
            self.map(host, last);
        }
    }

    fn map(&mut self, host: &mut Host, at: usize) {
        if self.alive[at].mappings.len() >= MAX_MAPPINGS {
            return;
        }
        let used: Vec<u64> = self.alive[at].mappings.iter().map(|m| m.start).collect();
        let mut places = (1..).map(|place| place * DISTANCE);
        let start =
            places.find(|place| !used.iter().any(|used| used / DISTANCE * DISTANCE == *place));
        let start = start.expect("there is always room") + self.random.below(600) * PAGE_SIZE;
        let pages = 1 + self.random.below(self.pages);
        self.fill(host, at, RandomMapping { start, pages });
    }

    fn fill(&mut self, host: &mut Host, at: usize, mapped: RandomMapping) {
        let RandomMapping { start, pages } = mapped;
        let contents = self.contents(0, pages);
        let content = |page: u64| contents[usize::try_from(page).expect("a page of it")];
        let list: Vec<(u64, Content)> = (0..pages).step_by(3).map(|p| (p, content(p))).collect();
        let fill = match self.random.below(4) {
            0 => Fill::Huge(&content),
            1 => Fill::Sparse(&list),
            _ => Fill::Dense(&content),
        };
        let space = self.alive[at].space;
        host.map(space, start, pages, 1 + self.random.below(2), &fill);
        if self.random.below(8) == 0 {
            host.refuse_zero(space, start);
        }
        self.alive[at].mappings.push(mapped);
        self.hint(host, space, start, pages);
    }

    /// Reports half of the filled pages as filled by I/O.
    fn hint(&mut self, host: &mut Host, space: SpaceId, start: u64, pages: u64) {
        let source = match self.random.below(4) {
            0 => HintSource::Read,
            1 => HintSource::Write,
            _ => return,
        };
        host.hint(Hint {
            start,
            length: pages * PAGE_SIZE,
            space,
            source,
            place: pages.is_multiple_of(2).then_some(FilePlace {
                file_size: pages,
                offset: start,
            }),
        });
    }

    fn exit(&mut self, host: &mut Host, at: usize) {
        let process = self.alive.swap_remove(at);
        host.exit(process.space);
        if host.faults.strikes(Fault::ReusedProcess) {
            let space = host.spawn_in(process.domain, process.kind);
            self.alive.push(RandomProcess {
                space,
                mappings: vec![],
                ..process
            });
            let last = self.alive.len() - 1;
            for mapped in process.mappings {
                self.fill(host, last, mapped);
            }
        }
    }

    fn unmap(&mut self, host: &mut Host, at: usize) {
        let count = self.alive[at].mappings.len();
        if count == 0 {
            return;
        }
        let which = self.below(count);
        let mapped = self.alive[at].mappings.swap_remove(which);
        host.unmap(self.alive[at].space, mapped.start);
        if host.faults.strikes(Fault::ReusedAddress) {
            self.fill(host, at, mapped);
        }
    }

    fn happen(&mut self, host: &mut Host, event: Event) {
        if self.alive.is_empty() {
            return self.spawn(host);
        }
        let count = self.alive.len();
        let at = self.below(count);
        let space = self.alive[at].space;
        match event {
            Event::Spawn if count < MAX_PROCESSES => self.spawn(host),
            Event::Fork if count < MAX_PROCESSES => {
                let space = host.fork(space);
                let parent = self.alive[at].clone();
                self.alive.push(RandomProcess { space, ..parent });
            }
            Event::Spawn | Event::Fork => {}
            Event::Exit => self.exit(host, at),
            Event::Exec => {
                let kind = 1 + self.random.below(3);
                self.alive[at].space = host.exec(space, kind);
                self.alive[at].kind = kind;
                self.alive[at].mappings.clear();
                self.map(host, at);
            }
            Event::Map => self.map(host, at),
            Event::Unmap => self.unmap(host, at),
            _ => {
                let mappings = self.alive[at].mappings.len();
                if mappings > 0 {
                    let which = self.below(mappings);
                    self.touch(host, event, at, which);
                }
            }
        }
        if host.faults.strikes(Fault::Shrunk) {
            host.shrink(self.random.below(2) == 0);
        }
    }

    /// Applies an event to one mapping or to its pages.
    fn touch(&mut self, host: &mut Host, event: Event, at: usize, which: usize) {
        let space = self.alive[at].space;
        let RandomMapping { start, pages } = self.alive[at].mappings[which];
        let first = self.random.below(pages);
        let count = 1 + self.random.below((pages - first).min(MAX_TOUCHED));
        match event {
            Event::Grow if pages < 2 * self.pages => {
                let more = 1 + self.random.below(64);
                host.grow(space, start, more);
                self.alive[at].mappings[which].pages += more;
            }
            Event::Lock => host.lock(space, start, true),
            Event::Unlock => host.lock(space, start, false),
            Event::Refuse if self.random.below(8) == 0 => host.refuse(space, start),
            Event::Poison | Event::Change => {
                let frame = host.frame_of(space, start + first * PAGE_SIZE);
                match (frame, event) {
                    (Some(frame), Event::Poison) => host.poison(frame),
                    (Some(frame), _) => host.change(frame),
                    (None, _) => {}
                }
            }
            Event::Grow | Event::Refuse => {}
            _ => {
                for page in first..first + count {
                    let address = start + page * PAGE_SIZE;
                    let state = host.page(space, address).map(|page| page.state);
                    match event {
                        Event::Write => {
                            let content = self.content(page);
                            host.write(space, address, content);
                        }
                        _ if state == Some(PageState::None) => {}
                        Event::Pin => host.pin(space, address, true),
                        Event::Unpin => host.pin(space, address, false),
                        Event::SwapOut => host.swap_out(space, address),
                        Event::Touch => host.touch(space, address),
                        _ => host.discard(space, address),
                    }
                }
                if event == Event::Write {
                    self.hint(host, space, start + first * PAGE_SIZE, count);
                }
            }
        }
    }
}

impl Workload for RandomProcesses {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        if now == 0 {
            for _ in 0..self.processes {
                self.spawn(host);
            }
        } else if !self.events.is_empty() {
            let which = self.below(self.events.len());
            self.happen(host, self.events[which]);
        }
        let next = now + 1 + self.random.below(2 * self.interval);
        (next < self.end).then_some(next)
    }
}

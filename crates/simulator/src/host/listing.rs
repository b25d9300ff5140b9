//! Process lists, mapping lists and FRAMES on the simulated host.

use uksm_policy::command::{
    EventSource, Frame, FrameId, Lines, Mapping, Nanos, Observation, PAGE_LINES, SpaceArrival,
    SpaceId, SpaceSize,
};

use super::{Host, MAX_FAULT};
use crate::fault::Fault;
use crate::frames::FrameView;

/// Age at which a newly reported process is examined.
const LOOKED_AT: Nanos = 100_000_000;

/// Process events that the machine receives.
impl Host {
    /// Queues an event that process lists report from this time on, if the domain lists processes.
    pub(super) fn tells(&mut self, domain: u16, at: Nanos) {
        if self.event_source != EventSource::Nothing && self.listeners.contains(&domain) {
            self.news.push((domain, at));
        }
    }

    /// A process begins; returns the time at which it is examined.
    pub(super) fn tells_of_arrival(&mut self, domain: u16) -> Nanos {
        if self.event_source == EventSource::Nothing || !self.listeners.contains(&domain) {
            return 0;
        }
        let at = self.now + LOOKED_AT;
        self.tells(domain, at);
        at
    }

    /// The time from which the next process list of a domain can report an event, if one is queued.
    pub(crate) fn events_at(&self, domain: u16) -> Option<Nanos> {
        let news = self.news.iter().filter(|&&(of, _)| of == domain);
        news.map(|&(_, at)| at).min()
    }
}

impl Host {
    pub(super) fn list_processes(&mut self, domain: u16) -> (Observation, Nanos) {
        self.listeners.insert(domain);
        let mut arrived = vec![];
        let mut processes = 0;
        let now = self.now;
        self.news.retain(|&(of, at)| of != domain || at > now);
        let all = self.processes.iter_mut();
        for (space, process) in all.filter(|(_, process)| process.domain == domain) {
            processes += 1;
            if !process.reported && now < process.withheld_until {
                continue;
            }
            if !process.reported {
                // A process that cannot be followed now is retried later; a missed one is found
                // later.
                let faults = [Fault::LostArrival, Fault::TooManyFiles];
                if faults.into_iter().any(|fault| self.faults.strikes(fault)) {
                    process.withheld_until = now + self.faults.below(MAX_FAULT);
                    continue;
                }
                process.reported = true;
                process.growth.follow();
                let age = now.saturating_sub(process.born);
                arrived.push(SpaceArrival {
                    space,
                    kind: process.kind,
                    age,
                });
            }
        }
        let cost = if self.event_source == EventSource::Nothing {
            self.costs.list_processes + self.costs.process * processes
        } else {
            self.costs.events + self.costs.process * arrived.len() as u64
        };
        let faults = &mut self.faults;
        let is_here =
            |&mut (of, _): &mut (u16, SpaceId)| of == domain && !faults.strikes(Fault::LostExit);
        let left = self.left.extract_if(.., is_here);
        let left = left.map(|(_, space)| space).collect();
        let listed = Observation::Processes {
            arrived,
            left,
            resized: vec![],
            more: false,
            event_source: self.event_source,
        };
        (listed, cost)
    }

    pub(super) fn measure_spaces(&self, spaces: &[SpaceId]) -> (Observation, Nanos) {
        let size = |&space: &SpaceId| {
            let process = self.processes.get(space);
            let areas = process.map_or(&[][..], |process| &process.areas);
            SpaceSize {
                space,
                gone: process.is_none(),
                mappings: areas.len() as u64,
                pages: areas.iter().map(|area| area.pages).sum(),
                anon_pages: areas.iter().map(|area| area.resident).sum(),
            }
        };
        let sizes = spaces.iter().map(size).collect();
        let cost = self.costs.call + self.costs.size * spaces.len() as u64;
        (Observation::Sizes(sizes), cost)
    }

    pub(super) fn list_mappings(&mut self, space: SpaceId) -> (Observation, Nanos) {
        if self.unreadable || self.faults.strikes(Fault::Unread) {
            return (Observation::Unread { space }, self.costs.list_mappings);
        }
        if let Some((read_at, mappings)) = self.mapping_lists.get(&space)
            && self.now - read_at < self.mapping_list_life
        {
            let (mappings, age) = (mappings.clone(), self.now - read_at);
            let listed = Observation::Mappings {
                space,
                mappings,
                age,
            };
            return (listed, self.costs.list_mappings);
        }
        let mappings: Vec<Mapping> = self.processes.get(space).map_or(vec![], |process| {
            let areas = process.areas.iter();
            areas
                .map(|a| Mapping {
                    start: a.start,
                    end: a.end(),
                    kind: a.kind,
                })
                .collect()
        });
        let cost = self.costs.list_mappings + self.costs.mapping * mappings.len() as u64;
        self.mapping_lists
            .insert(space, (self.now, mappings.clone()));
        let listed = Observation::Mappings {
            space,
            mappings,
            age: 0,
        };
        (listed, cost)
    }

    /// The frames of the domain from the cursor on, at most `count`.
    fn frames_from(&self, domain: u16, cursor: u32, count: u32) -> Vec<(u32, FrameView)> {
        let of_domain = self
            .frames
            .from(cursor)
            .filter(|(_, frame)| frame.domain == domain);
        let count = usize::try_from(count).expect("bounded");
        of_domain.take(count).collect()
    }

    /// Gives up frames that have changed, as if their memory had failed.
    pub(super) fn check_frames(&mut self, domain: u16, cursor: u32, count: u32) -> Nanos {
        let checked = self.frames_from(domain, cursor, count);
        for (id, frame) in &checked {
            self.frames.note(*id);
            if frame.is_changed {
                self.frames.poison(*id);
            }
        }
        let lines = u64::from(PAGE_LINES) * self.costs.line;
        self.costs.call + (self.costs.frame + lines) * checked.len() as u64
    }

    pub(super) fn list_frames(
        &mut self,
        domain: u16,
        cursor: u32,
        count: u32,
        lines: Lines,
        reap: bool,
    ) -> (Observation, Nanos) {
        let listed = self.frames_from(domain, cursor, count);
        let cursor = match listed.last() {
            Some(&(last, _)) if listed.len() as u64 == u64::from(count) => last + 1,
            _ => 0,
        };
        let frames: Vec<Frame> = listed
            .iter()
            .map(|&(id, frame)| Frame {
                hash: frame.content.hash_on(frame.node, lines, &self.hash),
                frame: FrameId(id),
                sharers: if frame.is_poisoned { 0 } else { frame.sharers },
                node: frame.node,
            })
            .collect();
        if reap {
            let unmapped = listed.iter().filter(|(_, frame)| frame.sharers == 0);
            unmapped.for_each(|&(id, _)| self.frames.free(id));
        }
        let lines = u64::from(lines.to - lines.from) * self.costs.line;
        let cost = self.costs.call + (self.costs.frame + lines) * frames.len() as u64;
        (Observation::Frames { frames, cursor }, cost)
    }
}

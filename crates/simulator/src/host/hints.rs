//! Hints on the simulated host: memory that I/O touches, reported to the listeners.

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, Observation, SpaceId};

use super::Host;
use crate::fault::Fault;

/// Limit of the hints in one answer.
const MAX_ANSWER_HINTS: usize = 4096;

impl Host {
    /// I/O has touched memory of a space.
    pub fn hint(&mut self, hint: Hint) {
        let Some(process) = self.processes.get_mut(hint.space) else {
            return;
        };
        let ring = self.rings.entry(process.domain).or_default();
        if !ring.has_room(hint.space) || self.faults.strikes(Fault::LostHint) {
            ring.lose(hint.space);
        } else {
            ring.push(hint);
        }
    }

    /// A page of a space appears; growth is reported for a followed process.
    pub(super) fn appears(&mut self, space: SpaceId, address: u64) {
        let now = self.now;
        let process = self.process(space);
        let domain = process.domain;
        if process.growth.appears(address, process.reported, now) {
            let ring = self.rings.entry(domain).or_default();
            ring.grown.insert(space);
        }
    }

    /// Whether hints are pending for a domain.
    pub(crate) fn is_hinted(&self, domain: u16) -> bool {
        let ring = self.rings.get(&domain);
        ring.is_some_and(|ring| !ring.hints.is_empty() || !ring.grown.is_empty())
    }

    /// All hints of the first domain, for a deduplicator in the kernel.
    pub(crate) fn drain_hints(&mut self) -> Vec<Hint> {
        let ring = self.rings.get_mut(&0);
        ring.map_or_else(Vec::new, |ring| ring.take(usize::MAX))
    }

    /// Costs no system call: the machine reads memory that it shares with the kernel.
    pub(super) fn take_hints(&mut self, domain: u16) -> (Observation, Nanos) {
        let mut wrong = None;
        if self.faults.strikes(Fault::WrongHint) {
            wrong = Some(self.wrong_hint());
        }
        let ring = self.rings.entry(domain).or_default();
        let hints: Vec<Hint> = ring
            .take(MAX_ANSWER_HINTS)
            .into_iter()
            .chain(wrong)
            .collect();
        let cost = self.costs.step + self.costs.size * hints.len() as u64;
        let answer = Observation::Hints {
            hints,
            lost: std::mem::take(&mut ring.lost),
            lost_of: std::mem::take(&mut ring.lost_of).into_iter().collect(),
            grown: std::mem::take(&mut ring.grown).into_iter().collect(),
            more: !ring.hints.is_empty(),
        };
        (answer, cost)
    }

    /// A hint that cannot be true, or is not.
    fn wrong_hint(&mut self) -> Hint {
        let start = match self.faults.below(4) {
            0 => self.faults.below(u64::MAX),
            1 => u64::MAX - self.faults.below(1 << 20),
            _ => self.faults.below(1 << 34),
        };
        let length = match self.faults.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => self.faults.below(1 << 40),
            _ => self.faults.below(1 << 20),
        };
        let space = u32::try_from(self.faults.below(64)).expect("a small number");
        Hint {
            start,
            length,
            space: SpaceId(space),
            source: HintSource::Read,
            place: Some(FilePlace {
                file_size: self.faults.below(4),
                offset: self.faults.below(u64::MAX),
            }),
        }
    }
}

//! Hints on the simulated host: what I/O touches, told to who asks.

use uksm_policy::command::{FilePlace, Hint, HintSource, Nanos, Observation, SpaceId};

use super::Host;
use crate::fault::Fault;

/// Hints that a domain's ring holds.
const ROOM: usize = 1 << 14;
/// Hints of one answer.
const MOST: usize = 4096;

/// What waits for one domain.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring {
    hints: Vec<Hint>,
    lost: u64,
}

impl Host {
    /// I/O has touched memory of a space.
    pub fn hint(&mut self, hint: Hint) {
        let Some(process) = self.processes.get_mut(hint.space) else {
            return;
        };
        let ring = self.rings.entry(process.domain).or_default();
        if ring.hints.len() >= ROOM || self.faults.strikes(Fault::LostHint) {
            ring.lost += 1;
            return;
        }
        ring.hints.push(hint);
    }

    /// Whether hints wait for a domain.
    pub(crate) fn is_hinted(&self, domain: u16) -> bool {
        let ring = self.rings.get(&domain);
        ring.is_some_and(|ring| !ring.hints.is_empty())
    }

    /// All hints of the first domain, for who is in the kernel.
    pub(crate) fn drain_hints(&mut self) -> Vec<Hint> {
        let ring = self.rings.get_mut(&0);
        ring.map_or_else(Vec::new, |ring| std::mem::take(&mut ring.hints))
    }

    /// Takes no system call: the machine reads memory that it shares with the kernel.
    pub(super) fn take_hints(&mut self, domain: u16) -> (Observation, Nanos) {
        let mut wrong = None;
        if self.faults.strikes(Fault::WrongHint) {
            wrong = Some(self.wrong_hint());
        }
        let ring = self.rings.entry(domain).or_default();
        let count = ring.hints.len().min(MOST);
        let hints: Vec<Hint> = ring.hints.drain(..count).chain(wrong).collect();
        let cost = self.costs.step + self.costs.size * hints.len() as u64;
        let answer = Observation::Hints {
            hints,
            lost: std::mem::take(&mut ring.lost),
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

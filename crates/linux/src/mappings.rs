//! Lists the mergeable mappings of processes at a bounded cost.
//!
//! # Problem
//! The kernel prints a process's mappings anew each time. For a process with 60,000 of them that
//! takes tens of milliseconds, and the policy asks again and again.
//!
//! # Approach
//! A list that was cheap to read is never kept. One that was expensive is kept and given out again,
//! as long as reading it anew would take more than one part in `REREAD_SHARE` of the time since it
//! was read; ten parts, if the size of the address space has changed. An old list costs only
//! chances: each page that is gone is answered as gone, and new pages wait.
//!
//! Cost is processor time; age is time of the monotonic clock.

use std::collections::BTreeMap;

use uksm_policy::command::{Mapping, Nanos, SpaceId};

use crate::proc::{self, Proc};
use crate::{clock, maps};

/// Lists that took less are not kept.
const EXPENSIVE: Nanos = 1_000_000;

/// At most one part in this many of one core goes into reading one process's mappings again.
const REREAD_SHARE: Nanos = 500;

#[derive(Debug)]
struct Kept {
    mappings: Vec<Mapping>,
    virtual_bytes: u64,
    read_at: Nanos,
    cost: Nanos,
}

impl Kept {
    fn is_recent(&self, now: Nanos, virtual_bytes: u64) -> bool {
        let share = if virtual_bytes == self.virtual_bytes {
            REREAD_SHARE
        } else {
            REREAD_SHARE / 10
        };
        now.saturating_sub(self.read_at) < self.cost.saturating_mul(share)
    }
}

/// The mapping lists that were expensive to read.
#[derive(Debug, Default)]
pub struct MappingLists {
    kept: BTreeMap<SpaceId, Kept>,
    text: Vec<u8>,
}

impl MappingLists {
    /// The mergeable mappings of a process, whose address space is `space`, and how long ago they
    /// were read.
    ///
    /// # Errors
    /// Gone, unreadable, or malformed. A process without any mapping is gone, or about to be: its
    /// address space may live on in another.
    pub fn list(
        &mut self,
        proc: &Proc,
        pid: u32,
        space: SpaceId,
    ) -> proc::Result<(Vec<Mapping>, Nanos)> {
        let virtual_bytes = match self.kept.get(&space) {
            Some(kept) => {
                let virtual_bytes = proc.stat(pid)?.virtual_bytes;
                let now = clock::now();
                if kept.is_recent(now, virtual_bytes) {
                    let age = now.saturating_sub(kept.read_at);
                    return Ok((kept.mappings.clone(), age));
                }
                Some(virtual_bytes)
            }
            None => None,
        };
        let started = clock::thread_cpu();
        let read_at = clock::now();
        let path = proc.maps(pid, &mut self.text)?;
        if self.text.is_empty() {
            return Err(proc::Error::Gone { pid });
        }
        let mut mappings = Vec::new();
        let parsed = maps::mergeable(&self.text, &mut mappings);
        parsed.map_err(|maps::Malformed { line, what }| proc::Error::Parse { path, line, what })?;
        let cost = clock::thread_cpu().saturating_sub(started);
        if cost < EXPENSIVE {
            self.kept.remove(&space);
            return Ok((mappings, clock::now().saturating_sub(read_at)));
        }
        let virtual_bytes = match virtual_bytes {
            Some(virtual_bytes) => virtual_bytes,
            None => proc.stat(pid)?.virtual_bytes,
        };
        let kept = Kept {
            mappings: mappings.clone(),
            virtual_bytes,
            read_at,
            cost,
        };
        self.kept.insert(space, kept);
        // One process's long list is not held for ever.
        self.text = Vec::new();
        Ok((mappings, clock::now().saturating_sub(read_at)))
    }

    /// Forgets a space.
    pub fn forget(&mut self, space: SpaceId) {
        self.kept.remove(&space);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_in_proportion_to_its_cost() {
        let kept = Kept {
            mappings: vec![],
            virtual_bytes: 1,
            read_at: 1000,
            cost: 60_000_000,
        };
        assert!(kept.is_recent(1000 + 29_999_999_999, 1));
        assert!(!kept.is_recent(1000 + 30_000_000_000, 1));
        assert!(kept.is_recent(1000 + 2_999_999_999, 2), "changed");
        assert!(!kept.is_recent(1000 + 3_000_000_000, 2), "changed");
    }
}

//! Waiting times of duplicates until they are merged.
//!
//! A page that holds the same as another page of its domain, and may be merged, waits from the
//! first look that finds it. Looks are about a second apart.

use std::collections::BTreeMap;

use uksm_policy::command::{Nanos, SpaceId};

use super::violation::{Violation, violated};
use crate::Content;

/// Start of the wait of each page.
#[derive(Debug)]
pub(super) struct Progress {
    bound: Option<Nanos>,
    since: BTreeMap<(SpaceId, u64), (Content, Nanos)>,
    longest: Nanos,
}

impl Progress {
    pub(super) fn new(bound: Option<Nanos>) -> Progress {
        Progress {
            bound,
            since: BTreeMap::new(),
            longest: 0,
        }
    }

    pub(super) fn longest(&self) -> Nanos {
        self.longest
    }

    /// Examines the present duplicates.
    pub(super) fn look(
        &mut self,
        domain: u16,
        duplicates: &[(u16, Content, SpaceId, u64)],
        now: Nanos,
    ) -> Result<(), Violation> {
        let before = std::mem::take(&mut self.since);
        for &(of, content, space, address) in duplicates {
            if of != domain {
                continue;
            }
            let place = (space, address);
            let known = before.get(&place).filter(|(held, _)| *held == content);
            let since = known.map_or(now, |&(_, since)| since);
            self.since.insert(place, (content, since));
            let waited = now - since;
            self.longest = self.longest.max(waited);
            if self.bound.is_some_and(|bound| waited > bound) {
                let what = format!(
                    "page {address:#x} of space {} has waited for {} ms",
                    space.0,
                    waited / 1_000_000
                );
                return violated("progress", what);
            }
        }
        Ok(())
    }
}

//! No merge violates the policy.
//!
//! # Problem
//! Two pages of one space on one frame, a frame made of pages of too few spaces, or a page on a
//! frame of another node of memory, show in no count and in no byte.
//!
//! # Approach
//! After each FOLD and for each page that it merged: does another merged page of its space still
//! map the frame? Mappings inherited by a fork are ignored. For each new frame: in how many spaces
//! do pages of its set hold its contents?

use std::collections::{BTreeMap, BTreeSet};

use uksm_policy::Params;
use uksm_policy::command::{FoldBatch, FoldEntry, FoldKind, FoldOutcome, SpaceId, Status};
use uksm_policy::params::Contents;

use super::violation::{Violation, violated};
use crate::Host;

/// Earlier merges.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Addresses of the pages of a space that were merged with a frame.
    merged: BTreeMap<(u32, SpaceId), Vec<u64>>,
}

impl Policy {
    pub(super) fn performed(
        &mut self,
        params: &Params,
        host: &Host,
        batch: &FoldBatch,
        outcomes: &[FoldOutcome],
    ) -> Result<(), Violation> {
        let tried = || batch.entries.iter().zip(outcomes);
        let merged = tried().filter(|(_, outcome)| outcome.status == Status::Merged);
        let mut new: BTreeMap<u32, (u32, FoldKind)> = BTreeMap::new();
        for (entry, outcome) in merged {
            if params.merge == Contents::Between {
                self.is_alone(host, entry, outcome.frame)?;
            }
            if !params.merge_across_nodes {
                stays_on_its_node(host, entry, outcome.frame)?;
            }
            new.entry(outcome.frame).or_insert((0, entry.kind)).0 += 1;
        }
        for (frame, (mappings, kind)) in new {
            let Some(view) = host.frame(frame) else {
                continue;
            };
            if view.sharers != mappings || !matches!(kind, FoldKind::Set(_)) {
                continue;
            }
            let holds = |(entry, outcome): &(&FoldEntry, &FoldOutcome)| {
                let page = host.page(entry.space, entry.address);
                let is_equal = page.is_some_and(|page| page.content == view.content);
                entry.kind == kind && (is_equal || outcome.status == Status::Gone)
            };
            let spaces: BTreeSet<SpaceId> = tried().filter(holds).map(|(e, _)| e.space).collect();
            let untried = batch.entries.len() - outcomes.len();
            if spaces.len() + untried < params.merge_spaces as usize {
                let what = format!(
                    "{} spaces hold what frame {frame} was made of",
                    spaces.len()
                );
                return violated("policy", what);
            }
        }
        Ok(())
    }

    fn is_alone(&mut self, host: &Host, entry: &FoldEntry, frame: u32) -> Result<(), Violation> {
        let (space, address) = (entry.space, entry.address);
        let pages = self.merged.entry((frame, space)).or_default();
        pages.retain(|&page| page != address && host.frame_of(space, page) == Some(frame));
        if let Some(other) = pages.first() {
            let what = format!(
                "pages {other:#x} and {address:#x} of space {} map frame {frame}",
                space.0
            );
            return violated("policy", what);
        }
        pages.push(address);
        Ok(())
    }
}

fn stays_on_its_node(host: &Host, entry: &FoldEntry, frame: u32) -> Result<(), Violation> {
    let (address, node) = (entry.address, host.node(entry.address));
    match host.frame(frame).filter(|frame| frame.node != node) {
        Some(frame) => violated(
            "policy",
            format!(
                "page {address:#x} of node {node} maps a frame of {}",
                frame.node
            ),
        ),
        None => Ok(()),
    }
}

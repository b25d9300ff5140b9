//! FOLD on the simulated host.
//!
//! # Problem
//! Every entry has one outcome, with the reason that the module would give.
//!
//! # Approach
//! The entries are tried one after the other, as the contract orders them. The first page of a set
//! waits for a second one of the same content before it becomes a frame. So does the first page
//! after a frame is full.
//!
//! # Source
//! `interface/uksm_ioctl.h`, FOLD.

use std::collections::HashMap;

use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, Lines, Nanos, Observation, PAGE_SIZE, PageState,
    Reason, Status,
};

use super::Host;
use crate::Content;
use crate::memory::Slot;

impl Host {
    pub(super) fn fold(&mut self, batch: &FoldBatch) -> (Observation, Nanos) {
        let entries = &batch.entries;
        assert!(
            !entries.is_empty() && entries.len() <= 512,
            "{} entries",
            entries.len()
        );
        let costs = self.costs;
        let mut cost = costs.call + if batch.drain { costs.drain } else { 0 };
        let mut outcomes = vec![Self::outcome(Status::Untried, Reason::None); entries.len()];
        // The first page of each set, until a second one comes, and its frame from then on.
        let mut firsts: HashMap<u16, usize> = HashMap::new();
        let mut made: HashMap<u16, u32> = HashMap::new();
        let mut table = None;
        for (at, entry) in entries.iter().enumerate() {
            let here = (entry.space, entry.address >> 21);
            if table.replace(here) != Some(here) {
                cost += costs.table;
            }
            let slot = match self.candidate(entry, batch) {
                Ok(slot) => slot,
                Err(outcome) => {
                    outcomes[at] = outcome;
                    cost += costs.check;
                    continue;
                }
            };
            // A set goes on with another frame when one is full.
            if let FoldKind::Set(set) = entry.kind
                && made.get(&set).is_some_and(|&frame| !self.has_room(frame))
            {
                made.remove(&set);
                firsts.remove(&set);
            }
            let outcome = match entry.kind {
                FoldKind::Zero if self.has_no_zero(entry) => {
                    Self::outcome(Status::Refused, Reason::Zero)
                }
                FoldKind::Zero if slot.content == Content::ZERO => {
                    self.put(
                        entry,
                        Slot {
                            state: PageState::Zero,
                            ..slot
                        },
                    );
                    Self::outcome(Status::Zeroed, Reason::None)
                }
                FoldKind::Zero => Self::outcome(Status::Differed, Reason::Content),
                FoldKind::Frame(frame) => self.share_frame(entry, slot, frame.0),
                FoldKind::Set(set) => match (made.get(&set), firsts.get(&set)) {
                    (Some(&frame), _) => self.share_frame(entry, slot, frame),
                    (None, None) => {
                        firsts.insert(set, at);
                        outcomes[at] = Self::outcome(Status::Differed, Reason::Alone);
                        cost += costs.check;
                        continue;
                    }
                    (None, Some(&first)) => {
                        let other = self.slot(&entries[first]).expect("it was looked at");
                        if other.content != slot.content {
                            Self::outcome(Status::Differed, Reason::Content)
                        } else if self.frames.len() >= self.frame_limit {
                            outcomes[first] = Self::outcome(Status::Full, Reason::Frames);
                            Self::outcome(Status::Full, Reason::Frames)
                        } else {
                            let frame = self.new_frame();
                            self.frames.insert(frame, (slot.content, 0));
                            outcomes[first] = self.share_frame(&entries[first], other, frame);
                            made.insert(set, frame);
                            cost += costs.merge;
                            self.share_frame(entry, slot, frame)
                        }
                    }
                },
            };
            cost += match outcome.status {
                Status::Merged | Status::Zeroed => costs.merge,
                Status::Differed => {
                    self.false_matches += 1;
                    costs.compare
                }
                _ => costs.check,
            };
            outcomes[at] = outcome;
        }
        (Observation::Folded(outcomes), cost)
    }

    /// The page of an entry if it can be merged.
    fn candidate(&mut self, entry: &FoldEntry, batch: &FoldBatch) -> Result<Slot, FoldOutcome> {
        let out = Self::outcome;
        if !self.processes.contains_key(&entry.space) {
            return Err(out(Status::Gone, Reason::Dead));
        }
        let Some(slot) = self.slot(entry) else {
            return Err(out(Status::Gone, Reason::Unmapped));
        };
        let (process, at) = self.find(entry.space, entry.address);
        let area = &mut process.areas[at];
        if area.refused {
            return Err(out(Status::Refused, Reason::Mapping));
        }
        match slot.state {
            PageState::Anon => {}
            PageState::Frame => {
                return Err(FoldOutcome {
                    status: Status::Already,
                    reason: Reason::None,
                    frame: slot.frame,
                });
            }
            PageState::Zero => return Err(out(Status::Already, Reason::None)),
            _ => return Err(out(Status::Gone, Reason::Unmapped)),
        }
        if slot.pinned {
            return Err(out(Status::Busy, Reason::Pinned));
        }
        let lines = Lines {
            from: 0,
            to: batch.lines,
        };
        if batch.lines > 0 && slot.content.hash(lines, &self.hash) != entry.hash {
            return Err(out(Status::Differed, Reason::Stale));
        }
        let (process, at) = self.find(entry.space, entry.address);
        let area = &mut process.areas[at];
        if let Some(block) = area.huge_at(entry.address) {
            if !batch.split {
                return Err(out(Status::Refused, Reason::Huge));
            }
            area.huge[block] = false;
            self.splits += 1;
        }
        Ok(slot)
    }

    fn has_room(&self, frame: u32) -> bool {
        self.frames
            .get(&frame)
            .is_some_and(|&(_, sharers)| sharers < self.sharer_limit)
    }

    fn has_no_zero(&self, entry: &FoldEntry) -> bool {
        let process = &self.processes[&entry.space];
        process
            .area(entry.address)
            .is_some_and(|at| process.areas[at].no_zero)
    }

    /// The next id that names no frame.
    fn new_frame(&mut self) -> u32 {
        while self.frames.contains_key(&self.next_frame) {
            self.next_frame += 1;
        }
        self.poisoned.remove(&self.next_frame);
        self.next_frame
    }

    fn share_frame(&mut self, entry: &FoldEntry, slot: Slot, frame: u32) -> FoldOutcome {
        let limit = self.sharer_limit;
        if self.poisoned.contains(&frame) {
            return Self::outcome(Status::Gone, Reason::Poisoned);
        }
        let Some((content, sharers)) = self.frames.get_mut(&frame) else {
            return Self::outcome(Status::Gone, Reason::NoFrame);
        };
        if *sharers >= limit {
            return Self::outcome(Status::Full, Reason::Sharers);
        }
        if *content != slot.content {
            return Self::outcome(Status::Differed, Reason::Content);
        }
        *sharers += 1;
        self.merged += 1;
        self.put(
            entry,
            Slot {
                state: PageState::Frame,
                frame,
                ..slot
            },
        );
        FoldOutcome {
            status: Status::Merged,
            reason: Reason::None,
            frame,
        }
    }

    fn slot(&self, entry: &FoldEntry) -> Option<Slot> {
        let process = self.processes.get(&entry.space)?;
        let area = &process.areas[process.area(entry.address)?];
        Some(area.get((entry.address - area.start) / PAGE_SIZE))
    }

    fn put(&mut self, entry: &FoldEntry, slot: Slot) {
        let (process, at) = self.find(entry.space, entry.address);
        let area = &mut process.areas[at];
        area.set((entry.address - area.start) / PAGE_SIZE, slot);
    }

    fn outcome(status: Status, reason: Reason) -> FoldOutcome {
        FoldOutcome {
            status,
            reason,
            frame: 0,
        }
    }
}

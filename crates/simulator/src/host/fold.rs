//! FOLD on the simulated host.
//!
//! # Problem
//! Every entry has one outcome, with the reason that the module would give.
//!
//! # Approach
//! The entries are tried one after the other, as the contract orders them. The first page of a set
//! that can be taken becomes a frame, if another entry of the set is left to be tried: if that one
//! has other contents, the page stays alone in its frame. So does the first page after a frame is
//! full.
//!
//! # Source
//! `interface/uksm_ioctl.h`, FOLD.

use std::collections::HashMap;

use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, Lines, Nanos, Observation, PageState, Reason,
    SpaceId, Status,
};

use super::{Host, MAX_FAULT};
use crate::fault::{Canary, Fault};
use crate::memory::Slot;
use crate::{Content, FrameView};

/// Contents of each set with their node of memory, and the spaces that hold them there.
type Witnesses = HashMap<u16, ((Content, u32), Vec<SpaceId>)>;

fn convert(number: u32) -> usize {
    usize::try_from(number).expect("a small number")
}

impl Host {
    pub(super) fn fold(&mut self, domain: u16, batch: &FoldBatch) -> (Observation, Nanos) {
        let entries = &batch.entries;
        assert!(
            !entries.is_empty() && entries.len() <= 512,
            "{} entries",
            entries.len()
        );
        let costs = self.costs;
        let mut cost = costs.fold + if batch.drain { costs.drain } else { 0 };
        let mut outcomes = vec![Self::outcome(Status::Untried, Reason::None); entries.len()];
        // The frame of each set, and its entries that are left to be tried.
        let mut made: HashMap<u16, u32> = HashMap::new();
        let mut left: HashMap<u16, u32> = HashMap::new();
        for entry in entries {
            if let FoldKind::Set(set) = entry.kind {
                *left.entry(set).or_default() += 1;
            }
        }
        let witnesses = self.witnesses(domain, batch);
        let mut table = None;
        let tried = if self.faults.strikes(Fault::PartialFold) {
            usize::try_from(self.faults.below(entries.len() as u64)).expect("a part of a batch")
        } else {
            entries.len()
        };
        if self.faults.strikes(Fault::FullDomain) {
            self.full_until = self.now + self.faults.below(MAX_FAULT);
        }
        for (at, entry) in entries[..tried].iter().enumerate() {
            let here = (entry.space, entry.address >> 21);
            if table.replace(here) != Some(here) {
                cost += costs.table;
            }
            if let FoldKind::Set(set) = entry.kind {
                *left.entry(set).or_default() -= 1;
            }
            let slot = match self.candidate(domain, entry, batch) {
                Ok(slot) => slot,
                Err(outcome) => {
                    outcomes[at] = outcome;
                    cost += costs.check;
                    continue;
                }
            };
            let mut is_founded = false;
            let held = (slot.content, self.node(entry.address));
            let outcome = match entry.kind {
                FoldKind::Zero if self.has_no_zero(entry) => {
                    Self::outcome(Status::Refused, Reason::Zero)
                }
                FoldKind::Zero if slot.content == Content::ZERO => {
                    let state = PageState::Zero;
                    self.put(entry.space, entry.address, Slot { state, ..slot });
                    Self::outcome(Status::Zeroed, Reason::None)
                }
                FoldKind::Zero => Self::outcome(Status::Differed, Reason::Content),
                FoldKind::Frame(frame) => self.share_frame(domain, entry, slot, frame.0),
                FoldKind::Set(set) => match made.get(&set).filter(|&&frame| self.has_room(frame)) {
                    Some(&frame) => self.share_frame(domain, entry, slot, frame),
                    None if let Some(reason) = self.is_short(&witnesses, set, held) => {
                        Self::outcome(Status::Differed, reason)
                    }
                    None if left[&set] == 0 => Self::outcome(Status::Differed, Reason::Alone),
                    None => match self.limit_reached() {
                        Some(reason) => Self::outcome(Status::Full, reason),
                        None => {
                            let frame = self.founded(held, domain);
                            made.insert(set, frame);
                            is_founded = true;
                            self.share_frame(domain, entry, slot, frame)
                        }
                    },
                },
            };
            cost += match outcome.status {
                // Together with the page that joins it, it costs as much as a pair.
                Status::Merged if is_founded => costs.pair.saturating_sub(costs.merge),
                Status::Merged | Status::Zeroed => costs.merge,
                Status::Differed if outcome.reason == Reason::Alone => costs.check,
                Status::Differed => {
                    self.false_matches += 1;
                    self.faults.count(Fault::Collision);
                    costs.compare
                }
                _ => costs.check,
            };
            outcomes[at] = outcome;
        }
        outcomes.truncate(tried);
        if self.canary == Some(Canary::WrongOutcome) {
            let merged = outcomes.iter_mut().find(|one| one.status == Status::Merged);
            if let Some(merged) = merged {
                *merged = Self::outcome(Status::Differed, Reason::Content);
            }
        }
        (Observation::Folded(outcomes), cost)
    }

    /// The contents of the first page of each set, and the spaces whose pages of the set hold the
    /// same.
    fn witnesses(&self, domain: u16, batch: &FoldBatch) -> Witnesses {
        let mut witnesses = Witnesses::new();
        if self.least_spaces < 2 {
            return witnesses;
        }
        let lines = Lines {
            from: 0,
            to: batch.lines,
        };
        for entry in &batch.entries {
            let FoldKind::Set(set) = entry.kind else {
                continue;
            };
            let process = self.processes.get(entry.space);
            let is_ours = process.is_some_and(|process| process.domain == domain);
            let Some(slot) = self.seen(entry).filter(|slot| is_ours && slot.is_there()) else {
                continue;
            };
            let node = self.node_of(&slot, entry.address);
            if batch.lines > 0 && slot.content.hash_on(node, lines, &self.hash) != entry.hash {
                continue;
            }
            let held = (slot.content, node);
            let (first, spaces) = witnesses.entry(set).or_insert((held, vec![]));
            if *first == held && !spaces.contains(&entry.space) {
                spaces.push(entry.space);
            }
        }
        witnesses
    }

    /// Why the page may not become a frame, if too few spaces hold what its set does, or it holds
    /// something else.
    fn is_short(&self, witnesses: &Witnesses, set: u16, held: (Content, u32)) -> Option<Reason> {
        let (first, spaces) = witnesses.get(&set)?;
        let is_short = spaces.len() < convert(self.least_spaces);
        let is_witness = *first == held;
        match (is_witness, is_short) {
            _ if self.canary == Some(Canary::FewSpaces) => None,
            (false, _) => Some(Reason::Content),
            (true, true) => Some(Reason::Spaces),
            (true, false) => None,
        }
    }

    /// The page of an entry if it can be merged.
    fn candidate(
        &mut self,
        domain: u16,
        entry: &FoldEntry,
        batch: &FoldBatch,
    ) -> Result<Slot, FoldOutcome> {
        let out = Self::outcome;
        let process = self.processes.get(entry.space);
        let Some(process) = process.filter(|process| process.domain == domain) else {
            return Err(out(Status::Gone, Reason::Dead));
        };
        let Some(at) = process.area(entry.address) else {
            return Err(out(Status::Gone, Reason::Unmapped));
        };
        let slot = process.areas[at].get(process.areas[at].page(entry.address));
        let node = self.node_of(&slot, entry.address);
        let process = self.processes.get_mut(entry.space).expect("it is here");
        let area = &mut process.areas[at];
        if area.refused {
            return Err(out(Status::Refused, Reason::Mapping));
        }
        if area.locked && !batch.locked {
            return Err(out(Status::Refused, Reason::Locked));
        }
        let page = area.page(entry.address);
        if slot.state == PageState::Anon && self.faults.strikes(Fault::Gone) {
            area.set(page, Slot::NONE);
            return Err(out(Status::Gone, Reason::Unmapped));
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
            PageState::Swap => return Err(out(Status::Gone, Reason::Swapped)),
            _ => return Err(out(Status::Gone, Reason::Unmapped)),
        }
        if slot.pinned {
            return Err(out(Status::Busy, Reason::Pinned));
        }
        if self.faults.strikes(Fault::Busy) {
            let reasons = [Reason::Lock, Reason::Raced, Reason::Swapcache];
            let at = usize::try_from(self.faults.below(3)).expect("one of three");
            return Err(out(Status::Busy, reasons[at]));
        }
        let lines = Lines {
            from: 0,
            to: batch.lines,
        };
        if batch.lines > 0 && slot.content.hash_on(node, lines, &self.hash) != entry.hash {
            return Err(out(Status::Differed, Reason::Stale));
        }
        if let Some(folio) = area.large_at(entry.address) {
            if !batch.split {
                return Err(out(Status::Refused, Reason::Huge));
            }
            area.large[folio] = false;
            self.splits += 1;
        }
        Ok(slot)
    }

    /// The limit that permits no new frame, if there is one.
    fn limit_reached(&self) -> Option<Reason> {
        if self.frames.len() >= self.frame_limit || self.now < self.full_until {
            Some(Reason::Frames)
        } else if self.frames.len() >= self.machine_frame_limit {
            Some(Reason::Machine)
        } else {
            None
        }
    }

    /// The frame that a new set shares: a new one, unless something is wrong with this host.
    fn founded(&mut self, (content, node): (Content, u32), domain: u16) -> u32 {
        if self.canary == Some(Canary::ForeignFrame) {
            let mut frames = self.frames.from(1);
            let twin = frames.find(|(_, f)| f.content == content && f.domain != domain);
            if let Some((frame, _)) = twin {
                return frame;
            }
        }
        self.frames.hold(content, domain, node)
    }

    fn has_room(&self, frame: u32) -> bool {
        let frame = self.frames.get(frame);
        frame.is_some_and(|frame| frame.sharers < self.sharer_limit)
    }

    fn has_no_zero(&self, entry: &FoldEntry) -> bool {
        let process = self.processes.get(entry.space).expect("it was looked at");
        process
            .area(entry.address)
            .is_some_and(|at| process.areas[at].no_zero)
    }

    fn share_frame(&mut self, domain: u16, entry: &FoldEntry, slot: Slot, id: u32) -> FoldOutcome {
        let frame = self.frames.get(id);
        let is_open =
            |frame: &FrameView| frame.domain == domain || self.canary == Some(Canary::ForeignFrame);
        let Some(frame) = frame.filter(is_open) else {
            return Self::outcome(Status::Gone, Reason::NoFrame);
        };
        if frame.is_poisoned {
            return Self::outcome(Status::Gone, Reason::Poisoned);
        }
        if frame.sharers >= self.sharer_limit {
            return Self::outcome(Status::Full, Reason::Sharers);
        }
        let is_near = frame.node == self.node(entry.address);
        if !is_near && self.canary != Some(Canary::AcrossNodes) {
            return Self::outcome(Status::Differed, Reason::Node);
        }
        if frame.content != slot.content && self.canary != Some(Canary::UnequalMerge) {
            return Self::outcome(Status::Differed, Reason::Content);
        }
        self.merged += 1;
        let shared = Slot {
            state: PageState::Frame,
            frame: id,
            ..slot
        };
        self.put(entry.space, entry.address, shared);
        FoldOutcome {
            status: Status::Merged,
            reason: Reason::None,
            frame: id,
        }
    }

    fn seen(&self, entry: &FoldEntry) -> Option<Slot> {
        self.processes.get(entry.space)?.slot(entry.address)
    }

    fn outcome(status: Status, reason: Reason) -> FoldOutcome {
        FoldOutcome {
            status,
            reason,
            frame: 0,
        }
    }
}

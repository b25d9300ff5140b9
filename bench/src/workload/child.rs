//! The child side of a workload: maps its parts, then carries out commands.
//!
//! Protocol: one line each way. The child reports `ready` when all parts that are present from the
//! start are filled; then
//!
//! - `appear`, answered by `ready`: fills the parts that wait for it.
//! - `written`, answered by `written PAGES`: reports the number of pages rewritten so far.
//! - `rewrite`, answered by `rewrote NANOSECONDS`: writes all pages without changing them, and
//!   reports the CPU it took.
//! - `rewrite-some PERCENT`, answered as `written`: writes this part of the pages, at random
//!   places, without changing them.
//! - `verify`, answered by `verified PAGES` or `damaged PART PAGE`: ends all writing, then reads
//!   every byte.
//!
//! The end of its input ends the child. Between commands it follows its parts' behaviours.

use super::mapping::{Kind, Mapping, Reservation};
use super::protocol::{answer, commands};
use super::{Behaviour, Contents, Moment, Order, PageNumbers, Part, Spec};
use crate::contents;
use crate::measure::cpu::CpuClock;
use crate::trace::PageContent;
use anyhow::{Result, bail};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// One part with its memory.
struct FilledPart {
    part: Part,
    mapping: Mapping,
    filled: bool,
    /// Pages rewritten so far.
    written: u64,
    /// The time of the next action of its behaviour.
    due: Option<Instant>,
}

/// Runs the child until its input ends.
pub(crate) fn run(spec: &Spec) -> Result<()> {
    let kind = Kind {
        huge: spec.huge,
        mergeable: spec.mergeable,
    };
    let sizes: Vec<usize> = spec.parts.iter().map(|part| part.pages).collect();
    let mut reservation = if spec.is_captured() {
        Reservation::for_captured(&sizes)?
    } else {
        Reservation::for_parts(&sizes)?
    };
    let mut parts = Vec::new();
    for &part in &spec.parts {
        if let Contents::Captured(moment) = part.contents {
            reservation.align(moment.phase);
        }
        let mapping = reservation.map(part.pages, kind)?;
        let mut held = FilledPart {
            part,
            mapping,
            filled: false,
            written: 0,
            due: None,
        };
        if part.behaviour != Behaviour::Appears {
            held.fill(spec.seed)?;
        }
        parts.push(held);
    }
    let commands = commands();
    answer("ready")?;
    let mut frozen = false;
    loop {
        let due = parts
            .iter()
            .filter_map(|held| held.due)
            .min()
            .filter(|_| !frozen);
        let wait = due.map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now())
        });
        match commands.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                for held in &mut parts {
                    held.act(spec.seed, kind)?;
                }
            }
            Ok(command) => match command.as_str() {
                "appear" => {
                    for held in &mut parts {
                        if held.part.behaviour == Behaviour::Appears {
                            held.fill(spec.seed)?;
                        }
                    }
                    answer("ready")?;
                }
                "written" => answer(&written(&parts))?,
                "rewrite" => {
                    let clock = CpuClock::of(std::process::id())?;
                    let begin = clock.now()?;
                    for held in parts.iter_mut().filter(|held| held.filled) {
                        held.fill(spec.seed)?;
                    }
                    let taken = clock.now()?.saturating_sub(begin);
                    answer(&format!("rewrote {}", taken.as_nanos()))?;
                }
                "verify" => {
                    frozen = true;
                    answer(&verify(&parts, spec.seed)?)?;
                }
                other => {
                    let percent = other.strip_prefix("rewrite-some ");
                    let Some(percent) = percent.and_then(|number| number.parse::<usize>().ok())
                    else {
                        bail!("workload: unknown command '{other}'");
                    };
                    for held in parts.iter_mut().filter(|held| held.filled) {
                        let pages = held.mapping.pages() * percent / 100;
                        held.rewrite(spec.seed, pages, Order::Random)?;
                    }
                    answer(&written(&parts))?;
                }
            },
        }
    }
}

impl FilledPart {
    fn write(&mut self, seed: u64, index: usize, numbers: &PageNumbers) {
        let Some(held) = numbers.of(index) else {
            return;
        };
        self.part.write(seed, self.mapping.page_mut(index), held);
    }

    /// Writes all pages. The numbers are not kept: they would be memory that is no part of the
    /// plan.
    fn fill(&mut self, seed: u64) -> Result<()> {
        let numbers = self.part.numbers(seed)?;
        for index in 0..self.mapping.pages() {
            self.write(seed, index, &numbers);
        }
        self.filled = true;
        let wait = match self.part.behaviour {
            Behaviour::Still | Behaviour::Appears => None,
            Behaviour::Rewritten { step_ms, .. } => Some(step_ms),
            Behaviour::ShortLived { wait_ms } => Some(wait_ms),
            Behaviour::Replayed { every_ms } => Some(every_ms),
        };
        self.due = wait.map(|ms| Instant::now() + Duration::from_millis(ms));
        Ok(())
    }

    /// Does the actions that are due. A late step is not compensated: the loop sleeps, as the
    /// paper's does.
    fn act(&mut self, seed: u64, kind: Kind) -> Result<()> {
        if self.due.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        match self.part.behaviour {
            Behaviour::Still | Behaviour::Appears => self.due = None,
            Behaviour::Rewritten {
                order,
                pages_per_step,
                step_ms,
            } => {
                self.rewrite(seed, pages_per_step, order)?;
                self.due = Some(Instant::now() + Duration::from_millis(step_ms));
            }
            Behaviour::ShortLived { wait_ms } => {
                if self.filled {
                    self.mapping.unmap()?;
                    self.filled = false;
                    self.due = Some(Instant::now() + Duration::from_millis(wait_ms));
                } else {
                    self.mapping.map_again(kind)?;
                    self.fill(seed)?;
                }
            }
            Behaviour::Replayed { every_ms } => {
                let next = self.due.map(|due| due + Duration::from_millis(every_ms));
                self.due = if self.go_on(seed)? { next } else { None };
            }
        }
        Ok(())
    }

    /// Writes this many pages without changing them.
    fn rewrite(&mut self, seed: u64, pages: usize, order: Order) -> Result<()> {
        let numbers = self.part.numbers(seed)?;
        for _ in 0..pages {
            let index = self.next(seed, order);
            self.write(seed, index, &numbers);
            self.written += 1;
        }
        Ok(())
    }

    /// Changes to the contents of the next captured moment; returns whether there is another one
    /// after it.
    fn go_on(&mut self, seed: u64) -> Result<bool> {
        let Contents::Captured(moment) = self.part.contents else {
            return Ok(false);
        };
        if moment.at >= moment.last {
            return Ok(false);
        }
        let next = Moment {
            at: moment.at + 1,
            ..moment
        };
        let before = self.part.numbers(seed)?;
        self.part.contents = Contents::Captured(next);
        let numbers = self.part.numbers(seed)?;
        for index in 0..self.mapping.pages() {
            if before.of(index) == numbers.of(index) {
                continue;
            }
            if numbers.of(index).is_some() {
                self.write(seed, index, &numbers);
                self.written += 1;
            } else {
                self.mapping.drop_page(index)?;
            }
        }
        Ok(next.at < next.last)
    }

    /// The page that is rewritten next.
    fn next(&self, seed: u64, order: Order) -> usize {
        let number = match order {
            Order::InTurn => self.written,
            Order::Random => contents::key(seed, self.part.family, self.written),
        };
        usize::try_from(number % self.mapping.pages() as u64).unwrap_or_default()
    }

    /// The first page that differs from the written one.
    fn damaged(&self, seed: u64) -> Result<Option<usize>> {
        let numbers = self.part.numbers(seed)?;
        Ok((0..self.mapping.pages()).find(|&index| {
            let holds = |held: PageContent| self.part.holds(seed, self.mapping.page(index), held);
            // A read where there is no page would bring one in.
            numbers.of(index).is_some_and(|held| !holds(held))
        }))
    }

    /// The number of its pages.
    fn pages(&self, seed: u64) -> Result<usize> {
        let numbers = self.part.numbers(seed)?;
        let pages = 0..self.mapping.pages();
        Ok(pages.filter(|&index| numbers.of(index).is_some()).count())
    }
}

fn written(parts: &[FilledPart]) -> String {
    let written: u64 = parts.iter().map(|held| held.written).sum();
    format!("written {written}")
}

fn verify(parts: &[FilledPart], seed: u64) -> Result<String> {
    let mut pages = 0;
    for (number, held) in parts.iter().enumerate().filter(|(_, held)| held.filled) {
        if let Some(page) = held.damaged(seed)? {
            return Ok(format!("damaged {number} {page}"));
        }
        pages += held.pages(seed)?;
    }
    Ok(format!("verified {pages}"))
}

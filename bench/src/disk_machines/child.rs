//! The child: carries out a plan.
//!
//! Protocol as in [`crate::workload::child`]: it reports `ready` when its memory is filled; then
//!
//! | command | answer | does |
//! |---|---|---|
//! | `go` | `ready` | begins |
//! | `late` | `late NANOSECONDS` | reports the largest delay of a step |
//! | `verify` | `verified PAGES` or `damaged 0 PAGE` | ends, then reads every byte |

use std::fs::File;
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::disk::block_key;
use super::interface::{Direction, Interface};
use super::plan::{Action, Plan, Step};
use super::{Machine, PRIVATE};
use crate::contents::{self, PAGE, key};
use crate::workload::mapping::{Kind, Mapping, Reservation};
use crate::workload::protocol::{answer, commands};

/// Limit of the pages of one request, the kernel's default read-ahead.
const REQUEST_PAGES: usize = 32;

/// Runs the child until its input ends.
pub(crate) fn run(machine: &Machine) -> Result<()> {
    let plan = Plan::of(machine);
    // A virtual machine's memory is one mapping.
    let mut reservation = Reservation::for_parts(&[machine.pages])?;
    let mut memory = Memory::filled(machine, &mut reservation)?;
    let commands = commands();
    answer("ready")?;
    let mut steps = plan.0.iter().peekable();
    let mut begun: Option<Instant> = None;
    let mut late = Duration::ZERO;
    loop {
        let due = begun.and_then(|begun| Some(begun + steps.peek()?.at));
        let wait = due.map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now())
        });
        match commands.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((due, step)) = due.zip(steps.next()) {
                    late = late.max(due.elapsed());
                    memory.carry_out(step)?;
                }
            }
            Ok(command) => match command.as_str() {
                "go" => {
                    begun = Some(Instant::now());
                    answer("ready")?;
                }
                "late" => answer(&format!("late {}", late.as_nanos()))?,
                "verify" => {
                    begun = None;
                    answer(&memory.verify())?;
                }
                other => bail!("machine: unknown command '{other}'"),
            },
        }
    }
}

/// The memory of a machine, and its disk.
struct Memory {
    seed: u64,
    mapping: Mapping,
    /// The key of each page's contents.
    keys: Vec<u64>,
    disk: File,
    interface: Interface,
}

impl Memory {
    /// Memory with contents that no other machine has.
    fn filled(machine: &Machine, reservation: &mut Reservation) -> Result<Memory> {
        let kind = Kind {
            huge: false,
            mergeable: machine.mergeable,
        };
        let disk = File::options().read(true).write(true).open(&machine.disk);
        let private = |page| key(machine.seed, PRIVATE + machine.number, page);
        let mut memory = Memory {
            seed: machine.seed,
            mapping: reservation.map(machine.pages, kind)?,
            keys: (0..machine.pages as u64).map(private).collect(),
            disk: disk.with_context(|| machine.disk.display().to_string())?,
            interface: Interface::of(machine.aio)?,
        };
        for (page, &key) in memory.keys.iter().enumerate() {
            contents::fill(memory.mapping.page_mut(page), key);
        }
        Ok(memory)
    }

    fn carry_out(&mut self, step: &Step) -> Result<()> {
        for (block, page) in step.blocks() {
            self.keys[page] = block_key(self.seed, block);
            if step.action == Action::Store {
                contents::fill(self.mapping.page_mut(page), self.keys[page]);
            }
        }
        if step.action == Action::Store {
            return Ok(());
        }
        let mut first = step.first;
        for pages in step.pages.chunks(REQUEST_PAGES) {
            let done = self.request(step.action, first, pages);
            let done = done.with_context(|| format!("disk, block {first}"))?;
            ensure!(
                done == pages.len() * PAGE,
                "disk, block {first}: {done} bytes"
            );
            first += pages.len() as u64;
        }
        Ok(())
    }

    /// One request to the disk; returns the bytes done.
    fn request(&mut self, action: Action, first: u64, pages: &[usize]) -> io::Result<usize> {
        let mapping = &mut self.mapping;
        let vectors: Vec<libc::iovec> = pages.iter().map(|&page| mapping.iovec(page)).collect();
        let offset = first * PAGE as u64;
        let direction = match action {
            Action::Load => Direction::Read,
            Action::Store | Action::WriteBack => Direction::Write,
        };
        self.interface
            .request(direction, &self.disk, offset, &vectors)
    }

    fn verify(&self) -> String {
        let holds = |page| contents::holds(self.mapping.page(page), self.keys[page]);
        match (0..self.keys.len()).find(|&page| !holds(page)) {
            Some(page) => format!("damaged 0 {page}"),
            None => format!("verified {}", self.keys.len()),
        }
    }
}

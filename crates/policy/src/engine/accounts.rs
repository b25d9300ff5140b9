//! Who pays for what was done.
//!
//! # Problem
//! See `payer.rs`.
//!
//! # Approach
//! A step is told two costs: that of the command before it, and that of the step before itself,
//! which worked through the answer before. So the second belongs to the payer of that answer's
//! command. What a step took to choose the next command goes with it: the two cannot be told apart
//! without a clock, and working through an answer is what takes time.
//!
//! # Units
//! Nanoseconds.

use super::{Engine, Recent, Turn, WARM_UP};
use crate::accounts::payer::Payer;
use crate::command::{Nanos, Spent};
use crate::params::SECOND;
use crate::spaces::Discover;

impl Engine {
    /// Books what was spent since the last step.
    pub(super) fn book(&mut self, spent: Spent) {
        let all = spent.step + spent.call;
        self.total.charge(self.now, all);
        self.recent.used += all;
        let window = self.now - self.recent.begun;
        if window >= SECOND {
            self.recent = Recent {
                begun: self.now,
                used: 0,
                share: crate::convert::ratio(self.recent.used, window),
            };
        }
        self.charge(self.answered, spent.step);
        self.charge(self.payer, spent.call);
        // What a sample costs, as levels and the strength control see it, includes this.
        match self.answered {
            Payer::Level(level) => {
                self.levels[usize::from(level)].worked(spent.step);
                if self.tally.samples > 0 {
                    self.tally.sampling += spent.step;
                }
            }
            Payer::Batch => self.batch_worked(spent.step),
            _ => {}
        }
        self.answered = self.payer;
    }

    /// The levels whose pages the last batch held learn what merging cost.
    pub(super) fn batch_worked(&mut self, cost: Nanos) {
        for (payer, part) in self.batch.parts(cost) {
            if let Payer::Level(level) = payer {
                self.levels[usize::from(level)].worked(part);
            }
        }
    }

    /// Who pays for the command of this turn.
    pub(super) fn payer_of(&self, turn: Turn) -> Payer {
        match turn {
            Turn::Nothing | Turn::Rehash | Turn::Break => Payer::Nobody,
            Turn::Sleep => Payer::Next,
            Turn::Discover(Discover::Processes) => Payer::Processes,
            Turn::Discover(Discover::Mappings(_)) if self.discovery.is_changing_listed() => {
                Payer::Changing
            }
            Turn::Discover(Discover::Mappings(_)) => Payer::Calm,
            Turn::Sample(_) => self.work.payer,
            Turn::Fold => Payer::Batch,
            Turn::Reap => Payer::Reap,
        }
    }

    fn charge(&mut self, payer: Payer, cost: Nanos) {
        if payer == Payer::Next {
            // One who had to pay for waking before his turn would fall back into debt and never
            // have it.
            self.wake_cost += cost;
            return;
        }
        let cost = cost + std::mem::take(&mut self.wake_cost);
        if payer == Payer::Batch {
            for (payer, part) in self.batch.parts(cost) {
                self.charge_one(payer, part);
            }
        } else {
            self.charge_one(payer, cost);
        }
    }

    fn charge_one(&mut self, payer: Payer, cost: Nanos) {
        let is_warming_up = self.now - self.started.unwrap_or(self.now) < WARM_UP;
        match payer {
            // The first touch of code and memory is the governor's: at the bottom's share it would
            // be paid for by seconds of silence.
            Payer::Processes
            | Payer::Calm
            | Payer::Changing
            | Payer::Newcomers
            | Payer::Level(0)
                if is_warming_up => {}
            Payer::Processes | Payer::Calm | Payer::Changing | Payer::Newcomers => {
                self.discovery.charge(payer, self.now, cost);
            }
            Payer::Level(level) => self.levels[usize::from(level)]
                .budget
                .charge(self.now, cost),
            Payer::Reap => self.reap_budget.charge(self.now, cost),
            Payer::Nobody | Payer::Next | Payer::Batch => {}
        }
    }
}

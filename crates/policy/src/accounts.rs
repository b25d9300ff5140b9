//! Processor time: its use, its budget and its payers.
//!
//! # Problem
//! A step receives two costs: that of the command before it, and that of the step before itself,
//! which worked through the answer to the command before that. Each must go to the payer that
//! caused it.
//!
//! # Approach
//! The command under way has a payer, and so has the answer that the last step worked through. The
//! engine begins a command with [`Accounts::begin`]; [`Accounts::book`] then charges the cost of
//! the step to the payer of the answer, and the cost of the call to the payer of the command. The
//! time that a step took to choose the next command is charged together with it: only a clock could
//! separate the two, and working through an answer takes most of the time.
//!
//! The cost of waking up is kept until the next payer. If the payer of the next turn paid for it
//! beforehand, that payer would be in debt again before its turn and would never have one.

pub(crate) mod budget;
pub(crate) mod page_cost;
pub(crate) mod payer;

use crate::command::{Nanos, Spent};
use crate::convert;
use crate::params::{Params, SECOND};
use crate::report::CpuReport;
use budget::CpuBudget;
use payer::{BatchPayers, Payer};

/// The cost of waking is a mean in which the last time counts one part in this number.
const WAKE_MEAN_DIVISOR: Nanos = 4;

/// The governor's budget, and the payer of the command under way.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The share of the governor, for everything together.
    total: CpuBudget,
    recent: Recent,
    /// The cost of waking since a payer last paid.
    wake_cost: Nanos,
    /// Mean cost of one wake-up.
    waking: Nanos,
    /// The payer of the command under way.
    payer: Payer,
    /// The payer for working through the answer to the command before.
    answered: Payer,
    /// The payers of the pages of the last batch.
    batch: BatchPayers,
}

/// The share used lately: over the last window of a second or more.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    begun: Nanos,
    used: Nanos,
    share: f64,
}

impl Accounts {
    /// Nothing used yet.
    pub(crate) fn new(params: &Params) -> Accounts {
        Accounts {
            total: CpuBudget::new(params.cpu, params.sleep),
            recent: Recent::default(),
            wake_cost: 0,
            waking: 0,
            payer: Payer::Nobody,
            answered: Payer::Nobody,
            batch: BatchPayers::default(),
        }
    }

    /// The governor's share has changed.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        self.total.set_share(params.cpu);
    }

    /// The run starts.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.recent.begun = now;
    }

    /// A command is given, for which `payer` pays.
    pub(crate) fn begin(&mut self, payer: Payer) {
        self.payer = payer;
    }

    /// The next batch holds pages of these payers.
    pub(crate) fn begin_batch(&mut self, payers: impl Iterator<Item = Payer>) {
        self.batch = BatchPayers::default();
        payers.for_each(|payer| self.batch.add(payer));
    }

    /// Books the costs since the last step, and calls `charge` with the cost of each payer. Returns
    /// the payer of the answer that the last step worked through.
    pub(crate) fn book(
        &mut self,
        now: Nanos,
        spent: Spent,
        mut charge: impl FnMut(Payer, Nanos),
    ) -> Payer {
        let all = spent.step + spent.call;
        for (payer, cost) in [(self.answered, spent.step), (self.payer, spent.call)] {
            match payer {
                Payer::Next => self.total.charge_waking(now, cost),
                _ => self.total.charge(now, cost),
            }
        }
        self.recent.used += all;
        let window = now - self.recent.begun;
        if window >= SECOND {
            self.recent = Recent {
                begun: now,
                used: 0,
                share: convert::ratio(self.recent.used, window),
            };
        }
        self.charge(self.answered, spent.step, &mut charge);
        self.charge(self.payer, spent.call, &mut charge);
        std::mem::replace(&mut self.answered, self.payer)
    }

    fn charge(&mut self, payer: Payer, cost: Nanos, charge: &mut impl FnMut(Payer, Nanos)) {
        if payer == Payer::Next {
            self.wake_cost += cost;
            return;
        }
        let woke = std::mem::take(&mut self.wake_cost);
        if woke > 0 {
            self.waking = (self.waking * (WAKE_MEAN_DIVISOR - 1) + woke) / WAKE_MEAN_DIVISOR;
        }
        let cost = cost + woke;
        if payer == Payer::Batch {
            self.batch_parts(cost)
                .for_each(|(payer, part)| charge(payer, part));
        } else {
            charge(payer, cost);
        }
    }

    /// The parts of a cost of the last batch, by payer.
    pub(crate) fn batch_parts(&self, cost: Nanos) -> impl Iterator<Item = (Payer, Nanos)> + use<> {
        self.batch.parts(cost)
    }

    /// Whether the governor's share allows anything now.
    pub(crate) fn is_ready(&mut self, now: Nanos) -> bool {
        self.total.is_ready(now)
    }

    /// The time at which all used time is paid: a sleep lasts until then.
    pub(crate) fn paid_at(&self) -> Nanos {
        self.total.paid_at()
    }

    /// The cost of one wake-up.
    pub(crate) fn waking(&self) -> Nanos {
        self.waking
    }

    /// Processor time used in all.
    pub(crate) fn used(&self) -> Nanos {
        self.total.used()
    }

    /// The used time, with the part of discovery.
    pub(crate) fn report(&self, discovery: Nanos) -> CpuReport {
        CpuReport {
            recent_share: self.recent.share,
            budget_share: self.total.share(),
            used_seconds: convert::seconds(self.total.used()),
            discovery_seconds: convert::seconds(discovery),
        }
    }
}

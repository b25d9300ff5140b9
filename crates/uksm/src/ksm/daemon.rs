//! The loop of a daemon that drives in-kernel KSM.
//!
//! # Problem
//! Sampling and ksmd together must keep to the governor's share, new processes must be found soon,
//! and requests must be answered at any time.
//!
//! # Approach
//! One thread. It searches for processes every second, or more rarely if that took long; a
//! connecting agent makes a search due sooner, but searches are limited to their part of the time,
//! and none is made while the budget is overdrawn. The loop waits for no agent, and for a process
//! that holds the lock of its mappings only until a deadline ([`super::targets`]). Within the
//! budget, it samples some milliseconds at a time; once a pass is complete, or a round has passed
//! since gains are expected, a series begins, for which ksmd runs in slices of the policy's sleep.
//! After a series the offered memory is sampled again. Ten rounds after a pass began, the next one
//! does. All processor time of this process and of ksmd is booked.
//!
//! # Units
//! Nanoseconds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use uksm_linux::clock;
use uksm_linux::ksm::sysfs::Sysfs;
use uksm_linux::selection::Selectors;
use uksm_linux::sleeper::{Sleeper, WakeCause};
use uksm_policy::advice::bursts::{Bursts, KsmAction, Reading};
use uksm_policy::command::Nanos;

use super::settings_guard::SettingsGuard;
use super::targets::{Targets, Unmerging};
use crate::control::{Answer, Control, PendingRequest, Request};
use crate::setting::ResolvedSettings;
use crate::status::ksm::{
    KsmCpuStatus, KsmDaemonStatus, KsmOfferStatus, KsmSavingsStatus, KsmStatus, Ksmd, LIMITS,
};
use crate::{signals, systemd};

const SECOND: Nanos = 1_000_000_000;

/// Interval of searches for processes, which take at most 1/`SEARCH_SHARE_DIVISOR` of the time.
const SEARCH_INTERVAL_NS: Nanos = SECOND;
const SEARCH_SHARE_DIVISOR: Nanos = 100;

/// Minimum time between two searches, however many agents connect.
const MIN_SEARCH_GAP_NS: Nanos = SECOND / 20;

/// Timeout of unmerging, after which it is answered as unfinished.
const MAX_BREAK_NS: Nanos = 300 * SECOND;

/// Interval of checks for the end of an unmerging.
const BREAK_CHECK_NS: Nanos = SECOND / 20;

/// Rounds between the beginnings of two passes.
const PASS_ROUNDS: u64 = 10;

/// Interval of notices to systemd's watchdog.
const NOTICE_INTERVAL_NS: Nanos = 10 * SECOND;

/// A daemon at work.
#[derive(Debug)]
pub(super) struct KsmDaemon {
    knobs: SettingsGuard,
    ksmd: u32,
    targets: Targets,
    control: Control,
    sleeper: Sleeper,
    /// SIGHUP was received, unless it ends the daemon.
    hangups: Option<Arc<AtomicBool>>,
    bursts: Bursts,
    round: Nanos,
    governor: &'static str,
    started: Nanos,
    /// Times of ksmd and of this process at the last booking, and of ksmd at the start.
    booked: (Nanos, Nanos),
    ksmd_before: Nanos,
    saved_before: u64,
    scans_before: u64,
    next_look: Nanos,
    /// No search is made before, even if an agent connects.
    earliest_look: Nanos,
    /// An agent waits for the next search.
    has_newcomer: bool,
    /// Unmergings in progress, each with its request and the deadline of the answer.
    breaking: Vec<(Unmerging, PendingRequest, Nanos)>,
    next_pass: Nanos,
    /// Time from which gains are expected.
    due_since: Option<Nanos>,
    was_scanning: bool,
}

impl KsmDaemon {
    /// A daemon that has not begun.
    pub(super) fn new(
        knobs: SettingsGuard,
        ksmd: u32,
        targets: Targets,
        (control, sleeper, hangups): (Control, Sleeper, Option<Arc<AtomicBool>>),
        resolved: &ResolvedSettings,
    ) -> KsmDaemon {
        let params = &resolved.params;
        let now = clock::now();
        KsmDaemon {
            knobs,
            ksmd,
            targets,
            control,
            sleeper,
            hangups,
            bursts: Bursts::new(params.cpu, params.sleep, params.round),
            round: params.round,
            governor: resolved.daemon.governor.name(),
            started: now,
            booked: (0, 0),
            ksmd_before: 0,
            saved_before: 0,
            scans_before: 0,
            next_look: now,
            earliest_look: now,
            has_newcomer: false,
            breaking: Vec::new(),
            next_pass: now + params.round * PASS_ROUNDS,
            due_since: None,
            was_scanning: false,
        }
    }

    /// Works until it is stopped.
    ///
    /// # Errors
    /// KSM can no longer be driven.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        self.ksmd_before = Sysfs::used(self.ksmd)?;
        self.booked = (self.ksmd_before, clock::process_cpu());
        let counters = self.knobs.counters()?;
        self.saved_before = counters.pages_sharing + self.knobs.zero_pages();
        self.scans_before = counters.full_scans;
        self.targets.look();
        self.log_limits();
        systemd::notify(&[sd_notify::NotifyState::Ready]);
        let mut next_notice = clock::now();
        while !self.sleeper.stopping() {
            self.hangups.iter().for_each(signals::ignore_hangup);
            if let Some(pending) = self.control.next() {
                self.attend(pending)?;
            }
            self.end_breaking();
            if clock::now() >= next_notice {
                next_notice = clock::now() + NOTICE_INTERVAL_NS;
                systemd::notify(&[sd_notify::NotifyState::Watchdog]);
            }
            self.turn()?;
        }
        systemd::notify(&[sd_notify::NotifyState::Stopping]);
        self.knobs.stop()?;
        tracing::info!(
            "stopped: {} pages saved on this host, {} MiB sampled; merged pages stay merged",
            self.saved_pages()?,
            self.targets.sampled_mib()
        );
        Ok(())
    }

    fn log_limits(&self) {
        tracing::info!(
            "uksm {} drives in-kernel KSM, governor {}; it is",
            env!("CARGO_PKG_VERSION"),
            self.governor
        );
        for limit in LIMITS {
            tracing::info!("- {limit}");
        }
        let others = self.targets.found().others;
        if others > 0 {
            tracing::warn!(
                "processes that were not named have mergeable memory ({others}): KSM merges them \
                 too, at uksm's cost"
            );
        }
        if self.knobs.ran_before() {
            tracing::warn!(
                "stop the program that started ksmd (ksmtuned, a hypervisor) while uksm drives ksmd"
            );
        }
    }

    /// Runs one step of the loop.
    fn turn(&mut self) -> anyhow::Result<()> {
        let reading = self.reading()?;
        let now = clock::now();
        self.book(now, reading);
        self.targets.take_messages();
        if let Err(until) = self.bursts.may_work(now) {
            self.knobs.stop()?;
            // Connecting agents wait for the budget, too.
            self.sleep_watching(until, false);
            return Ok(());
        }
        if now >= self.next_look {
            if self.targets.look() {
                self.bursts.hurry();
            }
            let end = clock::now();
            let gap = (end - now) * SEARCH_SHARE_DIVISOR;
            self.next_look = end + SEARCH_INTERVAL_NS.max(gap);
            self.earliest_look = end + MIN_SEARCH_GAP_NS.max(gap);
            self.has_newcomer = false;
        }
        if !self.targets.estimates.is_through() {
            self.targets.sample();
        }
        self.begin(now, reading);
        match self.bursts.turn(now, reading) {
            KsmAction::Run { pages, slice } => {
                self.was_scanning = true;
                self.knobs.start(pages)?;
                // While there is memory to sample, ksmd runs meanwhile.
                if self.targets.estimates.is_through() {
                    self.sleep(clock::now() + slice);
                }
            }
            KsmAction::Rest { until } => {
                self.knobs.stop()?;
                self.sleep(until);
            }
            KsmAction::Stop => {
                self.knobs.stop()?;
                if std::mem::take(&mut self.was_scanning) {
                    self.targets.estimates.check();
                    return Ok(());
                }
                if !self.targets.estimates.is_through() {
                    return Ok(());
                }
                if now >= self.next_pass {
                    self.next_pass = now + self.round * PASS_ROUNDS;
                    self.targets.estimates.begin_pass();
                    return Ok(());
                }
                self.sleep(self.next_look.min(self.next_pass));
            }
        }
        Ok(())
    }

    /// Begins a series if one is due.
    fn begin(&mut self, now: Nanos, reading: Reading) {
        if self.bursts.is_scanning() || !self.targets.estimates.is_due() {
            return;
        }
        let since = *self.due_since.get_or_insert(now);
        if !self.targets.estimates.is_through() && now - since < self.round {
            return;
        }
        let gain = self.targets.estimates.gain();
        // ksmd is certainly at the beginning of a scan only if it holds no page.
        let is_fresh = self.knobs.counters().is_ok_and(|held| {
            held.pages_shared + held.pages_sharing + held.pages_unshared + held.pages_volatile == 0
        });
        if self.bursts.begin(now, reading, gain, is_fresh) {
            self.due_since = None;
            tracing::debug!("a series begins: {gain} pages are to be gained");
        }
    }

    /// Sleeps until a time, a request, an answer or a new agent. A new agent is remembered until
    /// the next search, and causes no further wake-up.
    fn sleep(&mut self, until: Nanos) {
        let until = match self.has_newcomer {
            true => until.min(self.next_look),
            false => until,
        };
        self.sleep_watching(until, !self.has_newcomer);
    }

    fn sleep_watching(&mut self, until: Nanos, watches_newcomers: bool) {
        let until = match self.breaking.is_empty() {
            true => until,
            false => until.min(clock::now() + BREAK_CHECK_NS),
        };
        let agents = self.targets.agents();
        let watched = [agents.events(), agents.listener()];
        let watched = match watches_newcomers {
            true => &watched[..],
            false => &watched[..1],
        };
        if self.sleeper.sleep(until, watched) == WakeCause::Readable(1) {
            self.has_newcomer = true;
            self.next_look = self.next_look.min(self.earliest_look);
        }
    }

    /// Answers the requests for unmergings that have ended.
    fn end_breaking(&mut self) {
        let now = clock::now();
        let targets = &self.targets;
        self.breaking.retain(|(breaking, pending, until)| {
            let answer = match targets.broken(breaking) {
                Some(broken) => Answer::Broken {
                    processes: broken.processes,
                    pages: broken.pages,
                    stopped: 0,
                    locked: 0,
                },
                None if now >= *until => Answer::Error(format!(
                    "processes have not answered for {} s: they may still share pages",
                    MAX_BREAK_NS / SECOND
                )),
                None => return true,
            };
            pending.answer(answer);
            false
        });
    }

    fn reading(&self) -> anyhow::Result<Reading> {
        let counters = self.knobs.counters()?;
        Ok(Reading {
            full_scans: counters.full_scans,
            saved_pages: counters.pages_sharing + self.knobs.zero_pages(),
            used: Sysfs::used(self.ksmd)?,
        })
    }

    fn book(&mut self, now: Nanos, reading: Reading) {
        let own = clock::process_cpu();
        let (ksmd_before, own_before) = self.booked;
        self.booked = (reading.used, own);
        let cost = reading.used.saturating_sub(ksmd_before) + own.saturating_sub(own_before);
        self.bursts.charge(now, cost);
    }

    fn saved_pages(&self) -> anyhow::Result<u64> {
        Ok(self.reading()?.saved_pages)
    }

    fn attend(&mut self, pending: PendingRequest) -> anyhow::Result<()> {
        let answer = match &pending.request {
            Request::Status => Answer::Ksm(Box::new(self.status()?)),
            Request::Break(texts) => {
                let selectors: Result<Selectors, String> = texts.try_into();
                match selectors.and_then(|selectors| self.targets.break_up(&selectors)) {
                    Ok(breaking) => {
                        let until = clock::now() + MAX_BREAK_NS;
                        self.breaking.push((breaking, pending, until));
                        return Ok(());
                    }
                    Err(line) => Answer::Error(line),
                }
            }
            Request::Group(name) => Answer::Error(format!(
                "{name}: no such group: in-kernel KSM keeps no groups apart"
            )),
            Request::Account => Answer::Error(
                "no accounts are kept: in-kernel KSM does not report which process has which \
                 merged pages"
                    .to_owned(),
            ),
            Request::Processes(_) | Request::Spaces => Answer::Error(
                "in-kernel KSM does not report the merged pages of each process: see `uksm status`"
                    .to_owned(),
            ),
            Request::Explain { .. } | Request::ExplainSpace { .. } => Answer::Error(
                "in-kernel KSM does not report why memory is not merged: see `uksm status`"
                    .to_owned(),
            ),
            Request::Reload | Request::Change(_) | Request::BreakSpaces(_) => Answer::Error(
                "the daemon drives in-kernel KSM, which keeps no groups apart".to_owned(),
            ),
        };
        pending.answer(answer);
        Ok(())
    }

    fn status(&self) -> anyhow::Result<KsmStatus> {
        let reading = self.reading()?;
        let totals = self.targets.estimates.totals();
        Ok(KsmStatus {
            backend: "ksm".to_owned(),
            daemon: KsmDaemonStatus {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                uptime_seconds: seconds(clock::now() - self.started),
                governor: self.governor.to_owned(),
            },
            limits: LIMITS.map(str::to_owned).to_vec(),
            processes: self.targets.found().clone(),
            offered: KsmOfferStatus {
                blocks: totals.blocks,
                offered_pages: totals.offered_pages,
                other_pages: totals.other_pages,
                sampled: self.targets.estimates.sampled(),
                withdrawn: totals.withdrawn,
                left_out: totals.left_out,
                refused: self.targets.refused(),
            },
            saved: KsmSavingsStatus {
                host_pages: reading.saved_pages,
                before_pages: self.saved_before,
                merged_pages: self.targets.merged(),
            },
            ksmd: Ksmd {
                series: self.bursts.done(),
                full_scans: reading.full_scans.saturating_sub(self.scans_before),
                is_running: self.knobs.is_running(),
                is_scanning: self.bursts.is_scanning(),
            },
            cpu: KsmCpuStatus {
                budget_share: self.bursts.share(),
                ksmd_seconds: seconds(reading.used.saturating_sub(self.ksmd_before)),
                own_seconds: seconds(clock::process_cpu()),
            },
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for reading, not for counting on"
)]
fn seconds(time: Nanos) -> f64 {
    time as f64 / 1e9
}

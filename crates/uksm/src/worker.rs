//! The worker: one engine, one domain, one loop.
//!
//! The loop that merges must also answer requests, feed systemd's watchdog and stop on request.
//! None of that may be charged to the policy's budget or hold it up. The policy makes commands
//! short; between two of them the worker checks for a stop, a request and the time of the next
//! notice. It does not depend on the command line, so that a supervisor can start it as well.

pub(crate) mod evidence;
mod locate;
mod processes;
pub(crate) mod start;
pub(crate) mod write_reports;
mod zero_page_count;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use uksm_linux::discovery::Discovery;
use uksm_linux::domain::Domain;
use uksm_linux::driver::{Driver, HostClocks};
use uksm_linux::hints::{Feed, HintReceiver, Loading};
use uksm_linux::machine::{FrameTotals, LinuxMachine};
use uksm_linux::module;
use uksm_linux::proc::OwnMemory;
use uksm_linux::supervised_spaces::{SupervisedSpaces, Supervisor};
use uksm_linux::unmerge::UnmergeSummary;
use uksm_linux::{clock, proc};
use uksm_policy::Engine;
use uksm_policy::command::{Command, Nanos, SpaceId};
use uksm_policy::report::{HintsReport, MergedReport, Report, counted};

use crate::account::single_daemon::SingleDaemonAccount;
use crate::control::{Answer, Control, PendingRequest, Request};
use crate::status::written_pages::WrittenPages;
use crate::status::{
    CpuStatus, DaemonStatus, FailedProcess, FrameStatus, HintStatus, HugePageStatus, KernelStatus,
    MemoryStatus, MergeStatus, SavingsStatus, Status, TargetStatus,
};
use crate::{signals, systemd};
use locate::Locate;
use write_reports::WriteReports;

/// Maximum number of frames that are counted for a status, which takes 10 ms. Beyond it the
/// policy's own counts are used: a status must not hold up merging for long.
const MAX_COUNTED: u64 = 30_000;

/// Time from the start until the programs that report I/O are loaded: memory that exists before is
/// read in full anyway.
const PROGRAMS_AFTER: Duration = Duration::from_secs(5);

/// Interval of checks whether the programs are loaded.
const LOADING_CHECK_INTERVAL_NS: Nanos = 2_000_000_000;

/// Source of hints in the status of a group's worker.
pub(crate) const BY_SUPERVISOR: &str = "the supervisor";

/// The source of hints.
#[derive(Debug)]
pub(crate) enum HintsFrom {
    /// Hints are off.
    Nobody,
    /// The worker's own programs.
    Programs,
    /// The supervisor.
    Supervisor(HintReceiver),
}

/// Interval of notices to systemd.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(10);

/// An engine at work on a host.
#[derive(Debug)]
pub(crate) struct Worker<D, P> {
    engine: Engine,
    host: LinuxMachine<D, P>,
    control: Control,
    own_memory: OwnMemory,
    governor: &'static str,
    /// The source of hints in the status, and the programs while they are loaded.
    hint_source: String,
    loading: Option<Loading>,
    /// Account of a daemon without groups; for groups the supervisor keeps it.
    account: Option<SingleDaemonAccount>,
    hangups: Option<Arc<AtomicBool>>,
    /// Count of a daemon without groups.
    written: Option<WrittenPages>,
    /// Reports to a supervisor.
    write_reports: Option<WriteReports>,
    /// The last count of zero pages, and its time.
    zero_pages: Option<(Nanos, u64)>,
    started: Nanos,
}

impl<D: Domain, P: Discovery> Worker<D, P> {
    /// A worker that has not begun.
    pub(crate) fn new(
        engine: Engine,
        host: LinuxMachine<D, P>,
        (control, own_memory): (Control, OwnMemory),
        governor: &'static str,
        hints: HintsFrom,
    ) -> Worker<D, P> {
        let (mut host, mut loading) = (host, None);
        let hint_source = match hints {
            HintsFrom::Programs => {
                loading = Some(Loading::after(PROGRAMS_AFTER));
                "nobody yet: the programs are not loaded"
            }
            HintsFrom::Supervisor(hints) => {
                host.be_hinted_by(Feed::Supervisor(hints));
                BY_SUPERVISOR
            }
            HintsFrom::Nobody => "nobody: hint_runs is 0",
        };
        let hint_source = hint_source.to_owned();
        Worker {
            engine,
            host,
            control,
            own_memory,
            governor,
            hint_source,
            loading,
            account: None,
            hangups: None,
            written: None,
            write_reports: None,
            zero_pages: None,
            started: clock::now(),
        }
    }

    /// Writes accounts of its own from now on.
    pub(crate) fn keep_account(&mut self, account: SingleDaemonAccount) {
        self.account = Some(account);
    }

    /// Logs at each SIGHUP that it has no effect here.
    pub(crate) fn take_hangups(&mut self, came: Arc<AtomicBool>) {
        self.hangups = Some(came);
    }

    /// Counts merged pages that processes write.
    pub(crate) fn count_written(&mut self, written: WrittenPages) {
        self.written = Some(written);
    }

    /// Reports written pages from now on.
    pub(crate) fn report_writes(&mut self, reports: WriteReports) {
        self.write_reports = Some(reports);
    }

    /// The governor's name.
    pub(crate) fn governor(&self) -> &'static str {
        self.governor
    }

    /// Works until a stop is requested; answers the status at the end.
    ///
    /// # Errors
    /// The module fails.
    pub(crate) fn run(&mut self) -> module::Result<Status>
    where
        LinuxMachine<D, P>: Unmerge + Locate,
    {
        let mut driver = Driver::new(HostClocks);
        let interval = systemd::notify_interval(NOTIFY_INTERVAL);
        let interval = Nanos::try_from(interval.as_nanos())
            .unwrap_or(Nanos::MAX)
            .max(1);
        // Without a socket there are no notices to wake up for.
        let is_notified = std::env::var_os("NOTIFY_SOCKET").is_some();
        let mut next_notice = if is_notified {
            clock::now()
        } else {
            Nanos::MAX
        };
        while !self.host.stopping() {
            let loading = self.loading.is_some().then_some(LOADING_CHECK_INTERVAL_NS);
            let notice = next_notice.saturating_sub(clock::now());
            self.host
                .sleep_at_most(notice.min(loading.unwrap_or(Nanos::MAX)));
            let engine = &mut self.engine;
            driver.turn(
                |now, spent, seen| {
                    let command = engine.step(now, spent, seen);
                    tracing::trace!(
                        "the last turn cost {} + {} ns; next {}",
                        spent.step,
                        spent.call,
                        name(&command)
                    );
                    command
                },
                &mut self.host,
            )?;
            if let Some(reports) = &mut self.write_reports {
                reports.report(self.engine.merged().written, clock::now());
            }
            self.take_programs();
            self.hangups.iter().for_each(signals::ignore_hangup);
            if let Some(share) = self.control.share()
                && let Err(error) = self.engine.set_cpu(share)
            {
                tracing::warn!("the share stays as it was: {error}");
            }
            if let Some(pending) = self.control.next() {
                driver.aside(|| self.attend(&pending));
            }
            if self
                .account
                .as_mut()
                .is_some_and(SingleDaemonAccount::is_due)
            {
                driver.aside(|| self.attend_account());
            }
            if clock::now() >= next_notice {
                next_notice = clock::now().saturating_add(interval);
                driver.aside(|| self.notify_systemd());
            }
        }
        let status = self.status()?;
        if let Some(account) = &mut self.account {
            let _logged = account.write(&status);
        }
        Ok(status)
    }

    /// Writes costs and savings; on an error, as for want of memory, the next record has them.
    fn attend_account(&mut self) {
        if let Err(error) = self.accounted() {
            tracing::warn!("accounts: {error}");
        }
    }

    /// Writes costs and savings, and answers where.
    fn accounted(&mut self) -> module::Result<Answer> {
        let status = self.status()?;
        Ok(match &mut self.account {
            Some(account) => Answer::Accounted {
                fault: account.write(&status).err(),
                folder: account.folder(),
            },
            None => Answer::Error("the supervisor is to be asked for accounts".to_owned()),
        })
    }

    /// Starts to use the programs that report I/O, once they are loaded. The daemon also runs
    /// without them.
    fn take_programs(&mut self) {
        let Some(loaded) = self.loading.as_mut().and_then(Loading::take) else {
            return;
        };
        self.loading = None;
        self.hint_source = match loaded {
            Ok(programs) => {
                for function in programs.missing() {
                    tracing::info!("hints: not watched: {function}");
                }
                self.host.be_hinted_by(Feed::Programs(Box::new(programs)));
                "programs".to_owned()
            }
            Err(error) => {
                tracing::warn!("no hints of I/O: {error}");
                format!("nobody: {error}")
            }
        };
    }

    fn attend(&mut self, pending: &PendingRequest)
    where
        LinuxMachine<D, P>: Unmerge + Locate,
    {
        let answer = match &pending.request {
            Request::Status => self.status().map(|status| Answer::Status(Box::new(status))),
            Request::Group(name) | Request::Processes(Some(name)) => Ok(Answer::Error(format!(
                "{name}: no such group: none are configured"
            ))),
            Request::Account => self.accounted(),
            Request::Reload => Ok(Answer::Error(
                "only a daemon with groups can reload: restart it".to_owned(),
            )),
            Request::Change(_) => Ok(Answer::Error(
                "only a daemon with groups can have others: configure one, or a rule, and restart it"
                    .to_owned(),
            )),
            Request::Break(_) | Request::BreakSpaces(_) => self.break_pages(&pending.request),
            Request::Explain { .. } | Request::ExplainSpace { .. } => {
                self.explain(&pending.request)
            }
            Request::Processes(None) | Request::Spaces => Ok(self.processes(&pending.request)),
        };
        pending.answer(answer.unwrap_or_else(|error| Answer::Error(error.to_string())));
    }

    fn break_pages(&mut self, request: &Request) -> module::Result<Answer>
    where
        LinuxMachine<D, P>: Unmerge,
    {
        let mut last = clock::now();
        let mut alive = || {
            if clock::now().saturating_sub(last) > 1_000_000_000 {
                last = clock::now();
                notify_watchdog();
            }
        };
        let done = match self.host.unmerge(request, &mut alive) {
            Ok(done) => done?,
            Err(line) => return Ok(Answer::Error(line)),
        };
        tracing::info!(
            "unmerged {} of {}",
            counted(done.pages, "page", "pages"),
            counted(done.processes, "process", "processes")
        );
        Ok(Answer::Broken {
            processes: done.processes,
            pages: done.pages,
            stopped: done.stopped,
            locked: done.locked,
        })
    }

    /// Feeds the watchdog, and sends a line for `systemctl status`.
    fn notify_systemd(&self) {
        let cpu = self.engine.cpu();
        let text = format!(
            "{} merged, {:.1} % of a core of {:.1} %",
            counted(self.engine.merged().now, "page", "pages"),
            cpu.recent_share * 100.0,
            cpu.budget_share * 100.0
        );
        let state = [
            sd_notify::NotifyState::Watchdog,
            sd_notify::NotifyState::Status(&text),
        ];
        if let Err(error) = sd_notify::notify(&state) {
            tracing::debug!("cannot notify systemd: {error}");
        }
    }

    /// The status of the daemon.
    ///
    /// # Errors
    /// The module fails.
    pub(crate) fn status(&mut self) -> module::Result<Status> {
        let info = self.host.info()?;
        let report = self.engine.report();
        let totals = if info.frames <= MAX_COUNTED {
            self.host.frame_totals()?
        } else {
            FrameTotals {
                mapped: report.frames.frames,
                single: report.frames.unshared,
                unmapped: info.frames.saturating_sub(report.frames.frames),
                sharers: report.frames.sharers,
                by_node: report.frames_by_node.clone(),
            }
        };
        let resident_bytes = self.own_memory.resident_bytes();
        let resident_bytes = resident_bytes.unwrap_or_else(|error: proc::Error| {
            tracing::warn!("{error}");
            0
        });
        let frames = FrameStatus {
            held: info.frames,
            single: totals.single,
            unmapped: totals.unmapped,
            sharers: totals.sharers,
            by_node: totals.by_node,
            limit: most_frames(&info),
            machine: info.machine_frames,
            machine_limit: info.machine_frame_limit,
        };
        // Zero pages that were read and never merged are no savings.
        let zero = self.zero_pages(totals.sharers)?.min(info.zeroed);
        let merged = MergedReport {
            now: report.merged.now.min(totals.sharers + zero),
            ..report.merged
        };
        let uptime_seconds = seconds(clock::now().saturating_sub(self.started));
        Ok(Status {
            daemon: DaemonStatus {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                uptime_seconds,
                governor: self.governor.to_owned(),
                dry_run: self.host.is_dry(),
            },
            targets: self.targets(&report),
            levels: report.levels,
            merged: MergeStatus {
                pages: merged,
                duplicates: report.duplicates,
                written_on_host: self.written.as_ref().and_then(|of| of.count(info.broken)),
            },
            saved: SavingsStatus::new(&frames, zero, resident_bytes),
            frames,
            cpu: CpuStatus {
                mean_share: report.cpu.used_seconds / uptime_seconds.max(1e-9),
                process_seconds: seconds(clock::process_cpu()),
                policy: report.cpu,
            },
            memory: MemoryStatus {
                resident_bytes,
                shortages: self.host.shortages(),
                index: report.index,
                regions: report.region_memory,
            },
            strength: report.strength,
            huge: HugePageStatus {
                splits: info.splits,
                policy: report.huge,
            },
            promotions: report.promotions,
            sampling: report.sampling,
            hints: self.hints(report.hints),
            outcomes: report.outcomes,
            known_frames: report.frames,
            kernel: KernelStatus::new(&info),
            // For groups, the supervisor has these figures.
            ledger: self
                .account
                .as_ref()
                .map(SingleDaemonAccount::totals)
                .unwrap_or_default(),
        })
    }

    fn hints(&self, policy: HintsReport) -> HintStatus {
        let programs = self.host.hints();
        let counts = programs.map(Feed::counts).unwrap_or_default();
        HintStatus {
            source: self.hint_source.clone(),
            unwatched: programs.map_or(vec![], |programs| programs.missing().to_vec()),
            calls: counts.calls,
            other: counts.other,
            program_seconds: counts.taken.as_secs_f64(),
            policy: HintsReport {
                lost: counts.lost,
                ..policy
            },
        }
    }

    fn targets(&self, report: &Report) -> TargetStatus {
        let found = self.host.processes().counts();
        let failed = found.failed.into_iter();
        let locked = self.host.locked().into_iter();
        let mut targets = TargetStatus {
            processes: found.processes,
            unread: found.unread,
            failed: failed
                .map(|(pid, errno)| FailedProcess::of(pid, errno))
                .collect(),
            parted_pages: found.parted,
            told: found.has_events,
            events_lost: found.events_lost,
            locked_processes: 0,
            locked: vec![],
            lock_timeouts: self.host.given_up(),
            spaces: report.spaces,
            regions: report.regions,
        };
        targets.add_locked(locked.map(|(pid, time)| (pid, seconds(time))));
        targets
    }
}

/// Unmerges the processes or spaces of a request.
pub(crate) trait Unmerge {
    /// Unmerges; calls `alive` every now and then.
    ///
    /// # Errors
    /// The request is not possible here: one line. The inner error: the module fails.
    fn unmerge(
        &mut self,
        request: &Request,
        alive: &mut dyn FnMut(),
    ) -> Result<module::Result<UnmergeSummary>, String>;
}

/// A daemon that searches for processes itself leaves unmerged ones alone from then on.
impl<D: Domain> Unmerge for LinuxMachine<D> {
    fn unmerge(
        &mut self,
        request: &Request,
        alive: &mut dyn FnMut(),
    ) -> Result<module::Result<UnmergeSummary>, String> {
        let Request::Break(texts) = request else {
            return Err("this call is between a supervisor and its workers".to_owned());
        };
        let selectors = texts.try_into()?;
        self.may_break(&selectors)?;
        Ok(self.unmerge_selected(&selectors, alive))
    }
}

/// A group's worker knows spaces only.
impl<D: Domain, S: Supervisor> Unmerge for LinuxMachine<D, SupervisedSpaces<S>> {
    fn unmerge(
        &mut self,
        request: &Request,
        alive: &mut dyn FnMut(),
    ) -> Result<module::Result<UnmergeSummary>, String> {
        let Request::BreakSpaces(spaces) = request else {
            return Err("only the supervisor knows processes".to_owned());
        };
        let spaces: Vec<SpaceId> = spaces.iter().map(|&space| SpaceId(space)).collect();
        Ok(self.break_spaces(&spaces, alive))
    }
}

/// A short name of a command.
fn name(command: &Command) -> String {
    match command {
        Command::TakeHints => "hints".to_owned(),
        Command::ListProcesses => "list of processes".to_owned(),
        Command::MeasureSpaces(spaces) => format!("sizes of {} spaces", spaces.len()),
        Command::ListMappings(space) => format!("list of mappings of space {}", space.0),
        Command::Sample { runs, lines } => {
            let pages: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
            format!(
                "sample of {pages} pages in {} runs, lines {lines:?}",
                runs.len()
            )
        }
        Command::Fold(batch) => format!("FOLD of {} pages", batch.entries.len()),
        Command::Frames { count, .. } => format!("list of {count} frames"),
        Command::GiveBack { space, start, end } => {
            format!(
                "{:#x} to {:#x} of space {} to be given back",
                start, end, space.0
            )
        }
        Command::Sleep { until, .. } => {
            format!("sleep of {} us", until.saturating_sub(clock::now()) / 1000)
        }
    }
}

/// Most frames that the domain can come to hold now, with what other domains leave of the machine's
/// limit.
fn most_frames(info: &module::Info) -> u64 {
    let left = info.machine_frame_limit.saturating_sub(info.machine_frames);
    info.frame_limit.min(info.frames.saturating_add(left))
}

fn notify_watchdog() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]) {
        tracing::debug!("cannot notify systemd: {error}");
    }
}

fn seconds(time: Nanos) -> f64 {
    Duration::from_nanos(time).as_secs_f64()
}

//! One worker process: its start, its requests, and its restart.
//!
//! # Problem
//! A worker may die at any time, be killed for its control group's memory, or wait for a control
//! group that is not there yet. None of that may stop another group's worker, nor lose a frame.
//!
//! # Approach
//! The supervisor has the domain's file, so frames and attached spaces outlive the worker; a new
//! worker receives that file and the list of spaces. A worker that dies repeatedly is restarted
//! after ever longer pauses ([`restart`]).
//!
//! No call of this file or of those below waits for the worker: its control group can stop it at
//! any time. Messages are read as they come ([`messages`]), and a worker that has to end is killed
//! if it takes too long ([`ending`]).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uksm_linux::hints::{self, HintBatch, HintSender};
use uksm_linux::module::Device;
use uksm_linux::pidfd;
use uksm_linux::selection::{Cgroup, GroupId};
use uksm_linux::supervised_spaces::SpaceReport;
use uksm_policy::command::SpaceId;

use crate::config::plan::Plan;
use crate::groups::supervisor::account::Account;
use crate::groups::supervisor::audit;
use crate::groups::supervisor::domain_savings::DomainSavings;
use crate::groups::supervisor::fd_store;
use crate::groups::supervisor::handover::Handover;
use crate::groups::supervisor::placement::{cgroup_tree, place};
use crate::groups::supervisor::worker_events::WorkerEvents;
use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{Setup, SupervisorMessage};
use crate::own_program;
use crate::paths::Roots;
use crate::status::written_pages::WrittenPages;

mod accounting;
mod ending;
mod messages;
mod restart;
mod savings;
mod state;
mod worker_log;

pub(super) use ending::STOP_TIMEOUT;
pub(super) use messages::{ANOTHER_QUESTION, NO_ANSWER};
use restart::RestartPause;
use state::{EndingWorker, Question, RunningWorker, WorkerState};
use worker_log::WorkerLog;

/// Interval of checks for a control group that does not exist yet.
const CGROUP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reports of a worker about its spaces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reports {
    /// Spaces that had left, and that the worker has detached.
    pub(super) detached: BTreeSet<SpaceId>,
    /// Spaces that the module calls dead.
    pub(super) dead: BTreeSet<SpaceId>,
}

/// The worker of one group, whether it runs or not.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) id: GroupId,
    pub(super) plan: Plan,
    seed: u64,
    roots: Roots,
    /// Where the group's processes are attached.
    pub(super) domain: Option<Device>,
    /// Pages broken in the domain before this supervisor had it.
    broken_before: u64,
    /// CPU and memory used, and memory saved.
    pub(super) account: Account,
    /// Counts pages that the group's processes write.
    written: Rc<WrittenPages>,
    /// Savings of its domain.
    pub(super) savings: DomainSavings,
    /// Spaces handed to the worker.
    pub(super) handover: Handover,
    /// Messages of the worker about spaces that are not processed yet.
    space_reports: Vec<SpaceReport>,
    state: WorkerState,
    /// Log lines of the running worker, or of the last one.
    log: Option<WorkerLog>,
    restart_pause: RestartPause,
    /// Number of restarts after the worker died.
    pub(super) restarts: u64,
    /// Questions passed on.
    asked: u64,
    /// The last one, until its answer is taken.
    question: Option<Question>,
    /// It left a question unanswered, which was logged.
    is_silent: bool,
    /// Share of a core that it may use, if that differs from the configured one.
    pub(super) share: Option<f64>,
}

impl WorkerProcess {
    /// A worker that is not started yet. `domain` comes from an earlier supervisor, with nothing
    /// attached.
    pub(super) fn new(
        id: GroupId,
        (plan, seed): (Plan, u64),
        roots: Roots,
        domain: Option<Device>,
        (account, written): (Account, Rc<WrittenPages>),
    ) -> WorkerProcess {
        WorkerProcess {
            id,
            plan,
            seed,
            roots,
            broken_before: domain.as_ref().map_or(0, broken_in),
            domain,
            account,
            written,
            savings: DomainSavings::default(),
            handover: Handover::default(),
            space_reports: Vec::new(),
            state: WorkerState::Waiting {
                until: Instant::now(),
                why: "not started yet".to_owned(),
            },
            log: None,
            restart_pause: RestartPause::default(),
            restarts: 0,
            asked: 0,
            question: None,
            is_silent: false,
            share: None,
        }
    }

    /// Sets the share of a core that the worker may use; a worker that is started later gets it,
    /// too.
    ///
    /// # Errors
    /// The running worker was not notified.
    pub(super) fn allow(&mut self, share: f64) -> io::Result<()> {
        self.share = Some(share);
        match &self.state {
            WorkerState::Running(running) => {
                running.channel.send(&SupervisorMessage::Share(share), None)
            }
            WorkerState::Ending(_) | WorkerState::Waiting { .. } => Ok(()),
        }
    }

    /// Its process id, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.state {
            WorkerState::Running(running) => Some(running.child.id()),
            WorkerState::Ending(_) | WorkerState::Waiting { .. } => None,
        }
    }

    /// Merged pages that processes wrote, as its running worker has reported.
    pub(super) fn written_pages(&self) -> u64 {
        match &self.state {
            WorkerState::Running(running) => running.written_pages,
            WorkerState::Ending(_) | WorkerState::Waiting { .. } => 0,
        }
    }

    /// Time of its next start, or of its kill.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            WorkerState::Running(_) => None,
            WorkerState::Ending(ending) => ending.kill_at,
            WorkerState::Waiting { until, .. } => Some(*until),
        }
    }

    /// Whether its start is over: it is ready, has ended, or waits.
    pub(super) fn has_started(&self) -> bool {
        match &self.state {
            WorkerState::Running(running) => running.is_ready,
            WorkerState::Ending(_) | WorkerState::Waiting { .. } => true,
        }
    }

    /// Why it does not run.
    pub(super) fn fault(&self) -> Option<&str> {
        match &self.state {
            WorkerState::Running(_) => None,
            WorkerState::Ending(EndingWorker { why, .. }) | WorkerState::Waiting { why, .. } => {
                Some(why)
            }
        }
    }

    /// Whether the control group that it is booked to exists.
    fn has_book(&self) -> bool {
        let book = self.plan.book.as_ref();
        book.is_none_or(|cgroup| std::path::Path::new(&cgroup.folder()).is_dir())
    }

    /// Starts the process if it is due. The worker sends a message when it works.
    pub(super) fn start(&mut self, events: &WorkerEvents) {
        if !matches!(&self.state, WorkerState::Waiting { until, .. } if *until <= Instant::now()) {
            return;
        }
        if !self.has_book() {
            let folder = self.plan.book.as_ref().map(Cgroup::folder);
            self.wait(
                CGROUP_CHECK_INTERVAL,
                format!("{}: no such control group yet", folder.unwrap_or_default()),
            );
            return;
        }
        match self.spawn(events) {
            Ok((running, log)) => {
                self.log = log;
                self.account.begun(running.child.id());
                self.state = WorkerState::Running(running);
                self.handover.begin_again();
            }
            Err(error) => {
                let why = format!("cannot be started: {error}");
                if self.fault() != Some(&why) {
                    tracing::warn!("group {}: its worker {why}", self.plan.name);
                }
                let pause = self.restart_pause.take();
                self.wait(pause, why);
            }
        }
    }

    fn spawn(&self, events: &WorkerEvents) -> io::Result<(RunningWorker, Option<WorkerLog>)> {
        let (channel, theirs) = Channel::pair()?;
        let mut child = own_program::command(&[])
            .arg("worker")
            .stdin(Stdio::from(theirs.into_file()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().map(OwnedFd::from);
        let begun = self.begin(&child, &channel).and_then(|pidfd| {
            events.watch(self.id, &channel)?;
            events.watch(self.id, &pidfd)?;
            let log = stderr.map(WorkerLog::of).transpose()?;
            if let Some(log) = &log {
                events.watch(self.id, log)?;
            }
            Ok((pidfd, log, self.hand_hints(&channel)?))
        });
        match begun {
            Ok((pidfd, log, hints)) => Ok((
                RunningWorker {
                    child,
                    pidfd,
                    channel,
                    hints,
                    since: Instant::now(),
                    is_ready: false,
                    written_pages: 0,
                },
                log,
            )),
            Err(error) => {
                reap_elsewhere(child);
                Err(error)
            }
        }
    }

    /// Logs the lines that the worker has written.
    fn pass_on_log(&mut self) {
        if let Some(log) = &mut self.log
            && !log.pass_on(&self.plan.name)
        {
            // Closed: else poll() would report the end of the pipe each time.
            self.log = None;
        }
    }

    /// Moves it to the control group that pays, and sends it its setup.
    fn begin(&self, child: &Child, channel: &Channel) -> io::Result<OwnedFd> {
        if let Some(book) = &self.plan.book {
            place(child.id(), &cgroup_tree(), &book.folder())?;
            self.account.moved(child.id());
        }
        let mut settings = self.plan.texts.clone();
        if let Some(share) = self.share {
            settings.insert("cpu".to_owned(), share.to_string());
        }
        let setup = Setup {
            settings,
            seed: self.seed,
            ksm_root: self.roots.ksm_root.clone(),
        };
        let domain = self.domain.as_ref().map(Device::as_fd);
        channel.send(&SupervisorMessage::Setup(Box::new(setup)), domain)?;
        pidfd::open(child.id())?.ok_or_else(|| io::Error::other("it has ended already"))
    }

    /// Whether the group has hints of I/O.
    pub(super) fn has_hints(&self) -> bool {
        self.plan.resolved.params.hint_runs > 0
    }

    /// Hands the worker its end of the hint socket, if the group has hints.
    fn hand_hints(&self, channel: &Channel) -> io::Result<Option<HintSender>> {
        if !self.has_hints() {
            return Ok(None);
        }
        let (ours, theirs) = hints::pair()?;
        channel.send(&SupervisorMessage::Hints, Some(theirs.as_fd()))?;
        Ok(Some(ours))
    }

    /// Sends queued hints; answers whether the worker reads too slowly for all of them.
    pub(super) fn flush_hints(&mut self) -> bool {
        let WorkerState::Running(RunningWorker {
            hints: Some(hints), ..
        }) = &mut self.state
        else {
            return false;
        };
        if hints.is_behind() {
            hints.flush();
        }
        hints.is_behind()
    }

    /// Sends it hints of its spaces, as far as it reads.
    pub(super) fn hint(&mut self, taken: &HintBatch) {
        if let WorkerState::Running(RunningWorker {
            hints: Some(hints), ..
        }) = &mut self.state
        {
            hints.send(taken);
        }
    }

    /// The believable reports of spaces since the last call, each once, even if it came repeatedly.
    pub(super) fn take_reports(&mut self) -> Reports {
        let mut reports = Reports::default();
        for word in std::mem::take(&mut self.space_reports) {
            match word {
                SpaceReport::Detached(space) if self.handover.detached(space) => {
                    reports.detached.insert(space);
                }
                SpaceReport::Detached(_) => {}
                SpaceReport::Dead(space) => {
                    reports.dead.insert(space);
                }
            }
        }
        reports
    }

    /// Sends the worker news of its spaces, as far as it reads.
    pub(super) fn send_spaces(&mut self) {
        if let WorkerState::Running(running) = &self.state
            && let Err(error) = self.handover.send(&running.channel)
        {
            // It gets all of them again when it is restarted.
            tracing::debug!(
                "group {}: cannot send a message to its worker: {error}",
                self.plan.name
            );
        }
    }

    /// Whether the worker reads too slowly for all its messages.
    pub(super) fn is_behind(&self) -> bool {
        self.pid().is_some() && self.handover.is_waiting()
    }

    fn wait(&mut self, pause: Duration, why: String) {
        self.state = WorkerState::Waiting {
            until: Instant::now() + pause,
            why,
        };
    }

    /// Logs the figures of its domain.
    pub(super) fn audit(&self, what: &str) {
        if let Some(domain) = &self.domain {
            audit::log(what, &self.plan.name, domain);
        }
    }

    /// Pages that were given their own copies in its domain since this supervisor has it.
    pub(super) fn broken(&self) -> u64 {
        let now = self.domain.as_ref().map_or(0, broken_in);
        now.saturating_sub(self.broken_before)
    }

    /// Drops the domain: its frames become orphans, and its processes are attached nowhere. Only
    /// after [`WorkerProcess::end`].
    pub(super) fn drop_domain(&mut self) {
        self.written.break_pages(self.broken());
        self.broken_before = 0;
        self.close_account();
        fd_store::remove(&self.plan.name);
        self.audit("ends");
        if let Some(domain) = self.domain.take()
            && !self.has_ended()
            && let Err(error) = domain.detach_all()
        {
            // A worker that has not ended still has the file.
            tracing::warn!("group {}: {error}", self.plan.name);
        }
        self.savings = DomainSavings::default();
        self.handover.forget();
        self.space_reports.clear();
    }
}

/// Kills a worker that could not be set up. Its control group can be frozen, so it may not end
/// before that is thawed.
fn reap_elsewhere(mut child: Child) {
    if let Err(error) = child.kill() {
        tracing::warn!("process {}: {error}", child.id());
    }
    let reaper = std::thread::Builder::new().name("uksm-reap".to_owned());
    // Without a thread it stays a zombie until this process ends.
    let _ended = reaper.spawn(move || child.wait());
}

/// Pages broken in a domain since it was made; 0 if its module does not answer.
fn broken_in(domain: &Device) -> u64 {
    domain.info().map_or(0, |info| info.broken)
}

#[cfg(test)]
mod tests;

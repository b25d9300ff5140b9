//! One worker process: how it is started, asked, and started again.
//!
//! # Problem
//! A worker may die at any time, be killed for its control group's memory, or wait for a control
//! group that is not there yet. None of that may stop another group's worker, nor lose a frame.
//!
//! # Approach
//! The supervisor has the domain's file, so frames and attached spaces outlive the worker; a new
//! one is handed that file, and told of the spaces. One that dies again and again is started ever
//! more seldom, at least each [`MAX_PAUSE`].
//!
//! No call of this file or of those below waits for the worker: its control group can stop it at
//! any time. Messages are read as they come ([`messages`]), and a worker that is to end is killed
//! if it takes too long ([`ending`]).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uksm_linux::handed_over::SpaceWord;
use uksm_linux::hints::{self, HintSender, Taken};
use uksm_linux::module::Device;
use uksm_linux::pidfd;
use uksm_linux::selection::{Cgroup, GroupId};
use uksm_policy::command::SpaceId;

use crate::config::plan::Plan;
use crate::groups::supervisor::accounts::Account;
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
use crate::status::written::WrittenPages;

mod accounting;
mod ending;
mod messages;
mod savings;
mod state;
mod worker_log;

pub(super) use ending::STOP_TIMEOUT;
pub(super) use messages::{ANOTHER_QUESTION, NO_ANSWER};
use state::{Ending, Question, Running, State};
use worker_log::WorkerLog;

/// Between two tries to start a worker.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A worker that has run for so long is started at once if it dies.
const STEADY: Duration = Duration::from_secs(60);
/// A control group that is waited for is looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// What a worker has reported of its spaces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reports {
    /// Spaces that had left, and that it has detached.
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
    /// Pages broken in it before this supervisor had it.
    broken_before: u64,
    /// What it took and saved.
    pub(super) account: Account,
    /// Counts what its processes write.
    written: Rc<WrittenPages>,
    /// What it shows of itself.
    pub(super) savings: DomainSavings,
    /// Its spaces.
    pub(super) handover: Handover,
    /// What the worker said of spaces, for the supervisor to take.
    said: Vec<SpaceWord>,
    state: State,
    /// Messages of the worker that runs, or of the last one.
    log: Option<WorkerLog>,
    pause: Duration,
    /// How often a worker that had died was replaced.
    pub(super) restarts: u64,
    /// Questions passed on.
    asked: u64,
    /// The last one, until its answer is taken.
    question: Option<Question>,
    /// It left a question without an answer, which was logged.
    is_silent: bool,
    /// What of a core it may use, if that is not what was configured.
    pub(super) share: Option<f64>,
}

impl WorkerProcess {
    /// One that is not started yet. `domain` is that of an earlier supervisor's worker, with
    /// nothing attached.
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
            said: Vec::new(),
            state: State::Waiting {
                until: Instant::now(),
                why: "not started yet".to_owned(),
            },
            log: None,
            pause: FIRST_PAUSE,
            restarts: 0,
            asked: 0,
            question: None,
            is_silent: false,
            share: None,
        }
    }

    /// It may use this share of a core from now on; a worker that is started later, too.
    ///
    /// # Errors
    /// The one that runs was not told.
    pub(super) fn allow(&mut self, share: f64) -> io::Result<()> {
        self.share = Some(share);
        match &self.state {
            State::Running(running) => running.channel.send(&SupervisorMessage::Share(share), None),
            State::Ending(_) | State::Waiting { .. } => Ok(()),
        }
    }

    /// Its process, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.state {
            State::Running(running) => Some(running.child.id()),
            State::Ending(_) | State::Waiting { .. } => None,
        }
    }

    /// When something is to be done: it is to be started, or to be killed.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Running(_) => None,
            State::Ending(ending) => ending.kill_at,
            State::Waiting { until, .. } => Some(*until),
        }
    }

    /// Whether its start is over: it is ready, or has ended, or waits.
    pub(super) fn has_started(&self) -> bool {
        match &self.state {
            State::Running(running) => running.is_ready,
            State::Ending(_) | State::Waiting { .. } => true,
        }
    }

    /// Why it does not run, if it does not.
    pub(super) fn fault(&self) -> Option<&str> {
        match &self.state {
            State::Running(_) => None,
            State::Ending(Ending { why, .. }) | State::Waiting { why, .. } => Some(why),
        }
    }

    /// Whether its control group is there.
    fn has_book(&self) -> bool {
        let book = self.plan.book.as_ref();
        book.is_none_or(|cgroup| std::path::Path::new(&cgroup.folder()).is_dir())
    }

    /// Starts the process if it is time. It says by itself when it works.
    pub(super) fn start(&mut self, events: &WorkerEvents) {
        if !matches!(&self.state, State::Waiting { until, .. } if *until <= Instant::now()) {
            return;
        }
        if !self.has_book() {
            let folder = self.plan.book.as_ref().map(Cgroup::folder);
            self.wait(
                LOOK,
                format!("{}: no such control group yet", folder.unwrap_or_default()),
            );
            return;
        }
        match self.spawn(events) {
            Ok((running, log)) => {
                self.log = log;
                self.account.begun(running.child.id());
                self.state = State::Running(running);
                self.handover.begin_again();
            }
            Err(error) => {
                let why = format!("cannot be started: {error}");
                if self.fault() != Some(&why) {
                    tracing::warn!("group {}: its worker {why}", self.plan.name);
                }
                let pause = self.next_pause();
                self.wait(pause, why);
            }
        }
    }

    fn spawn(&self, events: &WorkerEvents) -> io::Result<(Running, Option<WorkerLog>)> {
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
                Running {
                    child,
                    pidfd,
                    channel,
                    hints,
                    since: Instant::now(),
                    is_ready: false,
                },
                log,
            )),
            Err(error) => {
                reap_elsewhere(child);
                Err(error)
            }
        }
    }

    /// Logs what the worker has written.
    fn pass_on_log(&mut self) {
        if let Some(log) = &mut self.log
            && !log.pass_on(&self.plan.name)
        {
            // Closed: else poll() would report the end of the pipe each time.
            self.log = None;
        }
    }

    /// Moves it to the control group that pays, and tells it what to do.
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

    /// Hands the worker the end from which hints come, if it is to have any.
    fn hand_hints(&self, channel: &Channel) -> io::Result<Option<HintSender>> {
        if !self.has_hints() {
            return Ok(None);
        }
        let (ours, theirs) = hints::pair()?;
        channel.send(&SupervisorMessage::Hints, Some(theirs.as_fd()))?;
        Ok(Some(ours))
    }

    /// Hands it what waits of its hints; answers whether it reads too slowly for all of them.
    pub(super) fn flush_hints(&mut self) -> bool {
        let State::Running(Running {
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

    /// Hands it hints of its spaces, as far as it takes them.
    pub(super) fn hint(&mut self, taken: &Taken) {
        if let State::Running(Running {
            hints: Some(hints), ..
        }) = &mut self.state
        {
            hints.send(taken);
        }
    }

    /// The believable reports of spaces since the last time, each once however often it came.
    pub(super) fn take_reports(&mut self) -> Reports {
        let mut reports = Reports::default();
        for word in std::mem::take(&mut self.said) {
            match word {
                SpaceWord::Detached(space) if self.handover.detached(space) => {
                    reports.detached.insert(space);
                }
                SpaceWord::Detached(_) => {}
                SpaceWord::Dead(space) => {
                    reports.dead.insert(space);
                }
            }
        }
        reports
    }

    /// Tells the worker of its spaces, as far as it reads.
    pub(super) fn send_spaces(&mut self) {
        if let State::Running(running) = &self.state
            && let Err(error) = self.handover.send(&running.channel)
        {
            // It is told of everything when it is started again.
            tracing::debug!("group {}: not told: {error}", self.plan.name);
        }
    }

    /// Whether the worker reads too slowly to be told everything.
    pub(super) fn is_behind(&self) -> bool {
        self.pid().is_some() && self.handover.is_waiting()
    }

    /// How long to wait before the next start; longer each time.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(MAX_PAUSE);
        pause
    }

    fn wait(&mut self, pause: Duration, why: String) {
        self.state = State::Waiting {
            until: Instant::now() + pause,
            why,
        };
    }

    /// Tells the log of its domain.
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

    /// Gives the domain up: its frames become orphans, and its processes are attached nowhere. Only
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
            // A worker that does not end has the file still.
            tracing::warn!("group {}: {error}", self.plan.name);
        }
        self.savings = DomainSavings::default();
        self.handover.forget();
        self.said.clear();
    }
}

/// Kills a worker that could not be begun. Its control group can be frozen, so that it does not end
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

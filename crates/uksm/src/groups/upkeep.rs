//! One worker process: how it is started, asked, and started again.
//!
//! # Problem
//! A worker may die at any time, be killed for its control group's memory, or wait for a control group that is not there yet.
//! None of that may stop another group's worker, nor lose a frame.
//!
//! # Approach
//! The supervisor has the domain's file, so frames and attached spaces outlive the worker; a new one is handed that file, and told
//! of the spaces. One that dies again and again is started ever more seldom, at least each [`LONGEST_PAUSE`].

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use uksm_linux::handed_over::SpaceWord;
use uksm_linux::hints::{self, HintSender, Taken};
use uksm_linux::module::Device;
use uksm_linux::pidfd;
use uksm_linux::selection::{Cgroup, GroupId};

use super::accounts::Account;
use super::channel::Channel;
use super::ears::Ears;
use super::handover::Handover;
use super::placement::{cgroup_tree, place};
use super::readings::Readings;
use super::setup::{Order, Setup, Word};
use super::{Plan, audit, keeping};
use crate::cli::RootArgs;
use crate::control::{Answer, Request};
use crate::run;

/// A worker mostly starts within so long.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// systemd is told so often that all is well while a worker is waited for.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// A worker answers within so long; only breaking takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const BREAK_TIMEOUT: Duration = Duration::from_secs(600);
/// Most words of one worker that are heard before others have their turn.
const MOST_WORDS: u32 = 64;
/// Between two tries to start a worker.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A worker that has run for so long is started at once if it dies.
const STEADY: Duration = Duration::from_secs(60);
/// A control group that is waited for is looked for so often.
const LOOK: Duration = Duration::from_secs(1);
/// A worker that is told to stop may take so long.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What an answer that fits no question is told as.
pub(super) const ANOTHER_QUESTION: &str = "the worker answered another question";

#[derive(Debug)]
struct Running {
    child: Child,
    /// Readable when it has exited.
    _pidfd: OwnedFd,
    channel: Channel,
    /// Where its hints go, if it has any.
    hints: Option<HintSender>,
    since: Instant,
}

/// Why a worker says nothing.
enum NoWord {
    /// It has said nothing in time.
    Late,
    /// It has ended.
    Ended,
    /// Something else, in one line.
    Broken(String),
}

#[derive(Debug)]
enum State {
    Running(Running),
    Waiting { until: Instant, why: String },
}

/// The worker of one group, whether it runs or not.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) id: GroupId,
    pub(super) plan: Plan,
    seed: u64,
    roots: RootArgs,
    /// Where the group's processes are attached.
    pub(super) domain: Option<Device>,
    /// What it took and saved.
    pub(super) account: Account,
    /// What it shows of itself.
    pub(super) readings: Readings,
    /// Its spaces.
    pub(super) handover: Handover,
    /// What the worker said of spaces, for the supervisor to take.
    said: Vec<SpaceWord>,
    state: State,
    pause: Duration,
    /// How often a worker that had died was replaced.
    pub(super) restarts: u64,
    /// Questions passed on.
    asked: u64,
    /// The answer to the last one, if nobody waited for it.
    heard: Option<Answer>,
    /// What of a core it may use, if that is not what was configured.
    pub(super) share: Option<f64>,
}

impl Upkeep {
    /// One that is not started yet. `domain` is that of an earlier supervisor's worker, with nothing attached.
    pub(super) fn new(
        id: GroupId,
        (plan, seed): (Plan, u64),
        roots: RootArgs,
        domain: Option<Device>,
        account: Account,
    ) -> Upkeep {
        Upkeep {
            id,
            plan,
            seed,
            roots,
            domain,
            account,
            readings: Readings::default(),
            handover: Handover::default(),
            said: Vec::new(),
            state: State::Waiting {
                until: Instant::now(),
                why: "not started yet".to_owned(),
            },
            pause: FIRST_PAUSE,
            restarts: 0,
            asked: 0,
            heard: None,
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
            State::Running(running) => running.channel.send(&Order::Share(share), None),
            State::Waiting { .. } => Ok(()),
        }
    }

    /// Its process, if it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.state {
            State::Running(running) => Some(running.child.id()),
            State::Waiting { .. } => None,
        }
    }

    /// When it is to be started, and why it does not run.
    pub(super) fn waiting(&self) -> Option<(Instant, &str)> {
        match &self.state {
            State::Running(_) => None,
            State::Waiting { until, why } => Some((*until, why)),
        }
    }

    /// Whether its control group is there.
    fn has_book(&self) -> bool {
        let book = self.plan.book.as_ref();
        book.is_none_or(|cgroup| std::path::Path::new(&cgroup.folder()).is_dir())
    }

    /// Starts the process if it is time; [`Upkeep::welcome`] waits until it works.
    pub(super) fn start(&mut self, ears: &Ears) {
        let now = Instant::now();
        if self.waiting().is_none_or(|(until, _)| until > now) {
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
        match self.spawn(ears) {
            Ok(running) => {
                self.account.begun(running.child.id());
                self.state = State::Running(running);
                self.handover.begin_again();
            }
            Err(error) => self.pause_and_wait(format!("cannot be started: {error}")),
        }
    }

    fn spawn(&self, ears: &Ears) -> io::Result<Running> {
        let (channel, theirs) = Channel::pair()?;
        let mut child = Command::new("/proc/self/exe")
            .arg("worker")
            // systemd speaks with the supervisor.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(theirs.into_file()))
            .stdout(Stdio::null())
            .spawn()?;
        let begun = self.begin(&child, &channel).and_then(|pidfd| {
            ears.listen(self.id, &channel)?;
            ears.listen(self.id, &pidfd)?;
            Ok((pidfd, self.hand_hints(&channel)?))
        });
        match begun {
            Ok((pidfd, hints)) => Ok(Running {
                child,
                _pidfd: pidfd,
                channel,
                hints,
                since: Instant::now(),
            }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
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
            group: self.plan.name.clone(),
            settings,
            seed: self.seed,
            ksm_root: self.roots.ksm_root.clone(),
        };
        let domain = self.domain.as_ref().map(Device::as_fd);
        channel.send(&Order::Setup(Box::new(setup)), domain)?;
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
        channel.send(&Order::Hints, Some(theirs.as_fd()))?;
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

    /// Waits until a worker that was started works. One that takes longer, as in a control group that may use little of a
    /// processor, is not waited for any more.
    ///
    /// # Errors
    /// Why it does not, in one line; it is tried again later.
    pub(super) fn welcome(&mut self, deadline: Instant) -> Result<(), String> {
        if self.waiting().is_some() {
            return Ok(());
        }
        let why = loop {
            match self.next_word(deadline) {
                Ok(Word::Ready) => return Ok(()),
                Ok(Word::Failed(line)) => break line,
                Ok(_) => {}
                Err(NoWord::Late) => {
                    tracing::warn!("group {}: its worker is slow to start", self.plan.name);
                    return Ok(());
                }
                Err(NoWord::Ended) => break "the worker died at its start".to_owned(),
                Err(NoWord::Broken(line)) => break line,
            }
        };
        self.replace(why.clone());
        Err(why)
    }

    /// Ends one that cannot work; another one is started after a pause.
    fn replace(&mut self, why: String) {
        self.end();
        self.restarts += 1;
        self.pause_and_wait(why);
    }

    /// Hears what a worker says by itself, and takes note of its end.
    pub(super) fn hear(&mut self) {
        let now = Instant::now();
        for _ in 0..MOST_WORDS {
            match self.next_word(now) {
                // Whoever asked comes for it, unless it is too late.
                Ok(Word::Answer(asked, answer)) if asked == self.asked => self.heard = Some(answer),
                Ok(Word::Answer(..) | Word::Ready | Word::Domain | Word::Spaces(_)) => {}
                Ok(Word::Failed(line)) | Err(NoWord::Broken(line)) => {
                    tracing::warn!("group {}: {line}", self.plan.name);
                    self.replace(line);
                    return;
                }
                Err(NoWord::Late) => return,
                Err(NoWord::Ended) => {
                    self.bury();
                    return;
                }
            }
        }
    }

    /// What the worker said of spaces since the last time.
    pub(super) fn take_said(&mut self) -> Vec<SpaceWord> {
        std::mem::take(&mut self.said)
    }

    /// Tells the worker of its spaces, as far as it reads.
    pub(super) fn tell(&mut self) {
        if let State::Running(running) = &self.state
            && let Err(error) = self.handover.tell(&running.channel)
        {
            // It is told of everything when it is started again.
            tracing::debug!("group {}: not told: {error}", self.plan.name);
        }
    }

    /// Whether the worker reads too slowly to be told everything.
    pub(super) fn is_behind(&self) -> bool {
        self.pid().is_some() && self.handover.is_waiting()
    }

    /// The next that the worker says; a domain that it has opened is kept. systemd is told that all is well meanwhile.
    fn next_word(&mut self, deadline: Instant) -> Result<Word, NoWord> {
        loop {
            let State::Running(running) = &self.state else {
                return Err(NoWord::Ended);
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match running
                .channel
                .receive::<Word>(Some(left.min(SIGN_OF_LIFE)))
            {
                Ok(Some((Word::Domain, Some(file)))) => {
                    if self.domain.is_some() {
                        let line = "the worker sent a second domain".to_owned();
                        return Err(NoWord::Broken(line));
                    }
                    let domain = audit::taken(file, &self.plan).map_err(NoWord::Broken)?;
                    keeping::keep(&self.plan.name, domain.as_fd());
                    self.domain = Some(domain);
                    return Ok(Word::Domain);
                }
                Ok(Some((Word::Spaces(words), _))) => {
                    self.said.extend(words.into_iter().map(SpaceWord::from));
                    return Ok(Word::Spaces(vec![]));
                }
                Ok(Some((word, _))) => return Ok(word),
                Ok(None) => return Err(NoWord::Ended),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if left.is_zero() {
                        return Err(NoWord::Late);
                    }
                    run::tell_systemd(&[sd_notify::NotifyState::Watchdog]);
                }
                Err(error) => return Err(NoWord::Broken(error.to_string())),
            }
        }
    }

    /// Takes note of its exit.
    fn bury(&mut self) {
        let State::Running(running) = &mut self.state else {
            return;
        };
        let Ok(Some(status)) = self.account.reap(|| running.child.try_wait()) else {
            return;
        };
        if running.since.elapsed() > STEADY {
            self.pause = FIRST_PAUSE;
        }
        let why = format!("the worker ended: {status}");
        tracing::warn!(
            "group {}: {why}; a new one takes over its frames",
            self.plan.name
        );
        self.restarts += 1;
        self.pause_and_wait(why);
    }

    fn pause_and_wait(&mut self, why: String) {
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        self.wait(pause, why);
    }

    fn wait(&mut self, pause: Duration, why: String) {
        self.state = State::Waiting {
            until: Instant::now() + pause,
            why,
        };
    }

    /// Passes a question on.
    ///
    /// # Errors
    /// It does not run.
    pub(super) fn ask(&mut self, request: &Request) -> Result<(), String> {
        self.asked += 1;
        self.heard = None;
        match &self.state {
            State::Running(running) => running
                .channel
                .send(&Order::Ask(self.asked, request.clone()), None)
                .map_err(|error| error.to_string()),
            State::Waiting { why, .. } => Err(why.clone()),
        }
    }

    /// The answer to the question that was passed on last.
    ///
    /// # Errors
    /// None came in time, or it has died.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Answer, String> {
        let timeout = match request {
            Request::BreakSpaces(_) => BREAK_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        };
        self.answered(Instant::now() + timeout)
    }

    /// The same, which waits until then.
    ///
    /// # Errors
    /// None has come, or it has died.
    pub(super) fn answered(&mut self, deadline: Instant) -> Result<Answer, String> {
        if let Some(answer) = self.heard.take() {
            return Ok(answer);
        }
        loop {
            match self.next_word(deadline) {
                Ok(Word::Answer(asked, answer)) if asked == self.asked => return Ok(answer),
                Ok(Word::Failed(line)) | Err(NoWord::Broken(line)) => return Err(line),
                Ok(_) => {}
                Err(NoWord::Ended) => return Err("the worker ended".to_owned()),
                Err(NoWord::Late) => return Err("the worker does not answer".to_owned()),
            }
        }
    }

    /// What it answers to a question, which is an error if it cannot be done.
    ///
    /// # Errors
    /// It does not run, does not answer in time, or cannot do it.
    pub(super) fn put(&mut self, request: &Request) -> Result<Answer, String> {
        self.ask(request)?;
        match self.answer(request)? {
            Answer::Error(line) => Err(line),
            answer => Ok(answer),
        }
    }

    /// Tells it to stop, and waits; one that does not is killed.
    pub(super) fn end(&mut self) {
        let waiting = State::Waiting {
            until: Instant::now(),
            why: "stopped".to_owned(),
        };
        let State::Running(running) = std::mem::replace(&mut self.state, waiting) else {
            return;
        };
        let Running {
            mut child, channel, ..
        } = running;
        drop(channel);
        let begin = Instant::now();
        while begin.elapsed() < STOP_TIMEOUT {
            match self.account.reap(|| child.try_wait()) {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        tracing::warn!("group {}: the worker does not stop", self.plan.name);
        let killed = child
            .kill()
            .and_then(|()| self.account.reap(|| child.wait()));
        if let Err(error) = killed {
            tracing::warn!("group {}: {error}", self.plan.name);
        }
    }

    /// Tells the log of its domain.
    pub(super) fn audit(&self, what: &str) {
        if let Some(domain) = &self.domain {
            audit::tell(what, &self.plan.name, domain);
        }
    }

    /// Gives the domain up: its frames become orphans, and its processes are attached nowhere. Only after [`Upkeep::end`].
    pub(super) fn drop_domain(&mut self) {
        self.close_account();
        keeping::let_go(&self.plan.name);
        self.audit("ends");
        self.domain = None;
        self.readings = Readings::default();
        self.handover.forget();
        self.said.clear();
    }

    /// Closes the channel without waiting, so that many can stop at once.
    pub(super) fn let_go(&mut self) {
        if let State::Running(running) = &mut self.state
            && let Ok((closed, _)) = Channel::pair()
        {
            running.channel = closed;
        }
    }
}

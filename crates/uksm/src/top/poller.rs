//! The thread that asks the daemon, so that the screen never waits for it.
//!
//! # Approach
//! Once an interval it asks for the status and for the processes that are shown; requests made by
//! keys come in between. A status is answered in milliseconds, but a daemon may be stopped, and
//! explaining a large process takes seconds: the screen only checks whether an answer has come.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use crate::control::{self, Answer, NoAnswer, Request};
use crate::explain;
use crate::status::Status;
use crate::status::groups::GroupsStatus;
use crate::status::processes::ProcessList;

/// Timeout of an answer of the daemon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// The process file system.
const PROC: &str = "/proc";

/// The daemon's answer to a request for its status.
#[derive(Debug, Clone)]
pub(super) enum StatusAnswer {
    /// The status of a daemon without groups.
    One(Box<Status>),
    /// The status of a daemon with groups.
    Groups(Box<GroupsStatus>),
}

impl StatusAnswer {
    /// From an answer.
    ///
    /// # Errors
    /// It is no status: one line.
    pub(super) fn of(answer: Answer) -> Result<StatusAnswer, String> {
        match answer {
            Answer::Status(status) => Ok(StatusAnswer::One(status)),
            Answer::Groups(status) => Ok(StatusAnswer::Groups(status)),
            Answer::Error(line) => Err(line),
            Answer::Ksm(_) => Err("the daemon drives in-kernel KSM: see `uksm status`".to_owned()),
            _ => Err("the daemon sent an unexpected reply".to_owned()),
        }
    }

    /// Savings in total.
    pub(super) fn net_mib(&self) -> f64 {
        match self {
            StatusAnswer::One(status) => status.saved.net_mib,
            StatusAnswer::Groups(status) => status.net_mib,
        }
    }
}

/// The processes that are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// None.
    Nobody,
    /// Those of a daemon without groups.
    Daemon,
    /// Those of the group of this name.
    Group(String),
}

/// A request to the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PollerRequest {
    /// Ask for these processes from now on.
    Follow(Whose),
    /// Ask once why memory of this process is not merged.
    Explain(u32),
}

/// An answer from the thread; a failure is one line.
#[derive(Debug)]
pub(super) enum PollerAnswer {
    /// The status.
    Status(Result<StatusAnswer, String>),
    /// The processes.
    Processes(Whose, Result<ProcessList, String>),
    /// The output of `uksm explain` for a process.
    Explained(u32, Result<String, String>),
}

/// Starts the thread. It ends with the program.
///
/// # Errors
/// No thread can be started.
pub(super) fn start(
    socket: PathBuf,
    interval: Duration,
) -> std::io::Result<(Sender<PollerRequest>, Receiver<PollerAnswer>)> {
    let (wishing, wishes) = channel();
    let (sender, answers) = sync_channel(1);
    let thread = std::thread::Builder::new().name("uksm-asks".to_owned());
    thread.spawn(move || ask(&socket, interval, &wishes, &sender))?;
    Ok((wishing, answers))
}

/// Asks until the receiver is gone.
fn ask(
    socket: &Path,
    interval: Duration,
    wishes: &Receiver<PollerRequest>,
    answers: &SyncSender<PollerAnswer>,
) {
    let mut whose = Whose::Nobody;
    let mut next = Instant::now() + interval;
    loop {
        let mut turn = TurnRequests::default();
        match wishes.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(wish) => {
                turn.take(wish);
                for wish in wishes.try_iter() {
                    turn.take(wish);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let status = put(socket, &Request::Status).and_then(StatusAnswer::of);
                if answers.send(PollerAnswer::Status(status)).is_err() {
                    return;
                }
                turn.take(PollerRequest::Follow(whose.clone()));
                next = Instant::now() + interval;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(of) = turn.follow {
            whose = of;
            if processes(socket, &whose).is_some_and(|answer| answers.send(answer).is_err()) {
                return;
            }
        }
        if let Some(pid) = turn.explain {
            let text = explain::text_of(socket, Path::new(PROC), pid, ANSWER_TIMEOUT);
            if answers.send(PollerAnswer::Explained(pid, text)).is_err() {
                return;
            }
        }
    }
}

/// Requests of one turn. If several keys are pressed while a slow daemon answers, only the last
/// choice is requested.
#[derive(Debug, Default)]
struct TurnRequests {
    follow: Option<Whose>,
    explain: Option<u32>,
}

impl TurnRequests {
    fn take(&mut self, wish: PollerRequest) {
        match wish {
            PollerRequest::Follow(whose) => self.follow = Some(whose),
            PollerRequest::Explain(pid) => self.explain = Some(pid),
        }
    }
}

/// The processes of `whose`; none of `Nobody`.
pub(super) fn processes(socket: &Path, whose: &Whose) -> Option<PollerAnswer> {
    let group = match whose {
        Whose::Nobody => return None,
        Whose::Daemon => None,
        Whose::Group(name) => Some(name.clone()),
    };
    let answer = match put(socket, &Request::Processes(group)) {
        Ok(Answer::Processes(processes)) => Ok(*processes),
        Ok(Answer::Error(line)) | Err(line) => Err(line),
        Ok(_) => Err("the daemon sent an unexpected reply".to_owned()),
    };
    Some(PollerAnswer::Processes(whose.clone(), answer))
}

fn put(socket: &Path, request: &Request) -> Result<Answer, String> {
    control::ask_within(socket, request, ANSWER_TIMEOUT).map_err(|why| match why {
        NoAnswer::NotRunning => "no daemon answers".to_owned(),
        NoAnswer::Failed(line) => line,
    })
}

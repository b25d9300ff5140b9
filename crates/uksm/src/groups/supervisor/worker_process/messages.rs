//! Requests to a worker, and its messages.
//!
//! # Problem
//! A worker answers late, or never. A compromised worker sends anything, in any amount.
//!
//! # Approach
//! One request at a time is sent, and its answer is kept until it is taken; every task has a
//! deadline of its own. In each turn at most [`MAX_MESSAGES`] messages of a worker are read, none
//! longer than the channel allows. Reports about spaces count only for spaces of its own group, and
//! at most [`MAX_QUEUED_REPORTS`] of them are queued: the rest stays in the socket, where the
//! kernel bounds it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use uksm_input::plain;
use uksm_linux::supervised_spaces::SpaceReport;

use super::WorkerProcess;
use super::state::{Question, WorkerState};
use crate::control::{Answer, Request};
use crate::groups::supervisor::{audit, fd_store};
use crate::groups::wire::messages::{SupervisorMessage, WorkerMessage};

/// Maximum number of messages of one worker that are read in a turn.
const MAX_MESSAGES: u32 = 64;
/// Maximum number of reports about spaces in the queue, apart from those of the last message.
pub(super) const MAX_QUEUED_REPORTS: usize = 1 << 16;
/// Maximum length of a worker's line that is shown or logged, in bytes.
const MAX_FAULT_BYTES: usize = 512;

/// Error for an answer that fits no request.
pub(in crate::groups::supervisor) const ANOTHER_QUESTION: &str =
    "the worker sent an unexpected reply";
/// Error for a worker that does not answer in time.
pub(in crate::groups::supervisor) const NO_ANSWER: &str =
    "the worker does not answer: its control group may have stopped it";

/// Error for a group that was formed after the request.
const NOT_ASKED: &str = "its worker was not asked, because the group is newer than the request: \
                         repeat it";

impl WorkerProcess {
    /// Sends a request; an earlier one is given up.
    pub(in crate::groups::supervisor) fn ask(&mut self, request: &Request) {
        self.asked += 1;
        let number = self.asked;
        let answer = match &self.state {
            WorkerState::Running(running) => running
                .channel
                .send(&SupervisorMessage::Ask(number, request.clone()), None)
                .err()
                .map(|error| match error.kind() {
                    io::ErrorKind::WouldBlock => NO_ANSWER.to_owned(),
                    _ => error.to_string(),
                }),
            WorkerState::Ending(_) | WorkerState::Waiting { .. } => self.fault().map(str::to_owned),
        };
        self.question = Some(Question {
            number,
            answer: answer.map(Err),
        });
    }

    /// Whether an answer is missing.
    pub(in crate::groups::supervisor) fn is_asked(&self) -> bool {
        let is_open = |question: &Question| question.answer.is_none();
        self.question.as_ref().is_some_and(is_open) && self.pid().is_some()
    }

    /// The answer to the last request, if there was one; an error if there is no answer now.
    pub(in crate::groups::supervisor) fn take_answer(&mut self) -> Option<Result<Answer, String>> {
        let question = self.question.take()?;
        let is_late = question.answer.is_none() && self.pid().is_some();
        if is_late && !self.is_silent {
            tracing::warn!("group {}: {NO_ANSWER}", self.plan.name);
        }
        self.is_silent = is_late;
        let ended = || Err(self.fault().unwrap_or(NO_ANSWER).to_owned());
        Some(question.answer.unwrap_or_else(ended))
    }

    /// As [`WorkerProcess::take_answer`].
    ///
    /// # Errors
    /// There is no answer, or there was no request: one line.
    pub(in crate::groups::supervisor) fn answer(&mut self) -> Result<Answer, String> {
        let answer = self.take_answer();
        answer.unwrap_or_else(|| Err(self.fault().unwrap_or(NOT_ASKED).to_owned()))
    }

    /// Reads the worker's messages, and notes its end.
    pub(in crate::groups::supervisor) fn receive(&mut self) {
        self.pass_on_log();
        for _ in 0..MAX_MESSAGES {
            let WorkerState::Running(running) = &mut self.state else {
                break;
            };
            if self.space_reports.len() >= MAX_QUEUED_REPORTS {
                return;
            }
            let fault = match running
                .channel
                .receive::<WorkerMessage>(Some(Duration::ZERO))
            {
                Ok(Some((WorkerMessage::Ready, _))) => {
                    running.is_ready = true;
                    continue;
                }
                Ok(Some((WorkerMessage::Written(pages), _))) => {
                    running.written_pages = pages;
                    continue;
                }
                Ok(Some((WorkerMessage::Domain, Some(file)))) => match self.take_domain(file) {
                    Ok(()) => continue,
                    Err(line) => line,
                },
                Ok(Some((WorkerMessage::Domain, None))) => continue,
                Ok(Some((WorkerMessage::Spaces(words), _))) => {
                    let words = words.into_iter().map(SpaceReport::from);
                    let handover = &self.handover;
                    let of_its_own = words.filter(|word| handover.holds(word.space()));
                    self.space_reports.extend(of_its_own);
                    continue;
                }
                Ok(Some((WorkerMessage::Answer(number, answer), _))) => {
                    // A late answer is dropped.
                    if let Some(question) = &mut self.question
                        && question.number == number
                    {
                        question.answer.get_or_insert(Ok(bounded(answer)));
                    }
                    continue;
                }
                Ok(Some((WorkerMessage::Failed(line), _))) => shown(&line),
                Ok(None) => {
                    self.lose();
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(error) => error.to_string(),
            };
            tracing::warn!("group {}: {fault}", self.plan.name);
            self.replace(&fault);
            return;
        }
        self.reap();
    }

    /// Keeps the domain that the worker has opened.
    fn take_domain(&mut self, file: OwnedFd) -> Result<(), String> {
        if self.domain.is_some() {
            return Err("the worker sent a second domain".to_owned());
        }
        let domain = audit::taken(file, &self.plan)?;
        fd_store::store(&self.plan.name, domain.as_fd());
        self.domain = Some(domain);
        Ok(())
    }
}

/// An answer; an error in it is one line that can be shown.
fn bounded(answer: Answer) -> Answer {
    match answer {
        Answer::Error(line) => Answer::Error(shown(&line)),
        answer => answer,
    }
}

/// A worker's line, cut and without control characters.
fn shown(line: &str) -> String {
    plain::start(line, MAX_FAULT_BYTES)
}

//! One connection: waiting ranges, the message that was sent, and its answer.
//!
//! # Problem
//! An agent may answer late, wrongly, or never, and nothing else may wait for it.
//!
//! # Approach
//! The socket never blocks. At most one message is unanswered at a time, with a deadline; further
//! ranges wait in a bounded queue. An answer that has arrived when the deadline is found exceeded
//! counts: in that case this daemon was late.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use uksm_interface::advice::{Advice, LONGEST, MAX_RANGES, Message, Outcomes, Range};
use uksm_policy::command::Nanos;

use super::peer::Peer;

/// The agent is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLost;

/// An agent that does not answer within this time is disconnected. Unmerging 64 MiB takes a tenth
/// of a second.
const ANSWER_TIMEOUT_NS: Nanos = 10_000_000_000;

/// Maximum number of waiting ranges: every other block of 2 MiB of a process of 1 TiB.
const MAX_WAITING_RANGES: usize = 1 << 18;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    waiting: VecDeque<(Advice, Range)>,
    /// Number of ranges in the unanswered message, and its deadline.
    sent: Option<(usize, Nanos)>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, peer: Peer) -> Connection {
        Connection {
            socket,
            peer,
            waiting: VecDeque::new(),
            sent: None,
        }
    }

    /// Whether every range was answered.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_none() && self.waiting.is_empty()
    }

    /// Sends these ranges, or queues them behind the waiting ones.
    pub(super) fn add(
        &mut self,
        advice: Advice,
        ranges: &[Range],
        now: Nanos,
    ) -> Result<(), AgentLost> {
        if self.waiting.len() + ranges.len() > MAX_WAITING_RANGES {
            return Err(AgentLost);
        }
        let ranges = ranges.iter().map(|&range| (advice, range));
        self.waiting.extend(ranges);
        self.send_next(now)
    }

    /// Sends waiting ranges of one kind, as many as a message holds, unless a message is
    /// unanswered.
    fn send_next(&mut self, now: Nanos) -> Result<(), AgentLost> {
        if self.sent.is_some() {
            return Ok(());
        }
        let Some(&(advice, _)) = self.waiting.front() else {
            // Releases the memory of a large process's queue.
            self.waiting.shrink_to(MAX_RANGES);
            return Ok(());
        };
        // The ranges are of this process: no other process may receive them.
        if !self.peer.is_alive() {
            return Err(AgentLost);
        }
        let alike = self.waiting.iter().take_while(|(kind, _)| *kind == advice);
        let ranges: Vec<Range> = alike.take(MAX_RANGES).map(|(_, range)| *range).collect();
        let message = Message::new(advice, &ranges);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.socket, message.bytes().as_slice(), flags).map_err(|_| AgentLost)?;
        self.waiting.drain(..ranges.len());
        self.sent = Some((ranges.len(), now.saturating_add(ANSWER_TIMEOUT_NS)));
        Ok(())
    }

    /// Reads the answer if it has arrived, and sends waiting ranges. An agent that sent something
    /// unasked, or has closed, is lost.
    pub(super) fn receive(&mut self, now: Nanos) -> Result<Vec<u32>, AgentLost> {
        let mut bytes = [0; LONGEST + 1];
        let length = match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(AgentLost),
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
            Err(_) => return Err(AgentLost),
        };
        let (count, _) = self.sent.take().ok_or(AgentLost)?;
        let answer = bytes.get(..length).ok_or(AgentLost)?;
        let outcomes = Outcomes::parse(answer).map_err(|_| AgentLost)?;
        if outcomes.as_slice().len() != count {
            return Err(AgentLost);
        }
        self.send_next(now)?;
        Ok(outcomes.as_slice().to_vec())
    }

    /// Whether an answer is overdue.
    pub(super) fn is_overdue(&self, now: Nanos) -> bool {
        self.sent.is_some_and(|(_, deadline)| now >= deadline)
    }
}

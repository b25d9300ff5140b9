//! Unmerging in threads of the supervisor: it unmerges the pages of a group's processes itself.
//!
//! # Problem
//! Pages of a group that ends, or that may merge less, must be given their own copies whether a
//! worker of it runs or not: its control group can stop a worker, or keep it from starting.
//! Unmerging takes minutes, and can hang in one process.
//!
//! # Approach
//! The supervisor has the domain's file. A thread for each group breaks its spaces, at most
//! [`MAX_THREADS`] at once, and wakes the supervisor when it is done. Nothing is waited for: a
//! thread that hangs is left behind with its copy of the file. The copies are charged to the
//! control groups of the processes, the processor time to the daemon's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};

use uksm_linux::module::Device;
use uksm_linux::selection::GroupId;
use uksm_linux::sleeper::Waker;
use uksm_linux::unmerge::{UnmergeSummary, unmerge_spaces};
use uksm_policy::command::SpaceId;

/// Maximum number of threads at once.
const MAX_THREADS: usize = 8;

/// The result for a group.
type Done = (GroupId, Result<UnmergeSummary, String>);

/// Threads that break.
#[derive(Debug)]
pub(super) struct UnmergeThreads {
    waiting: VecDeque<(GroupId, Device, Vec<SpaceId>)>,
    running: Vec<GroupId>,
    sender: Sender<Done>,
    receiver: Receiver<Done>,
    done: BTreeMap<GroupId, Result<UnmergeSummary, String>>,
}

impl UnmergeThreads {
    /// Nothing to break yet.
    pub(super) fn new() -> UnmergeThreads {
        let (sender, receiver) = channel();
        UnmergeThreads {
            waiting: VecDeque::new(),
            running: Vec::new(),
            sender,
            receiver,
            done: BTreeMap::new(),
        }
    }

    /// Breaks these spaces of a group's domain. A group without a domain, or without spaces, shares
    /// nothing.
    pub(super) fn add(&mut self, group: GroupId, domain: Option<&Device>, spaces: Vec<SpaceId>) {
        let Some(domain) = domain.filter(|_| !spaces.is_empty()) else {
            self.note(group, Ok(UnmergeSummary::default()));
            return;
        };
        match domain.try_clone() {
            Ok(domain) => self.waiting.push_back((group, domain, spaces)),
            Err(error) => self.note(
                group,
                Err(format!("cannot copy the file of its domain: {error}")),
            ),
        }
    }

    /// Starts threads, and takes their results. Answers whether all is done.
    pub(super) fn start_next(&mut self, waker: impl Fn() -> std::io::Result<Waker>) -> bool {
        while let Ok((group, done)) = self.receiver.try_recv() {
            self.running.retain(|&other| other != group);
            self.note(group, done);
        }
        while self.running.len() < MAX_THREADS
            && let Some((group, mut domain, spaces)) = self.waiting.pop_front()
        {
            let sender = self.sender.clone();
            let started = waker().and_then(|waker| {
                let work = move || {
                    let done = unmerge_spaces(&mut domain, &spaces, &mut || ());
                    // The task may have been given up.
                    let _gone = sender.send((group, done.map_err(|error| error.to_string())));
                    waker.wake();
                };
                std::thread::Builder::new()
                    .name("uksm-break".to_owned())
                    .stack_size(512 << 10)
                    .spawn(work)
            });
            match started {
                Ok(_) => self.running.push(group),
                Err(error) => self.note(group, Err(format!("cannot start a thread: {error}"))),
            }
        }
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Takes the results so far, by group.
    pub(super) fn take(&mut self) -> BTreeMap<GroupId, Result<UnmergeSummary, String>> {
        std::mem::take(&mut self.done)
    }

    /// Groups that are not finished.
    pub(super) fn unfinished(&self) -> Vec<GroupId> {
        let waiting = self.waiting.iter().map(|(group, ..)| *group);
        waiting.chain(self.running.iter().copied()).collect()
    }

    fn note(&mut self, group: GroupId, done: Result<UnmergeSummary, String>) {
        self.done.insert(group, done);
    }
}

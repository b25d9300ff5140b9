//! A daemon and workers for tests of clients: sockets, channels, threads and protocols are real,
//! the answers are made up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use uksm_linux::sleeper::{Sleeper, Waker};
use uksm_policy::report::LevelReport;

use crate::control::{Answer, Control, Request};
use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{SupervisorMessage, WorkerMessage};
use crate::groups::worker::space_channel::space_channel;
use crate::groups::worker::supervisor_requests;
use crate::status::Status;
use crate::status::groups::{GroupStatus, GroupsStatus};
use crate::status::processes::{ProcessFigures, ProcessSums};

/// A daemon that answers until it is dropped.
#[derive(Debug)]
pub(crate) struct FakeDaemon {
    path: PathBuf,
    asked: Arc<AtomicU64>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// A daemon that gives this answer to each request for a status; the function gets the number
    /// of requests before.
    pub(crate) fn new(path: &Path, answer: impl Fn(u64) -> Answer + Send + 'static) -> FakeDaemon {
        FakeDaemon::answering(path, move |request, before| {
            assert_eq!(*request, Request::Status);
            answer(before)
        })
    }

    /// A daemon that gives this answer to any request; the function gets the number of requests
    /// before.
    pub(crate) fn answering(
        path: &Path,
        answer: impl Fn(&Request, u64) -> Answer + Send + 'static,
    ) -> FakeDaemon {
        let sleeper = Sleeper::new().unwrap();
        let waker = sleeper.waker().unwrap();
        let control = Control::listen(path, None, sleeper.waker().unwrap()).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let thread = std::thread::spawn(move || {
            serve(sleeper, &control, |request| {
                answer(request, counted.fetch_add(1, Ordering::Relaxed))
            });
        });
        FakeDaemon {
            path: path.to_owned(),
            asked,
            waker,
            thread: Some(thread),
        }
    }

    /// Its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of requests.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.waker.stop();
        let done = self.thread.take().unwrap().join();
        assert!(done.is_ok() || std::thread::panicking());
    }
}

/// Workers, one a group, that answer until they are dropped.
#[derive(Debug)]
pub(crate) struct FakeWorkers {
    channels: Vec<Channel>,
    threads: Vec<JoinHandle<()>>,
}

impl FakeWorkers {
    /// This number of workers, which give this answer to any request; the function gets the
    /// worker's number.
    pub(crate) fn new(count: u32, answer: fn(u32) -> Answer) -> FakeWorkers {
        crate::startup::raise_descriptor_limit();
        let worker = |number| {
            let (ours, theirs) = Channel::pair().unwrap();
            let sleeper = Sleeper::new().unwrap();
            let waker = sleeper.waker().unwrap();
            let (inbox, spaces) = space_channel(theirs.try_clone().unwrap()).unwrap();
            let control = supervisor_requests::control(theirs, inbox, waker).unwrap();
            let thread = std::thread::spawn(move || {
                let _spaces = spaces;
                serve(sleeper, &control, |_| answer(number));
            });
            (ours, thread)
        };
        let (channels, threads) = (0..count).map(worker).unzip();
        FakeWorkers { channels, threads }
    }

    /// Asks all of them, as a supervisor does, and returns their answers.
    pub(crate) fn ask(&self) -> Vec<Answer> {
        for channel in &self.channels {
            channel
                .send(&SupervisorMessage::Ask(1, Request::Status), None)
                .unwrap();
        }
        let answer = |channel: &Channel| match channel.receive(None).unwrap() {
            Some((WorkerMessage::Answer(1, answer), _)) => answer,
            other => panic!("{other:?}"),
        };
        self.channels.iter().map(answer).collect()
    }
}

impl Drop for FakeWorkers {
    fn drop(&mut self) {
        self.channels.clear();
        let done = self
            .threads
            .drain(..)
            .map(JoinHandle::join)
            .collect::<Vec<_>>();
        let done = done.iter().all(Result::is_ok);
        assert!(done || std::thread::panicking());
    }
}

/// Answers all requests until it is stopped.
fn serve(mut sleeper: Sleeper, control: &Control, answer: impl Fn(&Request) -> Answer) {
    while !sleeper.stopping() {
        sleeper.sleep(uksm_linux::clock::now() + 1_000_000_000, &[]);
        while let Some(pending) = control.next() {
            pending.answer(answer(&pending.request));
        }
    }
}

/// A status in which frames save these pages, with a few other figures.
pub(crate) fn status(saved_pages: u32) -> Status {
    let mut status = Status::default();
    status.daemon.version = "0.1.0".to_owned();
    status.daemon.governor = "medium".to_owned();
    status.daemon.uptime_seconds = 61.0;
    status.targets.processes = 4;
    status.saved.frames_pages = i64::from(saved_pages);
    status.saved.daemon_pages = 256;
    status.saved.net_pages = i64::from(saved_pages) - 256;
    status.saved.net_mib = f64::from(saved_pages) / 256.0 - 1.0;
    status.frames.held = 100;
    status.frames.by_node = vec![100];
    status.frames.sharers = u64::from(saved_pages) + 100;
    status.merged.pages.cross_process = u64::from(saved_pages) + 1000;
    status.merged.pages.now = u64::from(saved_pages) + 100;
    status.merged.duplicates.left = 17;
    status.cpu.policy.recent_share = 0.025;
    status.cpu.policy.budget_share = 0.2;
    status.cpu.process_seconds = 1.5;
    status.memory.resident_bytes = 256 * 4096;
    status.kernel.equation_holds = true;
    status.kernel.outcomes.tried = u64::from(saved_pages) + 1005;
    status.kernel.outcomes.merged = u64::from(saved_pages) + 1000;
    status.kernel.outcomes.busy = 5;
    status.hints.source = "programs".to_owned();
    status.hints.policy.taken = 300;
    status.ledger.seconds = 3600.0;
    status.ledger.saved_byte_seconds = 3600.0 * 4096.0 * f64::from(saved_pages);
    status.levels = (1..=4)
        .map(|level| LevelReport {
            level,
            regions: 1000 / level.pow(3),
            pages: 512_000 / level.pow(3),
            share: 0.05,
            used_seconds: 0.25,
            ..LevelReport::default()
        })
        .collect();
    status
}

/// A group that saves these pages.
pub(crate) fn group(name: &str, saved_pages: u32) -> GroupStatus {
    GroupStatus {
        name: name.to_owned(),
        origin: "/etc/uksm/config.toml:3: web".to_owned(),
        pid: Some(4711),
        restarts: 1,
        status: Some(Box::new(status(saved_pages))),
        ..GroupStatus::default()
    }
}

/// A process with these numbers of merged pages and of pages that could be merged.
pub(crate) fn process(pid: u32, comm: &str, (merged, left): (u64, u64)) -> ProcessFigures {
    ProcessFigures {
        pid,
        comm: comm.to_owned(),
        sums: ProcessSums {
            resident_pages: 4096,
            merged_pages: merged,
            left_pages: left,
            read_pages: 123_456,
            work_seconds: 0.5,
        },
    }
}

/// A daemon with these groups.
pub(crate) fn groups(groups: Vec<GroupStatus>) -> Answer {
    let status = GroupsStatus {
        version: "0.1.0".to_owned(),
        pid: 4710,
        uptime_seconds: 61.0,
        supervisor_bytes: 1 << 20,
        groups,
        ..GroupsStatus::default()
    };
    Answer::Groups(Box::new(status.sum_up()))
}

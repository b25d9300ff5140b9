//! The applications that work beside a system.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result};

use crate::measure::cgroup::AppCgroup;
use crate::programs::postgres::{self, Postgres};
use crate::programs::python::Python;
use crate::programs::redis::{self, Installation, Server};
use crate::workload::Process;
use crate::workload::busy::Busy;

/// Sources that are compiled by one process, and by compilers of their own.
const SOURCES: u32 = 40;
const MADE: u32 = 16;
/// MiB that are moved, and repetitions.
const MOVED: (u32, u32) = (16, 400);
/// MiB of values of a redis-server, and requests.
const VALUES_MIB: usize = 16;
const REQUESTS: u64 = 4000;
/// Transactions of a database.
const TRANSACTIONS: u64 = 500;
/// Busy threads, and for each the number of its pages and of its reads.
const THREADS: usize = 4;
const THREAD_PAGES: usize = 1024;
const READS: u64 = 100_000;

/// An application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum App {
    Build,
    Make,
    Memory,
    Redis,
    Postgres,
    Threads,
}

impl App {
    /// All, by name.
    pub(super) const ALL: [(&'static str, App); 6] = [
        ("build", App::Build),
        ("make", App::Make),
        ("memory", App::Memory),
        ("redis", App::Redis),
        ("postgres", App::Postgres),
        ("threads", App::Threads),
    ];

    /// Makes the common start of all its runs.
    pub(super) fn prepare(self, place: &Installation, seed: u64) -> Result<()> {
        match self {
            App::Redis => redis::make_file(place, VALUES_MIB, seed),
            App::Postgres => postgres::make_database(),
            App::Build | App::Make | App::Memory | App::Threads => Ok(()),
        }
    }
}

impl FromStr for App {
    type Err = Error;

    fn from_str(name: &str) -> Result<App> {
        let found = App::ALL.iter().find(|(known, _)| *known == name);
        let names = App::ALL.map(|(name, _)| name).join(", ");
        found
            .map(|(_, app)| *app)
            .with_context(|| format!("case '{name}': there are {names}"))
    }
}

/// A running application: dropped before its control group is.
pub(super) struct RunningApp {
    program: AppProgram,
    cgroup: AppCgroup,
}

enum AppProgram {
    Python(Python),
    Redis(Box<Server>),
    Postgres(Postgres),
    /// A process of threads, and its result.
    Threads(Process, u64),
}

impl RunningApp {
    /// Starts it under this name, and waits until it is ready to work; `mergeable` offers it to
    /// in-kernel KSM.
    pub(super) fn start(
        (app, seed): (App, u64),
        place: &Installation,
        name: &str,
        mergeable: bool,
    ) -> Result<RunningApp> {
        let python = |work, most, times| {
            Python::worker(work, most, times, mergeable).map(AppProgram::Python)
        };
        let start = || match app {
            App::Build => python("build", SOURCES, 1),
            App::Make => python("make", MADE, 1),
            App::Memory => python("memory", MOVED.0, MOVED.1),
            App::Redis => {
                let mut server = Server::start(place, name, mergeable)?;
                server.loaded()?;
                Ok(AppProgram::Redis(Box::new(server)))
            }
            App::Postgres => Postgres::start(name, mergeable).map(AppProgram::Postgres),
            App::Threads => {
                let busy = Busy {
                    seed,
                    threads: THREADS,
                    pages: THREAD_PAGES,
                    reads: READS,
                    mergeable,
                };
                let mut process = Process::start_as("busy", &busy)?;
                process.ready()?;
                Ok(AppProgram::Threads(process, 0))
            }
        };
        let cgroup = AppCgroup::make(name)?;
        let program = cgroup.start(start)?;
        Ok(RunningApp { program, cgroup })
    }

    /// Processor time of all its processes so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.cgroup.cpu()
    }

    /// Makes it work; returns the time of each request, if there were any.
    pub(super) fn work(&mut self, seed: u64) -> Result<Vec<Duration>> {
        match &mut self.program {
            AppProgram::Python(python) => python.work().map(|_| vec![]),
            AppProgram::Redis(server) => {
                redis::request_in_turn(server.connection(), seed, REQUESTS)
            }
            AppProgram::Postgres(server) => server.work(seed, TRANSACTIONS),
            AppProgram::Threads(process, came) => {
                *came = process.work()?;
                Ok(vec![])
            }
        }
    }

    /// A digest of its results or its data.
    pub(super) fn digest(&mut self) -> Result<String> {
        match &mut self.program {
            AppProgram::Python(python) => Ok(python.made().to_string()),
            AppProgram::Redis(server) => server.digest(),
            AppProgram::Postgres(server) => server.digest(),
            AppProgram::Threads(_, came) => Ok(came.to_string()),
        }
    }
}

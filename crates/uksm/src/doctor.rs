//! `uksm doctor`: what on this host keeps uksm from running, or from saving what it could.
//!
//! # Problem
//! Why nothing is merged can have fifty reasons: a kernel option, a module of another kernel, memory of a kind that cannot be
//! merged, two settings that fight each other. Each shows in another file, and some only as a saving that never comes.
//!
//! # Approach
//! What the checks need is read once into a [`Host`], from a root that is a path, so that a test
//! can use a folder. A check is a row of a table ([`Check`]): its name, what it reads, what it
//! costs to leave things as they are, what mends it, and a function that judges what was read and
//! reads nothing itself. The tables are in the files of their subjects. What cannot be read is not
//! guessed: the verdict says so. Nothing is changed; of the module a domain is opened and closed
//! again, and of this program's own memory some is offered to KSM and withdrawn.
//!
//! # Units
//! Bytes, unless a name says otherwise.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use uksm_linux::module::{self, Device};
use uksm_linux::proc::Proc;

use crate::cli::DoctorArgs;
use crate::config;
use crate::control::{self, Answer, NoAnswer, Request};
use crate::failure::Failure;

mod configuration;
mod guard;
mod kernel;
mod machines;
mod memory;
mod mergeable;
mod module_state;
mod processes;
mod reading;
mod report;
mod rights;
mod service;
#[cfg(test)]
mod tests;

use reading::Root;
use report::Report;

/// The daemon answers a question within so long, or hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or could not be told.
    Note,
    /// uksm runs, and does less or costs more than it could.
    Warning,
    /// uksm cannot run here.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// What a check found.
#[derive(Debug)]
pub(crate) struct Verdict {
    severity: Severity,
    /// What it is, without a full stop.
    what: String,
    /// What mends it, each a line of a shell.
    commands: Vec<String>,
    /// The things that it is about, largest first.
    details: Vec<String>,
    /// Why it could not be told, or not of all.
    unread: Option<String>,
}

impl Verdict {
    fn new(severity: Severity, what: impl Into<String>) -> Verdict {
        Verdict {
            severity,
            what: what.into(),
            commands: Vec::new(),
            details: Vec::new(),
            unread: None,
        }
    }

    fn ok(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Ok, what)
    }

    fn note(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Note, what)
    }

    fn warning(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Warning, what)
    }

    fn error(what: impl Into<String>) -> Verdict {
        Verdict::new(Severity::Error, what)
    }

    /// It cannot be told, and why not.
    fn unknown(why: impl Into<String>) -> Verdict {
        let why = why.into();
        Verdict {
            unread: Some(why.clone()),
            ..Verdict::note(format!("cannot be told: {why}"))
        }
    }

    /// Mended by this.
    fn mend(mut self, command: impl Into<String>) -> Verdict {
        self.commands.push(command.into());
        self
    }

    /// About these.
    fn about(mut self, details: Vec<String>) -> Verdict {
        self.details = details;
        self
    }

    /// Told of a part only.
    fn in_part(mut self, why: Option<String>) -> Verdict {
        self.unread = why;
        self
    }
}

/// A row of the catalogue. `docs/doctor.md` has the same table for people, and a test compares them.
pub(crate) struct Check {
    /// Its name, which stays: scripts have it.
    name: &'static str,
    /// What it finds where all is not right.
    finds: &'static str,
    /// What it looks at.
    reads: &'static str,
    /// The worst that it can find.
    worst: Severity,
    /// What it costs to leave things as they are.
    cost: &'static str,
    /// What mends it, in words; the verdict has the command.
    mend: &'static str,
    /// Judges.
    judge: fn(&Host) -> Verdict,
}

/// All checks, by subject.
fn catalogue() -> impl Iterator<Item = &'static Check> {
    [
        kernel::CHECKS,
        module_state::CHECKS,
        guard::CHECKS,
        rights::CHECKS,
        memory::CHECKS,
        processes::CHECKS,
        mergeable::CHECKS,
        machines::CHECKS,
        configuration::CHECKS,
        service::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// The catalogue for who asks for help.
#[must_use]
pub(crate) fn checks_in_words() -> String {
    let mut text = "The exit status is 1 if there is an error, which means that uksm cannot run here, and 0 if there are notes and \
                    warnings only; with --strict a warning is a failure, too. It is 2 for a wrong command line.\n\n\
                    Checks, the worst that each can find, and when:\n"
        .to_owned();
    for check in catalogue() {
        text += &format!("  {} ({}): {}\n", check.name, check.worst, check.finds);
    }
    text
}

/// What was read of this host.
pub(crate) struct Host {
    kernel: kernel::Kernel,
    module: module_state::ModuleState,
    guard: guard::GuardState,
    rights: rights::Rights,
    memory: memory::Memory,
    processes: processes::Processes,
    mappings: mergeable::Mappings,
    configuration: configuration::Configured,
    service: service::Service,
}

/// Who is asked besides files.
struct Asked<'a> {
    /// Opens the device; whether its module may map frames.
    device: &'a dyn Fn(&Path) -> module::Result<bool>,
    /// Asks the daemon how it is.
    daemon: &'a dyn Fn(&Path) -> Result<Answer, NoAnswer>,
    /// Whether this kernel keeps mappings of memory that is offered to KSM apart.
    mappings_apart: &'a dyn Fn() -> bool,
}

impl Host {
    /// Reads all that checks need.
    fn read(root: &Root, config: Option<&Path>, asked: &Asked<'_>) -> Host {
        let kernel = kernel::Kernel::read(root);
        let configuration = configuration::Configured::read(root, config, asked);
        let device = root.at(&configuration.device());
        let proc = Proc::at(&root.at(Path::new("/proc")));
        let mut processes = processes::Processes::read(root, &proc);
        configuration.mark_targets(&proc, &mut processes.all);
        Host {
            module: module_state::ModuleState::read(
                root,
                kernel.release.there(),
                (asked.device)(&device),
            ),
            guard: guard::GuardState::read(root),
            rights: rights::Rights::read(root),
            memory: memory::Memory::read(root),
            mappings: mergeable::Mappings::read(root, (asked.mappings_apart)()),
            service: service::Service::read(root, &configuration),
            processes,
            kernel,
            configuration,
        }
    }
}

/// Reads, judges and prints.
///
/// # Errors
/// uksm cannot run here; with `--strict`, also where it does less than it could.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.config
        && !path.try_exists().unwrap_or(true)
    {
        let line = format!("--config {}: no such file", path.display());
        return Err(Failure::usage(line));
    }
    if !args.root.is_dir() {
        let line = format!("--root {}: no such folder", args.root.display());
        return Err(Failure::usage(line));
    }
    let asked = Asked {
        device: &|path| Device::open_at(path)?.is_guarded(),
        daemon: &|path| control::ask_within(path, &Request::Status, PATIENCE),
        mappings_apart: &|| {
            uksm_linux::ksm::memory::offering_keeps_mappings_apart().unwrap_or(false)
        },
    };
    let host = Host::read(&Root::at_path(&args.root), args.config.as_deref(), &asked);
    let report = Report::of(&host);
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).context("the answer is no JSON")?,
        false => report.to_string(),
    };
    crate::log::answer(&text);
    let least = match args.strict {
        true => Severity::Warning,
        false => Severity::Error,
    };
    match report.refusal(least) {
        None => Ok(()),
        Some(line) => Err(anyhow!(line).into()),
    }
}

/// Where the configuration is if nothing else is said.
fn default_configuration() -> &'static Path {
    Path::new(config::DEFAULT)
}

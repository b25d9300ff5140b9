//! The program `uksm`: merges equal memory of selected processes.
//!
//! One program is both the daemon and its client. The command line is parsed here and passed to the
//! module of each action. An error is one line on standard error; the exit status is 1 for a
//! failure and 2 for a wrong command line or configuration.

// These macros panic if their stream is closed: see `log`.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod account;
mod analyze;
mod break_command;
mod cli;
mod config;
mod control;
mod doctor;
mod explain;
mod failure;
mod groups;
mod hash_seed;
mod html_document;
mod ksm;
mod log;
mod metrics;
mod niceness;
mod own_program;
mod paths;
mod report;
mod run;
mod selectors;
mod setting;
mod signals;
mod startup;
mod status;
mod suggest;
mod systemd;
mod top;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};

use control::client::{asked, show};
use failure::Failure;

fn main() -> ExitCode {
    // A supervisor starts hundreds of workers; describing all options takes longer than the rest of
    // their start.
    if std::env::args_os().skip(1).eq(["worker"]) {
        return groups::worker::worker_main::worker().unwrap_or_else(|failure| fail(&failure));
    }
    let mut settings = setting::Settings::default();
    let cli = match cli::parse(
        std::env::args_os(),
        &mut settings,
        doctor::checks_in_words(),
    ) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let line = cli::one_line(&error, std::env::args_os());
            return fail(&Failure::usage(line));
        }
        // Help and version.
        Err(error) => {
            let _closed = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let done = match cli.action {
        cli::Action::Run(args) => run::run(&args, settings),
        cli::Action::Exec(args) => ksm::exec::exec(&args),
        cli::Action::KsmWatcher(args) => ksm::settings_guard::watcher(&args).map_err(Failure::from),
        cli::Action::Worker => groups::worker::worker_main::worker().map(drop),
        cli::Action::Status(args) => show_status(&args),
        cli::Action::Group(args) => match args.action {
            cli::GroupAction::List(list) => show_groups(&list.status(None)),
            cli::GroupAction::Show(show) => show_groups(&show.list.status(Some(show.name))),
            cli::GroupAction::Add(args) => {
                let socket = args.socket.clone();
                change(&socket, args.change(), "added")
            }
            cli::GroupAction::Set(args) => {
                let socket = args.socket.clone();
                change(&socket, args.change(), "changed")
            }
            cli::GroupAction::Remove(args) => {
                let remove = control::Change::Remove { name: args.name };
                change(&args.socket, Ok(remove), "removed")
            }
            cli::GroupAction::Suggest(args) => suggest::suggest(&args),
        },
        cli::Action::Analyze(args) => analyze::analyze(&args),
        cli::Action::Account(args) => account::account(&args),
        cli::Action::Report(args) => report::report(&args),
        cli::Action::Doctor(args) => doctor::doctor(&args),
        cli::Action::Explain(args) => explain::explain(&args),
        cli::Action::Top(args) => top::top(&args),
        cli::Action::Metrics(args) => metrics::metrics(&args),
        cli::Action::Reload(args) => reload(&args.socket),
        cli::Action::Break(args) => break_command::run(&args),
        cli::Action::Completions { shell } => {
            let mut script = Vec::new();
            let mut command = cli::command(doctor::checks_in_words());
            clap_complete::generate(shell, &mut command, "uksm", &mut script);
            log::print_exactly(&String::from_utf8_lossy(&script)).map_err(Failure::from)
        }
        cli::Action::Man { folder } => {
            let written =
                clap_mangen::generate_to(cli::command(doctor::checks_in_words()), &folder);
            written
                .with_context(|| folder.display().to_string())
                .map_err(Failure::from)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    // The whole chain, on one line.
    log::print_line(&format!("{:#}", failure.error));
    ExitCode::from(failure.status)
}

/// # Errors
/// No daemon, no such group, no groups at all.
fn show_groups(args: &cli::StatusArgs) -> Result<(), Failure> {
    match answer(args)? {
        control::Answer::Status(_) | control::Answer::Ksm(_) if args.group.is_none() => {
            Err(anyhow!("no groups are configured: see `uksm status`").into())
        }
        answer => show(&answer, args.json),
    }
}

fn show_status(args: &cli::StatusArgs) -> Result<(), Failure> {
    show(&answer(args)?, args.json)
}

/// # Errors
/// The configuration is bad, and nothing was changed; or some changes failed.
fn reload(socket: &Path) -> Result<(), Failure> {
    request_group_change(socket, &control::Request::Reload, "reloaded")
}

/// # Errors
/// As [`reload`].
fn change(
    socket: &Path,
    change: Result<control::Change, String>,
    done: &str,
) -> Result<(), Failure> {
    let change = change.map_err(Failure::usage)?;
    request_group_change(socket, &control::Request::Change(change), done)
}

/// Sends a request that changes groups, and prints the number of groups afterwards.
fn request_group_change(
    socket: &Path,
    request: &control::Request,
    done: &str,
) -> Result<(), Failure> {
    match asked(socket, request)? {
        control::Answer::Changed { groups } => {
            Ok(log::print_answer(&format!("{done}; groups: {groups}"))?)
        }
        answer => show(&answer, false),
    }
}

/// The status of the daemon, or of a group.
fn answer(args: &cli::StatusArgs) -> Result<control::Answer, Failure> {
    let request = match &args.group {
        Some(name) => control::Request::Group(name.clone()),
        None => control::Request::Status,
    };
    asked(&args.socket, &request)
}

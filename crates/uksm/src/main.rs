//! The program `uksm`: merges equal memory of processes that were named.
//!
//! One program is the daemon and asks the daemon. The command line is parsed here and handed to the
//! module of each action. An error is one line on standard error; the exit status is 1 for a failure
//! and 2 for a wrong command line or configuration.

mod break_up;
mod cli;
mod config;
mod control;
mod log;
mod run;
mod seed;
mod setting;
mod status;
mod worker;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};

/// Why an action failed.
#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    status: u8,
}

impl Failure {
    /// The command line or configuration is wrong.
    #[must_use]
    pub(crate) fn usage(line: String) -> Failure {
        Failure {
            error: anyhow!(line),
            status: 2,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { error, status: 1 }
    }
}

fn main() -> ExitCode {
    let mut settings = setting::Settings::default();
    let cli = match cli::parse(std::env::args_os(), &mut settings) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return fail(&Failure::usage(cli::one_line(&error))),
        // Help and version.
        Err(error) => {
            let _closed = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let done = match &cli.action {
        cli::Action::Run(args) => run::run(args, settings),
        cli::Action::Status(args) => show_status(args),
        cli::Action::Break(args) => break_up::break_up(args),
        cli::Action::Completions { shell } => {
            clap_complete::generate(*shell, &mut cli::command(), "uksm", &mut std::io::stdout());
            Ok(())
        }
        cli::Action::Man { folder } => {
            let written = clap_mangen::generate_to(cli::command(), folder);
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
    let line = format!("{:#}", failure.error).replace('\n', " ");
    eprintln!("uksm: {line}");
    ExitCode::from(failure.status)
}

fn show_status(args: &cli::StatusArgs) -> Result<(), Failure> {
    use control::{Answer, NoAnswer, Request, ask};
    let status = match ask(&args.socket, &Request::Status) {
        Ok(Answer::Status(status)) => status,
        Ok(Answer::Error(error)) => return Err(anyhow!(error).into()),
        Ok(Answer::Broken { .. }) => {
            return Err(anyhow!("the daemon answered another question").into());
        }
        Err(NoAnswer::Failed(line)) => return Err(anyhow!(line).into()),
        Err(NoAnswer::NotRunning) => {
            return Err(anyhow!(
                "{}: no daemon answers: start one with `uksm run` or `systemctl start uksm`, or \
                 name its socket with --socket",
                args.socket.display()
            )
            .into());
        }
    };
    let text = if args.json {
        serde_json::to_string_pretty(&status).map_err(anyhow::Error::from)?
    } else {
        status.to_string()
    };
    let _closed = writeln!(std::io::stdout(), "{text}");
    Ok(())
}

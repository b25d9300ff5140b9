//! Options of `uksm exec`, and of the watcher of KSM's knobs.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What of a program may be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Merge {
    /// Memory that a daemon with `--backend ksm` advises, through a preloaded library
    Advised,
    /// All of it, also of its children and of the programs that they execute; needs Linux 6.4, and
    /// no daemon
    All,
}

/// Options of `exec`.
#[derive(Debug, Args)]
#[command(
    after_help = "The exit status is the program's; 1 if it could not be started in this way, 2 \
                  for a wrong command line."
)]
pub(crate) struct ExecArgs {
    /// Which of its memory may be merged
    #[arg(long, value_name = "WHAT", value_enum, default_value = "advised")]
    pub(crate) merge: Merge,
    /// The socket on which the daemon accepts agents: its agent_socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::AGENT_SOCKET)]
    pub(crate) agent_socket: PathBuf,
    /// The agent's library [default: lib/uksm/libuksm_agent.so where uksm is installed]
    #[arg(long, value_name = "PATH")]
    pub(crate) agent: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Options of the watcher.
#[derive(Debug, Args)]
pub(crate) struct KsmWatcherArgs {
    /// KSM's folder.
    #[arg(long)]
    pub(crate) ksm_root: PathBuf,
    /// Where what was set is kept.
    pub(crate) file: PathBuf,
}

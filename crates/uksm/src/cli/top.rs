//! Options of `uksm top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use uksm_policy::params::form::time;

/// Options of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: s, p, c, n sort by what is saved or merged, potential, CPU, name; arrows \
                  choose, Enter opens the processes of a group and the explanation (`uksm \
                  explain`) of a process, r reads that again, t shows the status in full, Esc \
                  goes back, q quits. No colours where NO_COLOR is set. With --once on a terminal \
                  of unknown size, COLUMNS is its width."
)]
pub(crate) struct TopArgs {
    /// How often the daemon is queried (100ms to 1h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print the present state once as text, and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}

fn interval(text: &str) -> Result<Duration, String> {
    let form = time(100_000_000..=3_600_000_000_000);
    super::option_value::accepted(&form, text).map(Duration::from_nanos)
}

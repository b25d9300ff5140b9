//! Options of `uksm top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use uksm_policy::params::form::time;

/// Options of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: s, p, c, n sort by what is saved or merged, potential, CPU, name; arrows choose, Enter opens a group to its processes and a process to \
                  what `uksm explain` says of it, r asks for that again, t shows the status in full, Esc goes back, q quits. \
                  No colours where NO_COLOR is set. With --once on a terminal that does not know its size, COLUMNS says how wide it is."
)]
pub(crate) struct TopArgs {
    /// How often the daemon is asked (100ms to 1h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print what is so now as text, and end
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

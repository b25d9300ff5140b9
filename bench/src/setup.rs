//! Settings of every run in a guest: sizes, seeds, bounds, and the machine.
//!
//! Experiments, the demo and the systems under test all read it, so it knows none of them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use clap::Args;
use uksm_results::clock::Clock;
use uksm_results::report::Report;
use uksm_testkit::kernel_file;

use crate::measure::clock;

/// The options of a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Setup {
    /// The uksm program.
    #[arg(long, default_value = "/bin/uksm")]
    pub uksm: PathBuf,
    /// Where results go.
    #[arg(long, default_value = "/results")]
    pub output: PathBuf,
    /// Seed of all contents and, with the number of the run added, of the daemon.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What this machine's clock follows, as whoever started it says.
    #[arg(long = "count", value_enum, default_value_t)]
    pub clock: Clock,
    /// Mark the stretch of each run whose instructions the emulator counts by function, and leave
    /// the kernel's symbols beside the result.
    #[arg(long)]
    pub profile: bool,
    /// Runs of each variant where a run is short; the median one counts.
    #[arg(long, default_value_t = 5)]
    pub repeats: usize,
    /// Further runs, until the interval of each ratio reaches no further than this many percent
    /// from it.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub within: Option<f64>,
    /// Most runs of each variant then.
    #[arg(long = "most-repeats", default_value_t = 30, requires = "within")]
    pub max_repeats: usize,
    /// MiB of duplicates; each experiment has its own default.
    #[arg(long)]
    pub size: Option<usize>,
    /// Seconds that a variant which does not get done is given; each experiment has its own.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Offer the workloads' memory to huge pages; forbidden otherwise.
    #[arg(long)]
    pub huge: bool,
    /// Only these variants (by name).
    #[arg(long, value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Only these cases, where an experiment has cases to choose from.
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Seconds without work before memory is filled in a settled system.
    #[arg(long, default_value_t = 60)]
    pub calm: u64,
    /// Idle processes of a crowd, one number a case; experiment crowd has its own default.
    #[arg(long, value_delimiter = ',')]
    pub crowd: Vec<usize>,
    /// More options for every start of the daemon.
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    pub uksm_options: Vec<String>,
    /// Runs of the same variant before this one.
    #[arg(skip)]
    pub round: usize,
}

impl Setup {
    /// MiB of duplicates.
    pub(crate) fn size_or(&self, mib: usize) -> usize {
        self.size.unwrap_or(mib)
    }

    /// The bound of a variant's time.
    pub(crate) fn limit_or(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(seconds))
    }

    /// The requested cases, or these.
    ///
    /// # Errors
    /// A requested case does not exist.
    pub(crate) fn cases_or<C: FromStr<Err = Error>>(&self, default: &[&str]) -> Result<Vec<C>> {
        if self.cases.is_empty() {
            default.iter().map(|name| name.parse()).collect()
        } else {
            self.cases.iter().map(|name| name.parse()).collect()
        }
    }

    /// Time that a system is left without work.
    pub(crate) fn calm(&self) -> Duration {
        Duration::from_secs(self.calm)
    }

    /// Whether a variant is requested.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.variants.is_empty() || self.variants.iter().any(|wanted| wanted == name)
    }

    /// The same in another round. Each has its own seed of the daemon, so that a median does not
    /// depend on one seed, and the same in every boot, so that two boots differ by the compared
    /// change only.
    pub(crate) fn in_round(&self, round: usize) -> Setup {
        Setup {
            round,
            ..self.clone()
        }
    }

    /// The seed of this round: of its order, of its contents, of the daemon.
    pub(crate) fn round_seed(&self) -> u64 {
        self.seed.wrapping_add(self.round as u64)
    }

    /// Options of every start of the daemon besides the variant's.
    pub(crate) fn daemon_options(&self) -> Vec<String> {
        let mut options = self.uksm_options.clone();
        if !options.iter().any(|option| option.starts_with("--seed")) {
            let seed = self.round_seed().max(1);
            options.extend(["--seed".to_owned(), seed.to_string()]);
        }
        options
    }

    /// An empty result of this guest.
    pub(crate) fn report(&self, experiment: &str) -> Result<Report> {
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Ok(Report {
            experiment: experiment.to_owned(),
            kernel,
            accel: accel()?,
            clock: Some(clock::verified(self.clock)?),
            memory_mib: kernel_file::number("/proc/meminfo", "MemTotal")? / 1024,
            seed: self.seed,
            ..Report::default()
        })
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && f64::is_finite(percent) => Ok(percent),
        _ => Err("a number of percent above 0".to_owned()),
    }
}

/// The accelerator of this machine: emulation names itself in the processor's model.
fn accel() -> Result<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let has = |field: &str, word: &str| {
        text.lines()
            .any(|line| line.starts_with(field) && line.contains(word))
    };
    let name = match (has("model name", "TCG"), has("flags", " hypervisor")) {
        (true, _) => "tcg",
        (false, true) => "kvm",
        (false, false) => "native",
    };
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        setup: Setup,
    }

    fn daemon(line: &[&str], round: usize) -> Vec<String> {
        let line = Line::try_parse_from([&["run"], line].concat()).unwrap();
        line.setup.in_round(round).daemon_options()
    }

    #[test]
    fn each_round_has_a_seed_of_the_daemon_and_the_same_in_every_boot() {
        assert_eq!(daemon(&["--seed", "7"], 0), ["--seed", "7"]);
        assert_eq!(daemon(&["--seed", "7"], 2), ["--seed", "9"]);
        // The daemon takes 0 for no seed.
        assert_eq!(daemon(&["--seed", "0"], 0), ["--seed", "1"]);
    }

    #[test]
    fn a_seed_given_to_the_daemon_holds_in_all_rounds() {
        let given = ["--uksm-options", "--strength 2 --seed 5"];
        for round in [0, 3] {
            assert_eq!(daemon(&given, round), ["--strength", "2", "--seed", "5"]);
        }
    }

    #[test]
    fn a_bound_of_intervals_is_a_number_above_zero() {
        let within = |text| Line::try_parse_from(["run".to_owned(), format!("--within={text}")]);
        assert_eq!(within("5").unwrap().setup.within, Some(5.0));
        for bad in ["0", "nan", "inf", "-5", "much"] {
            let text = within(bad).err().unwrap().to_string();
            assert!(text.contains("--within"), "{bad}: {text}");
        }
    }

    #[test]
    fn a_clock_that_does_not_exist_is_named_in_the_error() {
        let error = Line::try_parse_from(["run", "--count", "cycles"])
            .err()
            .unwrap();
        let text = error.to_string();
        assert!(text.contains("'cycles'"), "{text}");
        assert!(text.contains("time, instructions"), "{text}");
    }
}

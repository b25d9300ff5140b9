//! What CPU is counted in.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a guest's clock follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The host's clock: CPU is in seconds
    #[default]
    Time,
    /// The guest's instructions: a second of CPU is 10⁹ of them
    Instructions,
}

impl Clock {
    /// Its name, as options and results have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Clock::Time => "time",
            Clock::Instructions => "instructions",
        }
    }

    /// The unit of CPU in tables.
    pub(crate) fn cpu_unit(self) -> &'static str {
        match self {
            Clock::Time => "CPU s",
            Clock::Instructions => "10^9 instr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_options_name_a_clock_alike() {
        for clock in [Clock::Time, Clock::Instructions] {
            let option = clock.to_possible_value().unwrap();
            assert_eq!(option.get_name(), clock.name());
            assert_eq!(serde_json::to_value(clock).unwrap(), clock.name());
        }
    }
}

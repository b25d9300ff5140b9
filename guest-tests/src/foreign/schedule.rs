//! The protocol of harness and guest: arms, programs, and the report on each.
//!
//! Approach: the harness writes one [`Schedule`] into the initramfs. The guest answers with one
//! [`Record`] a line for each program, at its end, so that a machine that dies leaves the earlier
//! records. All times are in seconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Path of the schedule in the initramfs.
pub const SCHEDULE_PATH: &str = "/foreign.json";
/// The program that carries it out, in the guest.
pub const RUNNER_PATH: &str = "/bin/uksm-foreign";
/// The folder of the programs it runs, in the guest.
pub const SUITE_DIR: &str = "/foreign";

/// The companion of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// No companion; the module has never been loaded.
    Bare,
    /// A program that only uses processor time, as the torturer does; still no module. Differences
    /// from [`Arm::Bare`] depend on time, or on chance.
    Busy,
    /// The module and a daemon that follows every process with the least activity.
    Idle,
    /// The module and the torturer.
    Tortured,
}

impl Arm {
    /// All, in the order in which they run: the module comes last.
    pub const ALL: [Arm; 4] = [Arm::Bare, Arm::Busy, Arm::Idle, Arm::Tortured];

    /// Whether the module is loaded in it.
    #[must_use]
    pub const fn has_module(self) -> bool {
        matches!(self, Arm::Idle | Arm::Tortured)
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Arm::ALL
            .into_iter()
            .find(|arm| arm.to_string() == text)
            .ok_or_else(|| format!("no arm is called '{text}'"))
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Arm::Bare => "bare",
            Arm::Busy => "busy",
            Arm::Idle => "idle",
            Arm::Tortured => "tortured",
        })
    }
}

/// The format of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// A self-test of the kernel: TAP, or one of the older ways to say "ok".
    Selftest,
    /// stress-ng: its exit status and its complaints.
    StressNg,
}

/// The torturer's permissions besides merging pages. All of them, unless a program tests exactly
/// such a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Split huge pages.
    pub split: bool,
    /// Replace pages of zeros by the zero page, which no RSS counts; else they are merged.
    pub zero: bool,
    /// Merge in mlocked mappings.
    pub locked: bool,
}

impl Allowed {
    /// All of it.
    pub const FULL: Allowed = Allowed {
        split: true,
        zero: true,
        locked: true,
    };
}

/// One program to run in each arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name in results: unique.
    pub name: String,
    /// The program, in the guest.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The format of its output.
    pub dialect: Dialect,
    /// Its time bound.
    pub bound: u64,
    /// Whether reaching the bound is its ordinary end: it runs until it is stopped.
    pub endless: bool,
    /// The torturer's permissions meanwhile.
    pub allowed: Allowed,
}

/// The whole work of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The arms, in this order.
    pub arms: Vec<Arm>,
    /// The programs, in this order in each arm.
    pub items: Vec<Item>,
    /// Settings written before each program, so that none finds changes of another one: file and
    /// value. A file that this kernel lacks is left out.
    pub settings: Vec<(String, String)>,
}

/// The torturer's work since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TortureCounts {
    /// Rounds over all processes.
    pub rounds: u64,
    /// Pages whose contents were read.
    pub sampled: u64,
    /// Pages that it tried to merge.
    pub tried: u64,
    /// Pages merged into a frame.
    pub merged: u64,
    /// Pages replaced by the zero page.
    pub zeroed: u64,
    /// Huge pages split for that.
    pub splits: u64,
}

impl TortureCounts {
    /// Pages that were exchanged under their process.
    #[must_use]
    pub const fn exchanged(self) -> u64 {
        self.merged + self.zeroed
    }

    /// The work since `before`.
    #[must_use]
    pub const fn since(self, before: TortureCounts) -> TortureCounts {
        TortureCounts {
            rounds: self.rounds.saturating_sub(before.rounds),
            sampled: self.sampled.saturating_sub(before.sampled),
            tried: self.tried.saturating_sub(before.tried),
            merged: self.merged.saturating_sub(before.merged),
            zeroed: self.zeroed.saturating_sub(before.zeroed),
            splits: self.splits.saturating_sub(before.splits),
        }
    }
}

/// The result of one program in one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The arm.
    pub arm: Arm,
    /// The item's name.
    pub item: String,
    /// Its exit status, 128 + signal if one ended it; none after its time bound.
    pub status: Option<i32>,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Standard output and error together.
    pub output: String,
    /// Complaints of the kernel meanwhile.
    pub complaints: Vec<String>,
    /// The torturer's work meanwhile.
    pub torture: TortureCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_is_loaded_in_the_last_arms_only() {
        let loaded = Arm::ALL.map(Arm::has_module);
        assert!(
            loaded.is_sorted(),
            "an arm without the module must not find traces of it: {loaded:?}"
        );
    }

    #[test]
    fn torture_of_an_item_is_the_difference() {
        let before = TortureCounts {
            merged: 5,
            zeroed: 1,
            ..TortureCounts::default()
        };
        let after = TortureCounts {
            merged: 7,
            zeroed: 4,
            ..TortureCounts::default()
        };
        assert_eq!(after.since(before).exchanged(), 5);
    }
}

//! What harness and guest agree on: arms, programs, and what is reported of each.
//!
//! Approach: the harness writes one [`Schedule`] into the initramfs. The guest answers with one
//! [`Record`] a line for each program that it ran, as it ends, so that a machine that dies leaves
//! what was known before. All times are in seconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where the schedule lies in the initramfs.
pub const SCHEDULE_PATH: &str = "/foreign.json";
/// The program that carries it out, in the guest.
pub const RUNNER_PATH: &str = "/bin/uksm-foreign";
/// The folder of the programs it runs, in the guest.
pub const SUITE_DIR: &str = "/foreign";

/// In whose company a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Nobody's; the module has never been loaded.
    Bare,
    /// A program that only takes processor time, as the torturer does; still no module. What
    /// differs from [`Arm::Bare`] here depends on time, or on chance.
    Busy,
    /// The module and a daemon that follows every process as quietly as it can.
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

/// How the output of a program is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// A self-test of the kernel: TAP, or one of the older ways to say "ok".
    Selftest,
    /// stress-ng: its exit status and its complaints.
    StressNg,
}

/// What the torturer may do besides merging pages. All of it, unless a program asks the kernel for
/// just what it changes.
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
    /// What it is called in results: unique.
    pub name: String,
    /// The program, in the guest.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How to read it.
    pub dialect: Dialect,
    /// It is ended after this time.
    pub bound: u64,
    /// Whether reaching the bound is its ordinary end: it runs until it is stopped.
    pub endless: bool,
    /// What the torturer may do meanwhile.
    pub allowed: Allowed,
}

/// The whole work of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The arms, in this order.
    pub arms: Vec<Arm>,
    /// The programs, in this order in each arm.
    pub items: Vec<Item>,
    /// What is written before each program, so that none finds what another one left: file and
    /// value. A file that this kernel lacks is left out.
    pub settings: Vec<(String, String)>,
}

/// What the torturer has done since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TortureCounts {
    /// Rounds over all processes.
    pub rounds: u64,
    /// Pages whose contents were read.
    pub sampled: u64,
    /// Pages that were tried to merge.
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

    /// What was done since `before`.
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

/// What came of one program in one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The arm.
    pub arm: Arm,
    /// The item's name.
    pub item: String,
    /// Its exit status, 128 + signal if one ended it; none if its time was up.
    pub status: Option<i32>,
    /// Seconds it took.
    pub seconds: f64,
    /// Standard output and error together.
    pub output: String,
    /// What the kernel complained about meanwhile.
    pub complaints: Vec<String>,
    /// What the torturer did meanwhile.
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

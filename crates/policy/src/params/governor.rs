//! The parameters that are chosen by a word: the governor (UKSM §7), what may be merged, and how
//! huge pages are treated.

use std::str::FromStr;

use super::form::{Choice, Form as _, choice};
use super::row::{self, ParamError};
use crate::command::{Nanos, SECOND};

/// How eager the engine is: a named set of shares and round times (UKSM §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Governor {
    /// 95 % of a core, a round in 2 s.
    Full,
    /// 47.5 %, 4 s.
    Medium,
    /// 23.75 %, 8 s.
    Low,
    /// 1 %, 20 s.
    Quiet,
}

impl Governor {
    /// All governors, the most eager first.
    pub const ALL: [Governor; 4] = [
        Governor::Full,
        Governor::Medium,
        Governor::Low,
        Governor::Quiet,
    ];

    /// The name by which it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Governor::Full => "full",
            Governor::Medium => "medium",
            Governor::Low => "low",
            Governor::Quiet => "quiet",
        }
    }

    /// The share of one core that the top level may use.
    pub(super) fn cpu(self) -> f64 {
        match self {
            Governor::Full => 0.95,
            Governor::Medium => 0.475,
            Governor::Low => 0.2375,
            Governor::Quiet => 0.01,
        }
    }

    /// The length of a global round.
    pub(super) fn round(self) -> Nanos {
        match self {
            Governor::Full => 2 * SECOND,
            Governor::Medium => 4 * SECOND,
            Governor::Low => 8 * SECOND,
            Governor::Quiet => 20 * SECOND,
        }
    }

    /// The form in which a governor is given.
    #[must_use]
    pub fn form() -> Choice<Governor, 4> {
        choice("name", Governor::ALL.map(|one| (one.name(), one)))
    }
}

impl FromStr for Governor {
    type Err = ParamError;

    fn from_str(name: &str) -> Result<Governor, ParamError> {
        let form = Governor::form();
        form.read(name)
            .ok_or_else(|| row::refused("governor", name, &form.bounds()))
    }
}

/// What may be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contents {
    /// Whatever is equal.
    #[default]
    All,
    /// Equal pages of several spaces: no two of one space map one frame (inter-sharing, without
    /// self-sharing).
    Between,
    /// Pages of zeros, with the kernel's zero page: nobody shares what anybody wrote.
    Zero,
}

impl Contents {
    /// All of them.
    pub const ALL: [Contents; 3] = [Contents::All, Contents::Between, Contents::Zero];

    /// The word by which it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contents::All => "all",
            Contents::Between => "between",
            Contents::Zero => "zero",
        }
    }

    pub(super) fn form() -> Choice<Contents, 3> {
        choice("word", Contents::ALL.map(|one| (one.name(), one)))
    }
}

/// How huge pages are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thp {
    /// Huge pages are read and never split.
    Never,
    /// A huge page is split where enough of its sampled pages have partners.
    Profit,
}

impl Thp {
    pub(super) fn form() -> Choice<Thp, 2> {
        choice("word", [("never", Thp::Never), ("profit", Thp::Profit)])
    }
}

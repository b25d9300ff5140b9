//! Every parameter of the policy, its default and its bounds (UKSM Table 1, §7).
//!
//! # Problem
//! Everything the paper lets an operator tune must be tunable here, by name, from a command line
//! and from a file, and a combination that makes no sense must be refused before anything runs.
//!
//! # Approach
//! [`Params`] is a plain struct. [`TABLE`] lists each parameter once with its unit, default,
//! bounds and meaning; [`Params::set`] and [`Params::get`] turn text into values and back;
//! [`Params::check`] refuses values out of bounds and contradictions, naming the parameter.
//!
//! # Units
//! Shares are parts of one core or of a number of pages (0 to 1), times are [`Nanos`], sizes are
//! bytes.
//!
//! # Source
//! UKSM Table 1, §5.2, §5.3, §6.1, §7, §8.1.2 and §8.1.3.

mod row;
mod text;

use std::fmt;

use crate::command::{Nanos, PAGE_LINES};
pub use row::{ParamSpec, TABLE};

/// A second in [`Nanos`].
pub(crate) const SECOND: Nanos = 1_000_000_000;
/// A millisecond in [`Nanos`].
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Most mappings that a machine gives one frame (`UKSM_MAX_SHARERS`).
pub const MAX_SHARERS: u32 = 256;
/// Bounds of what bounds regions.
const REGIONS: std::ops::RangeInclusive<usize> = 64..=1 << 24;

/// How huge pages are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thp {
    /// Huge pages are read and never split.
    Never,
    /// A huge page is split where enough of its sampled pages have partners.
    Profit,
}

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
}

impl std::str::FromStr for Governor {
    type Err = ParamError;

    fn from_str(name: &str) -> Result<Governor, ParamError> {
        Governor::ALL
            .into_iter()
            .find(|governor| governor.name() == name)
            .ok_or_else(|| ParamError::new("governor", name, "must be full, medium, low or quiet"))
    }
}

/// The parameters of one engine. Build with [`Params::governor`] and change fields; the engine
/// checks them all when it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Share of one core the top level may use, 0.002 to 0.95.
    pub cpu: f64,
    /// Share of one core the bottom level may use.
    pub bottom_cpu: f64,
    /// Number of levels of the ladder, 2 to 8 (UKSM §7: 4).
    pub levels: usize,
    /// Length of a global sampling round, split evenly over the levels.
    pub round: Nanos,
    /// Round time of each level, bottom first, instead of an even split (UKSM §8.1.3). Their sum
    /// is then the length of a global round.
    pub level_rounds: Option<Vec<Nanos>>,
    /// CPU share of each level, bottom first, instead of halving downwards from `cpu`.
    pub level_shares: Option<Vec<f64>>,
    /// T_s, the sleep of a sleep-scan cycle (UKSM §5.2).
    pub sleep: Nanos,
    /// V_dup: regions with a higher share of duplicates are promoted.
    pub v_dup: f64,
    /// V_cow: regions of which a higher share of merged pages is broken are demoted; `None`
    /// turns this filter off (UKSM §8.1.2).
    pub v_cow: Option<f64>,
    /// V_life: regions younger than this are left alone; 0 turns the lifetime filter off, learned
    /// lifetimes included (UKSM §8.1.3).
    pub v_life: Nanos,
    /// Hash strength in lines, 1 to 64; `None` adapts it (UKSM §6.1).
    pub strength: Option<u16>,
    /// Bytes the index of unmerged pages may take.
    pub index_bytes: usize,
    /// How huge pages are treated.
    pub thp: Thp,
    /// Share of a huge page's pages that must have partners before it is split.
    pub thp_share: f64,
    /// Merge pages of mlocked mappings, too.
    pub locked: bool,
    /// Large mappings are cut into regions of this many bytes, a power of two, at least 2 MiB.
    pub region_bytes: u64,
    /// Most regions that are followed.
    pub max_regions: usize,
    /// Most regions of one process that are followed.
    pub max_process_regions: usize,
    /// Most mappings of one frame; as many as the machine was told.
    pub max_sharers: u32,
}

impl Params {
    /// The parameters of a governor (UKSM §7).
    #[must_use]
    pub fn governor(governor: Governor) -> Params {
        let (cpu, round) = match governor {
            Governor::Full => (0.95, 2 * SECOND),
            Governor::Medium => (0.475, 4 * SECOND),
            Governor::Low => (0.2375, 8 * SECOND),
            Governor::Quiet => (0.01, 20 * SECOND),
        };
        Params {
            cpu,
            bottom_cpu: 0.002,
            levels: 4,
            round,
            level_rounds: None,
            level_shares: None,
            sleep: SECOND / 50,
            v_dup: 0.1,
            v_cow: Some(0.5),
            v_life: SECOND / 10,
            strength: None,
            index_bytes: 64 << 20,
            thp: Thp::Profit,
            thp_share: 0.25,
            locked: false,
            region_bytes: 64 << 20,
            max_regions: 1 << 19,
            max_process_regions: 1 << 16,
            max_sharers: MAX_SHARERS,
        }
    }

    /// The CPU share of each level, bottom first: the lowest has `bottom_cpu`, the highest `cpu`,
    /// each between half of the one above and never less than the bottom's (UKSM §7).
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        if let Some(shares) = &self.level_shares {
            return shares.clone();
        }
        let mut shares = vec![self.cpu; self.levels];
        for level in (0..self.levels.saturating_sub(1)).rev() {
            shares[level] = (shares[level + 1] / 2.0).max(self.bottom_cpu);
        }
        if let Some(bottom) = shares.first_mut() {
            *bottom = self.bottom_cpu;
        }
        shares
    }

    /// The round time of each level, bottom first.
    #[must_use]
    pub fn rounds(&self) -> Vec<Nanos> {
        match &self.level_rounds {
            Some(rounds) => rounds.clone(),
            None => vec![(self.round / self.levels.max(1) as u64).max(1); self.levels],
        }
    }

    /// Length of a global round: the sum of the levels' rounds.
    #[must_use]
    pub fn global_round(&self) -> Nanos {
        self.rounds().iter().sum::<Nanos>().max(1)
    }

    /// Checks every parameter and their combination.
    ///
    /// # Errors
    /// The first that is out of bounds or contradicts another.
    pub fn check(&self) -> Result<(), ParamError> {
        share("cpu", self.cpu, 0.002, 0.95)?;
        share("bottom_cpu", self.bottom_cpu, 0.0001, 0.95)?;
        if !(2..=8).contains(&self.levels) {
            return Err(ParamError::new("levels", self.levels, "must be 2 to 8"));
        }
        time("round", self.round, MILLISECOND, 3600 * SECOND)?;
        time("sleep", self.sleep, MILLISECOND, 10 * SECOND)?;
        share("v_dup", self.v_dup, 0.001, 1.0)?;
        if let Some(v_cow) = self.v_cow {
            share("v_cow", v_cow, 0.001, 1.0)?;
        }
        time("v_life", self.v_life, 0, 3600 * SECOND)?;
        if let Some(lines) = self.strength
            && !(1..=PAGE_LINES).contains(&lines)
        {
            return Err(ParamError::new(
                "strength",
                lines,
                "must be 1 to 64 lines, or auto",
            ));
        }
        if !((1 << 16)..=(1 << 40)).contains(&self.index_bytes) {
            let value = text::size(self.index_bytes as u64);
            return Err(ParamError::new(
                "index_bytes",
                value,
                "must be 64KiB to 1TiB",
            ));
        }
        share("thp_share", self.thp_share, 0.0, 1.0)?;
        if !self.region_bytes.is_power_of_two()
            || !((2 << 20)..=(1 << 40)).contains(&self.region_bytes)
        {
            let bounds = "must be a power of two, 2MiB to 1TiB";
            return Err(ParamError::new(
                "region_bytes",
                text::size(self.region_bytes),
                bounds,
            ));
        }
        for (name, most) in [
            ("max_regions", self.max_regions),
            ("max_process_regions", self.max_process_regions),
        ] {
            if !REGIONS.contains(&most) {
                let bounds = format!("must be {} to {}", REGIONS.start(), REGIONS.end());
                return Err(ParamError::new(name, most, bounds));
            }
        }
        if !(2..=MAX_SHARERS).contains(&self.max_sharers) {
            let bounds = format!("must be 2 to {MAX_SHARERS}");
            return Err(ParamError::new("max_sharers", self.max_sharers, bounds));
        }
        self.check_levels()
    }

    fn check_levels(&self) -> Result<(), ParamError> {
        if let Some(rounds) = &self.level_rounds {
            let value = text::join(rounds, |&t| text::duration(t));
            if rounds.len() != self.levels {
                let bounds = format!("must name one time for each of the {} levels", self.levels);
                return Err(ParamError::new("level_rounds", value, bounds));
            }
            for &round in rounds {
                time("level_rounds", round, MILLISECOND, 3600 * SECOND)?;
            }
        }
        if self.bottom_cpu > self.cpu {
            let bounds = format!("must not exceed cpu ({})", text::percent(self.cpu));
            return Err(ParamError::new(
                "bottom_cpu",
                text::percent(self.bottom_cpu),
                bounds,
            ));
        }
        let Some(shares) = &self.level_shares else {
            return Ok(());
        };
        let value = text::join(shares, |&s| text::percent(s));
        if shares.len() != self.levels {
            let bounds = format!("must name one share for each of the {} levels", self.levels);
            return Err(ParamError::new("level_shares", value, bounds));
        }
        for &one in shares {
            share("level_shares", one, 0.0001, 0.95)?;
        }
        if shares.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(ParamError::new(
                "level_shares",
                value,
                "must not fall towards the top",
            ));
        }
        if shares
            .last()
            .is_some_and(|&top| (top - self.cpu).abs() > 1e-9)
        {
            let bounds = format!("must end with cpu ({})", text::percent(self.cpu));
            return Err(ParamError::new("level_shares", value, bounds));
        }
        if shares
            .first()
            .is_some_and(|&low| (low - self.bottom_cpu).abs() > 1e-9)
        {
            let bounds = format!(
                "must start with bottom_cpu ({})",
                text::percent(self.bottom_cpu)
            );
            return Err(ParamError::new("level_shares", value, bounds));
        }
        Ok(())
    }

    /// Sets one parameter of [`TABLE`] from text, such as `20ms`, `10%`, `64MiB` or `off`. Checks
    /// its form only: call [`Params::check`] when all are set.
    ///
    /// # Errors
    /// No parameter of that name, or text that cannot be read.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError> {
        let value = value.trim();
        let bad = |form: &str| ParamError::new(name, value, format!("must be {form}"));
        let share = |one: &str| text::parse_share(one).ok_or_else(|| bad("a share such as 10%"));
        let time =
            |one: &str| text::parse_duration(one).ok_or_else(|| bad("a time such as 20ms or 2s"));
        let size = || text::parse_size(value).ok_or_else(|| bad("a size such as 64MiB"));
        match name {
            "cpu" => self.cpu = share(value)?,
            "bottom_cpu" => self.bottom_cpu = share(value)?,
            "levels" => self.levels = value.parse().map_err(|_| bad("a number"))?,
            "round" => self.round = time(value)?,
            "level_rounds" if value == "even" => self.level_rounds = None,
            "level_rounds" => {
                self.level_rounds = Some(text::list(value).map(time).collect::<Result<_, _>>()?);
            }
            "level_shares" if value == "halving" => self.level_shares = None,
            "level_shares" => {
                self.level_shares = Some(text::list(value).map(share).collect::<Result<_, _>>()?);
            }
            "sleep" => self.sleep = time(value)?,
            "v_dup" => self.v_dup = share(value)?,
            "v_cow" if value == "off" => self.v_cow = None,
            "v_cow" => self.v_cow = Some(share(value)?),
            "v_life" if value == "off" => self.v_life = 0,
            "v_life" => self.v_life = time(value)?,
            "strength" if value == "auto" => self.strength = None,
            "strength" => {
                self.strength = Some(
                    value
                        .parse()
                        .map_err(|_| bad("a number of lines, or auto"))?,
                );
            }
            "index_bytes" => {
                self.index_bytes =
                    usize::try_from(size()?).map_err(|_| bad("a size this machine can address"))?;
            }
            "thp" => {
                self.thp = match value {
                    "never" => Thp::Never,
                    "profit" => Thp::Profit,
                    _ => return Err(bad("never or profit")),
                };
            }
            "thp_share" => self.thp_share = share(value)?,
            "locked" => self.locked = value.parse().map_err(|_| bad("true or false"))?,
            "region_bytes" => self.region_bytes = size()?,
            "max_regions" => self.max_regions = value.parse().map_err(|_| bad("a number"))?,
            "max_process_regions" => {
                self.max_process_regions = value.parse().map_err(|_| bad("a number"))?;
            }
            "max_sharers" => self.max_sharers = value.parse().map_err(|_| bad("a number"))?,
            _ => {
                let names: Vec<_> = TABLE.iter().map(|spec| spec.name).collect();
                let known = format!("no such parameter; there are {}", names.join(", "));
                return Err(ParamError::new(name, value, known));
            }
        }
        Ok(())
    }

    /// The value of a parameter of [`TABLE`] as [`Params::set`] reads it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "cpu" => text::percent(self.cpu),
            "bottom_cpu" => text::percent(self.bottom_cpu),
            "levels" => self.levels.to_string(),
            "round" => text::duration(self.round),
            "level_rounds" => match &self.level_rounds {
                None => "even".to_owned(),
                Some(rounds) => text::join(rounds, |&t| text::duration(t)),
            },
            "level_shares" => match &self.level_shares {
                None => "halving".to_owned(),
                Some(shares) => text::join(shares, |&s| text::percent(s)),
            },
            "sleep" => text::duration(self.sleep),
            "v_dup" => text::percent(self.v_dup),
            "v_cow" => self.v_cow.map_or_else(|| "off".to_owned(), text::percent),
            "v_life" if self.v_life == 0 => "off".to_owned(),
            "v_life" => text::duration(self.v_life),
            "strength" => self
                .strength
                .map_or_else(|| "auto".to_owned(), |s| s.to_string()),
            "index_bytes" => text::size(self.index_bytes as u64),
            "thp" => match self.thp {
                Thp::Never => "never".to_owned(),
                Thp::Profit => "profit".to_owned(),
            },
            "thp_share" => text::percent(self.thp_share),
            "locked" => self.locked.to_string(),
            "region_bytes" => text::size(self.region_bytes),
            "max_regions" => self.max_regions.to_string(),
            "max_process_regions" => self.max_process_regions.to_string(),
            "max_sharers" => self.max_sharers.to_string(),
            _ => return None,
        })
    }
}

/// A parameter that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamError {
    /// Its name.
    pub name: String,
    /// What was given.
    pub value: String,
    /// What it must be, as the end of a sentence: "must be 2 to 8".
    pub bounds: String,
}

impl ParamError {
    fn new(name: &str, value: impl fmt::Display, bounds: impl Into<String>) -> ParamError {
        ParamError {
            name: name.to_owned(),
            value: value.to_string(),
            bounds: bounds.into(),
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "parameter {} = {}: {}",
            self.name, self.value, self.bounds
        )
    }
}

impl std::error::Error for ParamError {}

fn share(name: &str, value: f64, low: f64, high: f64) -> Result<(), ParamError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let bounds = format!("must be {} to {}", text::percent(low), text::percent(high));
    Err(ParamError::new(name, text::percent(value), bounds))
}

fn time(name: &str, value: Nanos, low: Nanos, high: Nanos) -> Result<(), ParamError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let bounds = format!(
        "must be {} to {}",
        text::duration(low),
        text::duration(high)
    );
    Err(ParamError::new(name, text::duration(value), bounds))
}

#[cfg(test)]
mod tests;

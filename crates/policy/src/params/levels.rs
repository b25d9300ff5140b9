//! What the parameters say of each level and of the index, and which contradict each other.

use super::{Nanos, ParamError, Params, text};
use crate::command::PAGE_SIZE;
use crate::ids::{KEPT_BACK, MAX_PLACE_BITS};

impl Params {
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

    /// Bits that name a page of a region, and bits that name a region.
    pub(crate) fn place_bits(&self) -> (u32, u32) {
        let pages = (self.region_bytes / PAGE_SIZE).max(1);
        let ids = self.max_regions.saturating_add(KEPT_BACK);
        let bits = |count: u64| count.checked_next_power_of_two().map_or(64, u64::ilog2);
        (bits(pages), bits(ids as u64))
    }

    /// Checks every parameter and their combination.
    ///
    /// # Errors
    /// The first that is out of bounds or contradicts another.
    pub fn check(&self) -> Result<(), ParamError> {
        self.check_each()?;
        if let Some(rounds) = &self.level_rounds
            && rounds.len() != self.levels
        {
            let bounds = format!("must name one time for each of the {} levels", self.levels);
            return Err(self.contradiction("level_rounds", bounds));
        }
        if self.bottom_cpu > self.cpu {
            let bounds = format!("must not exceed cpu ({})", text::percent(self.cpu));
            return Err(self.contradiction("bottom_cpu", bounds));
        }
        self.check_level_shares()?;
        let (_, region_bits) = self.place_bits();
        let most = PAGE_SIZE << (MAX_PLACE_BITS - region_bits);
        if self.region_bytes > most {
            let (most, regions) = (text::size(most), self.max_regions);
            let bounds = format!("must be at most {most} with max_regions = {regions}");
            return Err(self.contradiction("region_bytes", bounds));
        }
        Ok(())
    }

    fn check_level_shares(&self) -> Result<(), ParamError> {
        let Some(shares) = &self.level_shares else {
            return Ok(());
        };
        let differ = |one: Option<&f64>, other: f64| one.is_some_and(|s| (s - other).abs() > 1e-9);
        let bounds = if shares.len() != self.levels {
            format!("must name one share for each of the {} levels", self.levels)
        } else if shares.windows(2).any(|pair| pair[0] > pair[1]) {
            "must not fall towards the top".to_owned()
        } else if differ(shares.last(), self.cpu) {
            format!("must end with cpu ({})", text::percent(self.cpu))
        } else if differ(shares.first(), self.bottom_cpu) {
            let bottom = text::percent(self.bottom_cpu);
            format!("must start with bottom_cpu ({bottom})")
        } else {
            return Ok(());
        };
        Err(self.contradiction("level_shares", bounds))
    }

    /// The refusal of a parameter that contradicts another.
    fn contradiction(&self, name: &str, bounds: String) -> ParamError {
        let row = self.rows().into_iter().find(|row| row.name == name);
        ParamError {
            name: name.to_owned(),
            value: row.map_or_else(String::new, |row| row.value),
            bounds,
        }
    }
}

//! The configuration of a group's rate: fixed, or dynamic within bounds.
//!
//! # Problem
//! Groups with a dynamic rate divide a share of a core. Bounds that contradict each other must be
//! reported with their line.
//!
//! # Approach
//! Keys of `[group.NAME]` are rows as all settings are, kept as texts with their origins until all
//! are read.
//!
//! # Units
//! Shares of one core; millionths of it for [`RateTerms`].

use uksm_policy::params::Params;
use uksm_policy::params::form::{choice, share};
use uksm_redistribution::rates::{RateTerms, millionths};

use crate::setting::{Origin, Texts, refuse};

uksm_policy::parameters! {
    /// How fast a group may be.
    #[derive(Debug, Clone, PartialEq)]
    struct Rate, made by standard() {
        /// Whether its share of a core is fixed, or follows the pages that it frees and the waiting
        /// of its processes.
        rate: bool = false, choice("rate", [("fixed", false), ("dynamic", true)]);

        /// Its least share of a core, if its rate is dynamic.
        cpu_least: f64 = 0.01, share(0.002..=0.95);

        /// Its largest share of a core, if its rate is dynamic.
        cpu_most: f64 = 0.95, share(0.002..=0.95);
    }
}

/// The configured rate of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateConfig(Texts);

/// The keys of a group for its rate.
pub(crate) fn names() -> Vec<&'static str> {
    Rate::NAMES.to_vec()
}

impl RateConfig {
    /// Sets a key, which is one of [`names`].
    pub(crate) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.0.insert(name, (text, origin));
    }

    /// Reads the rate of a group with these parameters. None if it is fixed.
    ///
    /// # Errors
    /// The invalid setting, and its line.
    pub(crate) fn resolve(&self, params: &Params) -> Result<Option<RateTerms>, String> {
        let mut rate = Rate::standard();
        for (name, (text, _)) in &self.0 {
            rate.set(name, text)
                .map_err(|error| refuse(&self.0, &error))?;
        }
        rate.check_each().map_err(|error| refuse(&self.0, &error))?;
        let origin = |names: &[&str]| {
            let set = names.iter().find_map(|name| self.0.get(name));
            set.map_or(String::new(), |(_, origin)| origin.to_string())
        };
        if !rate.rate {
            return match ["cpu_least", "cpu_most"]
                .iter()
                .find(|name| self.0.contains_key(**name))
            {
                Some(name) => Err(format!(
                    "{}: the group's rate is fixed at cpu: set rate = \"dynamic\" as well",
                    origin(&[name])
                )),
                None => Ok(None),
            };
        }
        if rate.cpu_least > rate.cpu_most {
            return Err(format!(
                "{}: cpu_least is more than cpu_most",
                origin(&["cpu_least", "cpu_most"])
            ));
        }
        if params.bottom_cpu > rate.cpu_least {
            return Err(format!(
                "{}: cpu_least is less than bottom_cpu, the share of the lowest level",
                origin(&["cpu_least", "rate"])
            ));
        }
        if params.level_shares.is_some() {
            return Err(format!(
                "{}: level_shares cannot be set with a dynamic rate: leave them out",
                origin(&["rate"])
            ));
        }
        Ok(Some(RateTerms {
            least: millionths(rate.cpu_least),
            most: millionths(rate.cpu_most),
            start: millionths(params.cpu),
        }))
    }
}

//! The settings of a run of an experiment.

use uksm_policy::Params;
use uksm_policy::params::Governor;

use super::scatter::Custom;
use crate::Costs;

/// The settings of every experiment.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Costs of the host.
    pub costs: Costs,
    /// The name of the costs.
    pub costs_name: String,
    /// Seed of everything.
    pub seed: u64,
    /// Parameters of the engine that are not the governor's, by name.
    pub parameters: Vec<(String, String)>,
    /// Only cases whose names contain this.
    pub cases: Option<String>,
    /// Only variants of these names; all if the list is empty.
    pub variants: Vec<String>,
    /// Another layout instead of the cases of `scatter`.
    pub layout: Option<Custom>,
    /// Runs of each case: the results must be the same, and repeating removes other work of this
    /// machine from the real times of steps.
    pub times: u32,
}

impl Setup {
    /// The parameters of the engine under a governor, where some are a variant's own.
    pub(super) fn params(
        &self,
        governor: Governor,
        own: &[(&str, &str)],
    ) -> Result<Params, String> {
        let mut params = Params::governor(governor);
        for (name, value) in own {
            let set = params.set(name, value);
            set.map_err(|error| error.to_string())?;
        }
        for (name, value) in &self.parameters {
            let set = params.set(name, value);
            set.map_err(|error| error.to_string())?;
        }
        params.check().map_err(|error| error.to_string())?;
        Ok(params)
    }
}

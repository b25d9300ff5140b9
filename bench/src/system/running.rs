//! A system under test while it runs.

use anyhow::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// A running system under test. Dropping it stops it.
pub(crate) trait System {
    /// CPU used since its start: daemon and kernel threads together.
    fn cpu(&self) -> Result<Duration>;

    /// Called at every look; what keeps a share of CPU adjusts here.
    fn adjust(&mut self) -> Result<()> {
        Ok(())
    }

    /// Memory the system itself takes, MiB; what it keeps in the kernel is not seen here.
    fn own_mib(&self) -> f64 {
        0.0
    }

    /// Figures of its own for the result: where its CPU went.
    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// What it says of itself, while running.
    fn report(&self) -> Option<serde_json::Value>;

    /// Stops it; memory stays merged.
    fn stop(&mut self) -> Result<()>;
}

//! A system under test while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

/// A running system under test. Dropping it stops it.
pub(crate) trait System {
    /// CPU used since its start: daemon and kernel threads together.
    fn cpu(&self) -> Result<Duration>;

    /// Called at every look; systems held at a share of CPU adjust here.
    fn adjust(&mut self) -> Result<()> {
        Ok(())
    }

    /// Memory of the system itself, MiB, without its memory in the kernel.
    fn own_mib(&self) -> f64 {
        0.0
    }

    /// Figures of its own for the result: the parts of its CPU.
    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Its own report, while running.
    fn report(&self) -> Option<serde_json::Value>;

    /// Stops it; memory stays merged.
    fn stop(&mut self) -> Result<()>;
}

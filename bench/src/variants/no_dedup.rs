//! No system at all, as the baseline of the others.

use std::time::Duration;

use anyhow::Result;

use super::running_system::System;

/// It uses nothing and does nothing.
pub(super) struct NoDedup;

impl System for NoDedup {
    fn cpu(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn report(&self) -> Option<serde_json::Value> {
        None
    }

    fn stop(&mut self) -> Result<()> {
        Ok(())
    }
}
